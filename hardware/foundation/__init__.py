"""What belongs to no room in particular: sections of files, durable writes, random streams.

It lies in the lowest package that touches files; `phy` has no input and no output.
"""
