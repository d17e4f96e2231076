"""What a run ran on."""

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "airdp",
    "distributed",
    "numba",
    "numpy",
    "scipy",
    "torch",
    "scikit-learn",
    "dp-accounting",
    "jinja2",
    "llvmlite",
    "matplotlib",
    "msgpack",
    "rich",
    "pydantic",
    "pyadi-iio",
    "pyfftw",
    "pylibiio",
    "pyyaml",
    "pyzmq",
    "sigmf",
    "threadpoolctl",
    "tomli-w",
    "tornado",
)
"""All that airdp needs (its dependencies in pyproject.toml)."""
_GIT_TIMEOUT_S = 10.0


def package_version(name: str) -> str | None:
    """Installed version, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def source_commit(file: Path = Path(__file__)) -> dict[str, Any] | None:
    """Commit that `file` is of, and whether tracked files of its repository differ from it.

    None where the file is not kept by git: an installed copy may lie in the repository of something else.
    """
    try:
        _git(file.parent, "ls-files", "--error-unmatch", file.name)
        return {
            "commit": _git(file.parent, "rev-parse", "HEAD"),
            "changed": bool(_git(file.parent, "status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    # An inherited GIT_DIR, as in a hook, would speak of another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", "-C", str(folder), "--no-optional-locks", *arguments],  # noqa: S607
        capture_output=True,
        check=True,
        env=environment,
        text=True,
        timeout=_GIT_TIMEOUT_S,
    )
    return done.stdout.strip()


def versions() -> dict[str, Any]:
    """Python, machine, package versions and the commit of the sources, JSON-ready."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "source": source_commit(),
        "packages": {name: package_version(name) for name in PACKAGES},
    }
