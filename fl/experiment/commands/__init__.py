"""One module per subcommand: the docstring is its help, `add_arguments` declares, `call` returns the exit code."""
