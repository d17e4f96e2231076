"""What must be installed for a backend, and whether it is."""

import shutil
import sys
from dataclasses import dataclass

from hardware.lab.importing import import_problems


@dataclass(frozen=True)
class Requirement:
    """One thing that was looked for. detail: what was found. help: what to do where it is missing."""

    name: str
    needed_for: str
    present: bool
    detail: str
    help: str


def module_requirement(name: str, needed_for: str, command: str, python: str = sys.executable) -> Requirement:
    """A Python module, which `command` installs. A process with `python` imports it."""
    problem = import_problems([name], python)[name]
    where = "imported" if python == sys.executable else f"imported by {python}"
    return Requirement(name, needed_for, not problem, problem or where, command)


def tool_requirement(name: str, needed_for: str, command: str) -> Requirement:
    """A program on the path, which `command` installs."""
    path = shutil.which(name)
    return Requirement(name, needed_for, path is not None, path or "missing", command)
