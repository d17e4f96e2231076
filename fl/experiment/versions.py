"""What a run ran on."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = (
    "airdp",
    "distributed",
    "ducc0",
    "numba",
    "numpy",
    "scipy",
    "torch",
    "scikit-learn",
    "dp-accounting",
    "matplotlib",
    "rich",
    "pydantic",
    "pyadi-iio",
    "pylibiio",
    "pyyaml",
    "pyzmq",
    "tomli-w",
)


def package_version(name: str) -> str | None:
    """Installed version, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def versions() -> dict[str, Any]:
    """Python, machine and package versions, JSON-ready."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "packages": {name: package_version(name) for name in PACKAGES},
    }
