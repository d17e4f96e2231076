"""Modules are asked for by importing them: what is found and does not import, crashes or hangs is not there."""

import sys
from pathlib import Path

import pytest

from hardware.lab.importing import import_problems
from hardware.lab.requirements import module_requirement

MODULES = {
    "whole": "print('chatter on stdout')",
    "without_its_library": "raise ImportError('libwhole.so.1: cannot open shared object file')",
    "crashes": "import os; os.abort()",
    "exits": "import os; os._exit(7)",
    "also_whole": "",
}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    for name, content in MODULES.items():
        (tmp_path / f"{name}.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    return list(MODULES)


def test_each_module_has_its_own_answer(modules: list[str]) -> None:
    assert import_problems([*modules, "nowhere"]) == {
        "whole": "",
        "without_its_library": "ImportError: libwhole.so.1: cannot open shared object file",
        "crashes": "importing it ended Python with SIGABRT",
        "exits": "importing it ended Python with exit code 7",
        "also_whole": "",
        "nowhere": "ModuleNotFoundError: No module named 'nowhere'",
    }


def test_one_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hangs.py").write_text("import time; time.sleep(3600)")
    monkeypatch.syspath_prepend(tmp_path)
    assert import_problems(["hangs"], timeout_s=1.0) == {"hangs": "importing it did not end within 1 s"}


def test_a_python_that_is_not_there() -> None:
    assert "cannot be started" in import_problems(["json"], "/nonexistent/python3")["json"]


@pytest.mark.usefixtures("modules")
def test_a_module_that_is_found_and_does_not_import_is_not_present() -> None:
    broken = module_requirement("without_its_library", "tests", "install it")
    assert (broken.present, broken.help) == (False, "install it")
    assert "libwhole.so.1" in broken.detail
    assert module_requirement("whole", "tests", "").present
    assert module_requirement("json", "tests", "", sys.executable).detail == "imported"
