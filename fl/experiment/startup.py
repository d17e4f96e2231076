"""Packages with names as plain as `phy` and `fl` can be shadowed by others: check that all four come from one place."""

import importlib
from pathlib import Path

from phy.errors import AirdpError

PACKAGES = ("phy", "hardware", "calibration", "fl")


class ShadowedPackageError(AirdpError):
    """Another package of the same name was imported."""


def check_one_place() -> Path:
    """The folder that holds all four packages; raises `ShadowedPackageError` naming the one that is elsewhere."""
    home = Path(__file__).resolve().parents[2]
    for name in PACKAGES:
        found = importlib.import_module(name).__file__
        place = Path(found).resolve().parents[1] if found else None
        if place != home:
            raise ShadowedPackageError(
                f"package '{name}' comes from {place or 'a folder without __init__.py'}, not from {home} as airdp's: "
                "something else has that name; remove it from PYTHONPATH or the current folder, or use a fresh venv"
            )
    return home
