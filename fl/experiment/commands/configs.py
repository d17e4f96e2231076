"""List the configs that ship with airdp; with NAME, print that config with every key resolved."""

import argparse

from fl.experiment.commands.output import RESULTS, print_json
from fl.experiment.config import load_config, shipped_configs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this config, resolved")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def call(options: argparse.Namespace) -> int:
    """List, or print one."""
    if options.name:
        config = load_config(options.name)
        if options.json:
            print_json(config.model_dump(mode="json"))
        else:
            print(config.to_toml(), end="")
        return 0
    descriptions = {name: load_config(name).description for name in shipped_configs()}
    if options.json:
        print_json(descriptions)
        return 0
    from rich.table import Table

    table = Table("config", "what it is")
    for name, description in descriptions.items():
        table.add_row(name, description)
    RESULTS.print(table)
    return 0
