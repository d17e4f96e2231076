"""List the configs and sweeps that ship with airdp; with NAME, print that config, every key explained."""

import argparse

from fl.cli.output import RESULTS, print_json
from fl.run.config import load_config, shipped_configs
from fl.sweep.plan import load_plan, shipped_sweeps
from hardware.foundation.commented import commented_toml


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this config, resolved, or this sweep")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def call(options: argparse.Namespace) -> int:
    """List, or print one."""
    if options.name in shipped_sweeps():
        if options.json:
            print_json(load_plan(options.name).to_json())
        else:
            print(shipped_sweeps()[options.name].read_text(encoding="utf-8"), end="")
        return 0
    if options.name:
        config = load_config(options.name)
        if options.json:
            print_json(config.model_dump(mode="json"))
        else:
            print("\n".join(commented_toml(config)))
        return 0
    configs = {name: load_config(name).description for name in shipped_configs()}
    sweeps = {name: load_plan(name).description for name in shipped_sweeps()}
    if options.json:
        print_json({**configs, **sweeps})
        return 0
    from rich.table import Table

    for kind, command, descriptions in (("config", "run", configs), ("sweep", "sweep", sweeps)):
        table = Table(kind, f"what it is (airdp {command} {kind.upper()})")
        for name, description in descriptions.items():
            table.add_row(name, description)
        RESULTS.print(table)
    return 0
