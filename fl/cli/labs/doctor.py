"""What is installed, what is missing, and how to get it. Packages are imported, in a process apart. Exit code 0 where
the loopback can run."""

import argparse
import os
import sys
from pathlib import Path

from fl.cli.output import RESULTS, print_json
from fl.versions import PACKAGES, package_version
from hardware.lab.importing import import_problems
from hardware.lab.requirements import Requirement

_MODULES = {
    "airdp": "fl",
    "scikit-learn": "sklearn",
    "pyadi-iio": "adi",
    "pylibiio": "iio",
    "pyyaml": "yaml",
    "pyzmq": "zmq",
}
"""Names by which packages are imported, where it is not their own with underscores."""
_EXTRAS = {
    "flwr": ("flwr", "Flower", "pip install 'airdp[flower]'"),
    "ray": ("ray", "Flower's simulation", "pip install 'airdp[flower]'"),
    "tensorboard": ("tensorboard", "tracking", "pip install 'airdp[tensorboard]'"),
    "mlflow-skinny": ("mlflow", "tracking", "pip install 'airdp[mlflow]'"),
    "wandb": ("wandb", "tracking", "pip install 'airdp[wandb]'"),
    "torchvision": ("torchvision", "data of its own", "pip install torchvision, built for the installed torch"),
    "datasets": ("datasets", "Hugging Face's data", "pip install datasets 'pyarrow<26' 'numpy<2'"),
}
"""Packages that some parts use where they are installed: module, what for, how to get them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def call(options: argparse.Namespace) -> int:
    """Look and tell."""
    core = _core()
    complete = all(finding.present for finding in core)
    # Without the core backends cannot even be looked for.
    findings = [*core, *_extras(), _data(), *(_backends() if complete else ())]
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
            RESULTS.print(f"{finding.name}: {finding.help}", soft_wrap=True, markup=False)
    RESULTS.print("The core is complete." if complete else "The core is incomplete: run `make setup`.")
    return 0 if complete else 2


def _core() -> list[Requirement]:
    python = ".".join(map(str, sys.version_info[:3]))
    found = [Requirement("python", "everything", sys.version_info >= (3, 11), python, "Python 3.11 or newer")]
    versions = {name: package_version(name) for name in PACKAGES}
    modules = {name: _MODULES.get(name, name.replace("-", "_")) for name, version in versions.items() if version}
    problems = import_problems(list(modules.values()))
    for name, version in versions.items():
        problem = problems[modules[name]] if name in modules else "missing"
        found.append(Requirement(name, "everything", not problem, problem or f"{version}", "make setup"))
    return found


def _extras() -> list[Requirement]:
    versions = {name: package_version(name) for name in _EXTRAS}
    problems = import_problems([_EXTRAS[name][0] for name, version in versions.items() if version])
    found = []
    for name, (module, needed_for, get) in _EXTRAS.items():
        problem = problems[module] if versions[name] else "missing"
        found.append(Requirement(name, needed_for, not problem, problem or f"{versions[name]}", get))
    return found


def _data() -> Requirement:
    from fl.learning.data.emnist import DATA_VARIABLE
    from fl.learning.data.fetch import emnist_cache_folder, has_emnist

    named = os.environ.get(DATA_VARIABLE, "")
    place = Path(named) if named else emnist_cache_folder()
    present = place.exists() if named else has_emnist(place)
    get = f"airdp data emnist, or set {DATA_VARIABLE}"
    return Requirement("EMNIST data", "emnist configs", present, str(place) if present else "missing", get)


def _backends() -> list[Requirement]:
    """Whether all of them can be used, and what each needs."""
    from hardware.lab.registry import registry

    known = registry()
    broken = "; ".join(known.problems)
    found = [Requirement("backends", "labs", not broken, ", ".join(known.backends), broken)]
    for backend in known.backends.values():
        found += [one for one in backend.requirements() if one not in found]
    return found
