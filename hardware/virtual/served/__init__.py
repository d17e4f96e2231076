"""The simulated air in a process of its own, for radios that belong to several others.

Samples and results are those of the loopback, bit for bit. Time is virtual: it moves when the server's radio receives.
"""
