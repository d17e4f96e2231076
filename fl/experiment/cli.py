"""The command line. Each subcommand is a module in `fl.experiment.commands`, imported only when it is called.

Exit codes: 0 done; 2 something given cannot be used, one line on stderr says what; 130 interrupted.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

from phy.errors import AirdpError

COMMANDS = {
    "run": "run an experiment, or resume one",
    "account": "epsilon of M equal uplinks under every accountant",
    "jammer": "how much noise a jammer must add",
    "ledger": "verify a run's privacy ledger and recompute epsilon",
    "bench": "measure speed against a reference in the same run",
    "configs": "list the configs that ship with airdp",
    "data": "download a data set",
    "doctor": "what is installed, what is missing, how to get it",
}


def build_parser() -> argparse.ArgumentParser:
    """The whole parser; importing the command modules is cheap because they import heavy things late."""
    parser = argparse.ArgumentParser(
        prog="airdp", description="Differentially private federated learning over the air."
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        module = importlib.import_module(f"fl.experiment.commands.{name}")
        subparser = subparsers.add_parser(name, help=summary, description=module.__doc__)
        module.add_arguments(subparser)
        subparser.set_defaults(call=module.call)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the command `airdp`."""
    try:
        from fl.experiment.startup import check_one_place

        check_one_place()
        options = build_parser().parse_args(arguments)
        code: int = options.call(options)
    except AirdpError as error:
        print(f"airdp: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("airdp: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`airdp ... | head`): nothing is wrong here.
        sys.stderr.close()
        return 0
    return code
