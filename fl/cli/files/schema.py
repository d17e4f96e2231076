"""JSON Schema of a config or a lab file, for editors that check TOML while it is written."""

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("kind", nargs="?", choices=["config", "lab"], default="config", help="default: config")


def call(options: argparse.Namespace) -> int:
    """Print it."""
    from hardware.foundation.commented import json_schema

    if options.kind == "lab":
        from hardware.lab.file import lab_file_model

        schema = json_schema(lab_file_model())
    else:
        from fl.run.config import RunConfig

        schema = json_schema(RunConfig)
    print(json.dumps(schema, indent=1))
    return 0
