"""The command line: `main` has the entry point, `output` how commands speak, and each command is a module of its own.

A command's docstring is its help, `add_arguments` declares, `call` returns the exit code.
"""
