"""Generic package names can be shadowed: a stranger's `phy` is named in one line, before anything fails inside."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from fl import startup
from fl.startup import PACKAGES, ShadowedPackageError, check_one_place
from tests.conftest import REPOSITORY, START, Outcome


def test_the_packages_of_this_project_are_at_home() -> None:
    assert check_one_place() == REPOSITORY
    assert PACKAGES == ("phy", "flowgraphs", "hardware", "calibration", "fl")


@pytest.mark.parametrize("name", ["phy", "flowgraphs", "hardware", "calibration"])
@pytest.mark.parametrize("kind", ["package", "module"])
def test_a_strangers_package_before_ours(tmp_path: Path, airdp: Callable[..., Outcome], name: str, kind: str) -> None:
    path = tmp_path / "site"
    path.mkdir()
    if kind == "package":
        (path / name).mkdir()
        (path / name / "__init__.py").write_text("raise RuntimeError('a stranger was imported')\n")
    else:
        (path / f"{name}.py").write_text("raise RuntimeError('a stranger was imported')\n")
    outcome = airdp("configs", path=str(path))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"airdp: error: package '{name}' comes from")
    assert outcome.err.count("\n") == 1
    assert str(path) in outcome.err
    assert "PYTHONPATH" in outcome.err


def test_a_folder_of_that_name_without_code_does_not_shadow(tmp_path: Path, airdp: Callable[..., Outcome]) -> None:
    """A namespace package comes after real ones on the path: a results folder called `hardware` does no harm."""
    (tmp_path / "hardware").mkdir()
    assert airdp("configs", "--json").code == 0


def test_a_stranger_in_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "phy").mkdir()
    (tmp_path / "phy" / "__init__.py").touch()
    # `python -c` and `python -m` put the current folder first.
    done = subprocess.run(
        [sys.executable, "-c", START, "configs"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("airdp: error: package 'phy' comes from")


@pytest.mark.parametrize("spec", [None, ModuleSpec("hardware", None)], ids=["nowhere", "namespace"])
def test_a_package_that_is_not_there(monkeypatch: pytest.MonkeyPatch, spec: ModuleSpec | None) -> None:
    find = startup.importlib.util.find_spec
    monkeypatch.setattr(startup.importlib.util, "find_spec", lambda name: spec if name == "hardware" else find(name))
    with pytest.raises(ShadowedPackageError, match="'hardware'"):
        check_one_place()


HEAVY = ("dp_accounting", "matplotlib", "numba", "numpy", "pydantic", "rich", "scipy", "scipy.optimize", "torch")
LIST_HEAVY = f"""
import sys
from fl.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as leaving:
    code = leaving.code
loaded = [name for name in {HEAVY!r} if name in sys.modules]
print(code, *loaded, *[name for name in sys.modules if name.startswith("fl.cli.") and name.count(".") == 3], sep="\\n")
"""


def loaded_by(*arguments: str) -> list[str]:
    """Exit code, heavy packages and modules of commands that the command imports."""
    done = subprocess.run(
        [sys.executable, "-c", LIST_HEAVY, *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines = done.stdout.splitlines()
    start = max(place for place, line in enumerate(lines) if line.isdigit())
    return lines[start:]


def test_help_imports_nothing_heavy_and_no_command() -> None:
    assert loaded_by("--help") == ["0"]


def test_a_command_imports_no_other() -> None:
    assert loaded_by("configs", "--help")[-1:] == ["fl.cli.experiments.configs"]
    account = loaded_by("account", "--help")
    assert set(account) & {"dp_accounting", "matplotlib", "numba", "pydantic", "torch"} == set()
    assert account[-1] == "fl.cli.privacy.account"


def test_account_imports_what_its_accountants_need_and_no_more() -> None:
    account = ("account", "--rounds", "2", "--samples", "100", "--sigma", "0.1", "--delta", "1e-5")
    loaded = loaded_by(*account)
    assert loaded[0] == "0"
    assert "scipy" in loaded
    assert set(loaded) & {"dp_accounting", "matplotlib", "numba", "pydantic", "scipy.optimize", "torch"} == set()
    second_opinions = loaded_by(*account, "--all")
    assert "dp_accounting" in second_opinions


def test_what_is_no_command_is_refused_as_before(airdp: Callable[..., Outcome]) -> None:
    refused = airdp("no-such-command", "configs")
    assert refused.code == 2
    assert "no-such-command" in refused.err
    assert airdp("--no-such-option", "configs").code == 2
