"""Backends are found, and one that is broken is named and stands in nobody's way."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hardware.lab.file import find_lab, parse_lab
from hardware.lab.registry import find_backend, registry
from hardware.radio.errors import HardwareError, LabFileError
from tests.conftest import Outcome
from tests.hardware.lab.plugins import install, install_cable, on_the_path

HEAD = """
from hardware.lab.model import Backend, Connection
from hardware.lab.section import BackendSection
from hardware.loopback.backend import BACKEND as OTHER

class Settings(BackendSection):
    key: int = 1
"""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    registry.cache_clear()
    yield
    registry.cache_clear()


OURS = ["gnuradio", "loopback", "loopback-served", "pluto", "pluto-virtual", "usrp", "usrp-virtual"]


def backend(name: str, sections: str = "{}") -> str:
    return f"{HEAD}\nBACKEND = Backend({name!r}, {sections}, OTHER.traits, OTHER.connect)\n"


def problems_of(folder: Path) -> tuple[str, ...]:
    """Of what is installed there; all else can be used."""
    with on_the_path(folder):
        found = registry()
        assert list(found.backends) == OURS
        find_lab("loopback")
        return found.problems


def test_rooms_enter_themselves() -> None:
    assert list(registry().backends) == OURS
    assert registry().problems == ()
    assert sorted(registry().sections) == ["gnuradio", "medium", "pluto", "usrp"]


def test_finding_them_opens_no_library() -> None:
    """A backend's module says what it is: what is heavy or optional is imported when its radios are opened."""
    script = """
import sys
from hardware.lab.registry import registry
registry()
heavy = ["adi", "iio", "zmq", "gnuradio", "torch", "uhd"]
heavy += ["hardware.pluto.radio", "hardware.usrp.radio", "hardware.virtual.iiod.emulator"]
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("name", "source", "reason"),
    [
        ("mine", "import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("mine", "raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("mine", "BACKENDS = 1", "AttributeError"),
        ("mine", "BACKEND = 'mine'", "it is 'mine' and no Backend"),
        ("mine", backend("yours"), "its Backend has the name 'yours'"),
        ("mine", backend("mine", "{'limits': Settings}"), "a section cannot have the name 'limits'"),
        ("mine", backend("mine", "{'my-own': Settings}"), "a section cannot have the name 'my-own'"),
        ("mine", backend("mine", "{'mine': int}"), "its section [mine] is <class 'int'>: expected a BackendSection"),
        ("mine", backend("mine", "{'medium': Settings}"), "its section [medium] is not that of the backend"),
        (
            "mine",
            backend("mine", "{'mine': type('M', (Settings,), {'__annotations__': {'must': int}})}"),
            "'must' of its section [mine] has no default",
        ),
        ("pluto", backend("pluto"), "the module hardware.pluto.backend has the name 'pluto' too"),
    ],
)
def test_one_that_cannot_be_used_is_named(tmp_path: Path, name: str, source: str, reason: str) -> None:
    install(tmp_path, "my-radios", {name: "my_radios:BACKEND"}, my_radios=source)
    (problem,) = problems_of(tmp_path)
    assert problem.startswith(f"the backend '{name}' of the package my-radios 1.0 cannot be used: {reason}")


def test_of_two_with_one_name_neither_is_used(tmp_path: Path) -> None:
    install(tmp_path, "my-radios", {"mine": "my_radios:BACKEND"}, my_radios=backend("mine"))
    install(tmp_path, "other-radios", {"mine": "other_radios:BACKEND"}, other_radios=backend("mine"))
    one, other = problems_of(tmp_path)
    assert "of the package my-radios 1.0 cannot be used: the backend 'mine' of the package other-radios 1.0 has" in one
    assert (
        "of the package other-radios 1.0 cannot be used: the backend 'mine' of the package my-radios 1.0 has" in other
    )


def test_the_problem_is_told_to_whoever_asks_for_it(tmp_path: Path, command: Callable[..., Outcome]) -> None:
    install(tmp_path, "my-radios", {"mine": "my_radios:BACKEND"}, my_radios="import nowhere_to_be_found")
    with on_the_path(tmp_path):
        with pytest.raises(
            HardwareError, match=r"backend 'mine' is not one of .*package my-radios 1\.0 cannot be used"
        ):
            find_backend("mine")
        tables = find_lab("loopback").to_tables() | {"mine": {}}
        with pytest.raises(LabFileError, match=r"unknown key 'mine'.*package my-radios 1\.0 cannot be used: Module"):
            parse_lab(tables)
        findings = {finding["name"]: finding for finding in command("doctor", "--json").json["findings"]}
    assert not findings["backends"]["present"]
    assert "my-radios" in findings["backends"]["help"]


def test_a_broken_one_beside_one_that_works(tmp_path: Path) -> None:
    install(tmp_path, "my-radios", {"mine": "my_radios:BACKEND"}, my_radios="raise SystemError")
    install_cable(tmp_path)
    with on_the_path(tmp_path):
        assert find_backend("cable").name == "cable"
        assert len(registry().problems) == 1
