"""What is installed, what is missing, and how to get it. Exit code 0 where the loopback can run."""

import argparse
import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from fl.experiment.commands.output import RESULTS, print_json
from fl.experiment.versions import PACKAGES, package_version


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for. help: what to do where it is missing."""

    name: str
    needed_for: str
    present: bool
    detail: str
    help: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def call(options: argparse.Namespace) -> int:
    """Look and tell."""
    findings = [*_core(), *_optional()]
    complete = all(finding.present for finding in findings if finding.needed_for == "everything")
    if options.json:
        print_json({"complete": complete, "findings": [vars(finding) for finding in findings]})
        return 0 if complete else 2
    from rich.table import Table

    table = Table("", "part", "needed for", "found")
    for finding in findings:
        table.add_row(
            "[green]ok[/]" if finding.present else "[yellow]--[/]", finding.name, finding.needed_for, finding.detail
        )
    RESULTS.print(table)
    for finding in findings:
        if not finding.present:
            RESULTS.print(f"{finding.name}: {finding.help}", soft_wrap=True)
    RESULTS.print("The core is complete." if complete else "The core is incomplete: run `make setup`.")
    return 0 if complete else 2


def _core() -> list[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    found = [Finding("python", "everything", sys.version_info >= (3, 11), python, "Python 3.11 or newer")]
    for name in PACKAGES:
        version = package_version(name)
        found.append(Finding(name, "everything", version is not None, version or "missing", "make setup"))
    return found


def _optional() -> list[Finding]:
    from fl.learning.data.emnist import DATA_VARIABLE
    from fl.learning.data.fetch import emnist_cache_folder, has_emnist

    named = os.environ.get(DATA_VARIABLE, "")
    place = Path(named) if named else emnist_cache_folder()
    has_data = place.exists() if named else has_emnist(place)
    get_data = f"airdp data emnist, or set {DATA_VARIABLE}"
    modules = (
        (
            "iio",
            "ADALM-Pluto",
            "sudo apt-get install libiio0 libiio-utils; pip install -c constraints.txt pyadi-iio pylibiio",
        ),
        ("uhd", "USRP", "sudo apt-get install python3-uhd uhd-host"),
        ("gnuradio", "flowgraphs", "sudo apt-get install --no-install-recommends gnuradio"),
    )
    found = [Finding("EMNIST data", "emnist configs", has_data, str(place) if has_data else "missing", get_data)]
    for module, purpose, command in modules:
        present = importlib.util.find_spec(module) is not None
        found.append(Finding(module, purpose, present, "importable" if present else "missing", command))
    for tool in ("iio_info", "uhd_find_devices", "grcc"):
        path = shutil.which(tool)
        packages = {"iio_info": "libiio-utils", "uhd_find_devices": "uhd-host", "grcc": "gnuradio"}
        found.append(
            Finding(tool, "radios", path is not None, path or "missing", f"sudo apt-get install {packages[tool]}")
        )
    return found
