"""What is installed is what is in the tree."""

import tomllib
from pathlib import Path

from setuptools import find_packages

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
TOPS = ("phy", "flowgraphs", "hardware", "calibration", "fl")


def test_every_package_of_the_tree_is_installed() -> None:
    found = {
        ".".join(path.parent.relative_to(ROOT).parts) for top in TOPS for path in (ROOT / top).rglob("__init__.py")
    }
    assert set(find_packages(str(ROOT), include=SETTINGS["packages"]["find"]["include"])) == found


def test_every_data_file_of_the_packages_is_installed() -> None:
    installed = {
        path
        for package, patterns in SETTINGS["package-data"].items()
        for pattern in patterns
        for path in ROOT.joinpath(*package.split(".")).glob(pattern)
    }
    assert installed == {
        path
        for top in TOPS
        for suffix in ("LICENSE", "css", "grc", "html", "js", "toml", "typed")
        for path in (ROOT / top).rglob(f"*.{suffix}")
    }
    assert installed


def test_type_checkers_are_told_that_the_packages_are_annotated() -> None:
    """PEP 561 asks for the file in each top-level package."""
    assert [top for top in TOPS if not (ROOT / top / "py.typed").is_file()] == []
