"""The command line. Each subcommand is a module of a group in `fl.cli`; what is heavy is imported when it is called.

Exit codes: 0 done; 2 something given cannot be used, one line on stderr says what; 3 a claim is refuted
(`validate`, `audit`), or a recorded run does not come out again (`replay`); 130 interrupted, 143 terminated.
"""

import argparse
import importlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from fl.cli.terminal_text import visible
from fl.startup import ShadowedPackageError, check_one_place

_LONGEST = 4000
"""Characters of an error: one may quote a file, which anybody may have made."""
COMMANDS = {
    "run": ("experiments", "run an experiment, or resume one"),
    "sweep": ("experiments", "run a grid of experiments, each several times, on all cores or a cluster"),
    "reproduce": ("experiments", "the paper's experiments: sweep and report in one"),
    "account": ("privacy", "epsilon of M equal uplinks with given noise"),
    "jammer": ("privacy", "how much noise a jammer must add"),
    "calibrate": ("labs", "measure a lab's noise and links, or check a record of them"),
    "validate": ("labs", "attack a lab's privacy claim: claimed against measured separation of neighbours"),
    "replay": ("experiments", "a run's captures through the receiver again: does the same come out?"),
    "live": ("experiments", "a page about a run in the browser, while it goes on or afterwards"),
    "inspect": ("experiments", "pictures and numbers of one radio uplink"),
    "ledger": ("privacy", "verify a run's privacy ledger and recompute epsilon"),
    "audit": ("privacy", "lower bounds of epsilon from the canaries of a run, beside what is claimed"),
    "report": ("experiments", "one HTML page about sweeps and runs: curves, privacy, power, settings"),
    "bound": ("experiments", "the paper's convergence bound for a run, term by term"),
    "radios": ("labs", "find radios and show what they say about themselves"),
    "emulate": ("labs", "serve a lab's radios as virtual ones"),
    "node": ("nodes", "take part in a run as a client or the jammer, beside one radio"),
    "keys": ("nodes", "make or list the keys by which nodes know each other"),
    "lab": ("nodes", "start all nodes of a lab on this machine, and a run over them"),
    "flower": ("experiments", "run a Flower app over the air, and take everything down again"),
    "flowgraph": ("labs", "list or run the GNU Radio flowgraphs"),
    "bench": ("experiments", "measure speed against a reference in the same run"),
    "configs": ("experiments", "list the configs that ship with airdp"),
    "init": ("files", "write a commented config or lab file to begin with"),
    "schema": ("files", "JSON Schema of config or lab files, for editors"),
    "completion": ("files", "completion for bash, zsh or fish"),
    "data": ("experiments", "download a data set"),
    "doctor": ("labs", "what is installed, what is missing, how to get it"),
}
"""Name of each, the group that its module is in, and its summary."""
_KEYS = "; a key of a file is overridden with --set A.B=C"


class _Parser(argparse.ArgumentParser):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # argparse takes -1 for a number and -1e-4 for an option.
        self._negative_number_matcher = re.compile(r"-(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$|-inf$", re.IGNORECASE)

    def error(self, message: str) -> NoReturn:
        """One line, without the usage that argparse puts before it."""
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        """Looked up only when it is asked for."""
        from importlib.metadata import version

        print(f"airdp {version('airdp')}")
        parser.exit(0)


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The whole parser, or with the arguments of one command `only`, so that no other's module is imported."""
    parser = _Parser(prog="airdp", description="Differentially private federated learning over the air.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.set_defaults(call=None)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, (group, summary) in COMMANDS.items():
        if only not in (None, name):
            subparsers.add_parser(name, help=summary)
            continue
        module = importlib.import_module(f"fl.cli.{group}.{name}")
        subparser = subparsers.add_parser(name, help=summary, description=module.__doc__)
        module.add_arguments(subparser)
        subparser.set_defaults(call=module.call)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the command `airdp`."""
    try:
        check_one_place()
    except ShadowedPackageError as error:
        return _refuse(error)
    from hardware.foundation.file_errors import described
    from hardware.radio.termination import orderly_termination
    from phy.errors import AirdpError

    _open_standard_streams()
    try:
        given = sys.argv[1:] if arguments is None else arguments
        named = next((word for word in given if word in COMMANDS), "")
        parser = build_parser(named)
        options, unknown = parser.parse_known_args(arguments)
        if unknown:
            # Of the command's own help: argparse would name that of `airdp`.
            program = f"airdp {options.command}" if options.command else "airdp"
            hint = f"see {program} --help{_KEYS if 'set' in options else ''}"
            parser.exit(2, f"{program}: error: unrecognized arguments: {' '.join(unknown)}; {hint}\n")
        if options.call is None:
            parser.print_help()
            return 0
        with orderly_termination(), _foreign_code(options):
            code: int = options.call(options)
        sys.stdout.flush()
    except AirdpError as error:
        return _refuse(error)
    except KeyboardInterrupt:
        print("airdp: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`airdp ... | head`): nothing is wrong here, and nothing is left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # A full or failing disk, most likely; what is written to files names them.
        if error.filename is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _refuse(RuntimeError(f"{'' if error.filename else 'cannot write the output: '}{described(error)}"))
    return code


def _open_standard_streams() -> None:
    """Give each standard stream that was closed (`airdp ... >&-`) to the null device.

    The next file that is opened would get its number otherwise, a ledger perhaps, and all that is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - a stream of the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - a stream of the process


@contextmanager
def _foreign_code(options: argparse.Namespace) -> Iterator[None]:
    """A command that reads folders of runs imports none of the code that these name, unless it was given --trust."""
    folders = [folder for folder in (vars(options).get("folder"), *vars(options).get("folders", ())) if folder]
    if not folders:
        yield
        return
    from fl.import_path import code_of, trusted_code

    with code_of(folders[0]), trusted_code(vars(options).get("trust", False)):
        yield


def _refuse(error: Exception) -> int:
    said = visible(" ".join(str(error).split()))
    print(f"airdp: error: {said if len(said) <= _LONGEST else said[:_LONGEST] + '…'}", file=sys.stderr)
    return 2
