"""What must be installed for a backend, and whether it is."""

import importlib.util
import shutil
from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    """One thing that was looked for. detail: what was found. help: what to do where it is missing."""

    name: str
    needed_for: str
    present: bool
    detail: str
    help: str


def module_requirement(name: str, needed_for: str, command: str) -> Requirement:
    """A Python module, which `command` installs. It is looked for and not imported."""
    present = importlib.util.find_spec(name) is not None
    return Requirement(name, needed_for, present, "importable" if present else "missing", command)


def tool_requirement(name: str, needed_for: str, command: str) -> Requirement:
    """A program on the path, which `command` installs."""
    path = shutil.which(name)
    return Requirement(name, needed_for, path is not None, path or "missing", command)
