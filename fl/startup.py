"""Packages with names as plain as `phy` and `fl` can be shadowed by others: check that all four come from one place.

Nothing of the four is imported here or before the check: a stranger's `phy` has no `errors` to import.
"""

import importlib.util
from pathlib import Path

PACKAGES = ("phy", "flowgraphs", "hardware", "calibration", "fl")


class ShadowedPackageError(ImportError):
    """Another package of the same name would be imported."""


def check_one_place() -> Path:
    """The folder that holds all four packages; raises `ShadowedPackageError` naming the one that is elsewhere."""
    home = Path(__file__).resolve().parents[1]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve() if spec and spec.origin else None
        if found != home / name / "__init__.py":
            raise ShadowedPackageError(
                f"package '{name}' comes from {found or 'a folder without __init__.py'}, not from {home} as airdp's: "
                "something else has that name; remove it from PYTHONPATH or the current folder, or use a fresh venv"
            )
    return home
