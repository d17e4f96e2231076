"""What a lab is: its radios by role, what they may do, and the backend that they are reached through.

A backend is one registration: the module `backend` of a room of this package, or the entry point of another package,
has a `Backend` (`model`), which `registry` finds. It brings the sections of a lab file that belong to it (`section`),
what a lab is like on it (`traits`), and how its radios are opened; it may bring how they are found (`discovery`), what
they need to be installed (`requirements`) and virtual ones to serve (`emulation`). Nothing else knows its name.

`file` reads lab files, `opened` opens what they describe.
"""
