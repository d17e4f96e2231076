"""What is installed is what is in the tree."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
TOPS = ("phy", "flowgraphs", "hardware", "calibration", "fl")


def test_every_package_of_the_tree_is_listed() -> None:
    found = {
        ".".join(path.parent.relative_to(ROOT).parts) for top in TOPS for path in (ROOT / top).rglob("__init__.py")
    }
    assert set(SETTINGS["packages"]) == found


def test_every_data_file_of_the_packages_is_installed() -> None:
    installed = {
        path
        for package, patterns in SETTINGS["package-data"].items()
        for pattern in patterns
        for path in ROOT.joinpath(*package.split(".")).glob(pattern)
    }
    assert installed == {
        path for top in TOPS for suffix in ("css", "grc", "html", "toml") for path in (ROOT / top).rglob(f"*.{suffix}")
    }
    assert installed
