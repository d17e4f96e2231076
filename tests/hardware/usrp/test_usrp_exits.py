"""However a program ends, its boxes are left parked, and where it could do nothing they fall silent by themselves."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from hardware.lab.file import find_lab, parse_lab
from hardware.virtual.process import EmulatorProcess, emulator_process
from hardware.virtual.usrp2.side_channel import ask
from tests.conftest import REPOSITORY
from tests.hardware.exits import EXITS, leave
from tests.hardware.usrps import BACKEND, assert_silent
from tests.uhd_needed import needs_uhd

pytestmark = needs_uhd


def tables() -> dict[str, Any]:
    """A client, a jammer and a server: every box takes seconds to open and to close."""
    found = find_lab(BACKEND).to_tables()
    found["radio"] = [radio for radio in found["radio"] if radio["name"] not in {"client-2", "client-3"}]
    return found


@pytest.fixture(scope="module")
def served() -> Iterator[EmulatorProcess]:
    with emulator_process(BACKEND, parse_lab(tables()), seed=1) as process:
        yield process


@pytest.fixture(scope="module")
def lab_file(served: EmulatorProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The boxes as the driver of real ones reaches them, by their addresses."""
    made = tables()
    made["lab"]["backend"] = "usrp"
    for radio in made["radio"]:
        radio["address"] = served.uris[radio["name"]]
    # A busy machine is not what is tested.
    made["usrp"]["lead_s"] = 1.0
    file = tmp_path_factory.mktemp("lab") / "lab.toml"
    file.write_text(tomli_w.dumps(made))
    return file


@pytest.mark.parametrize(("way", "number", "code"), EXITS[1:])
def test_every_exit(
    served: EmulatorProcess, lab_file: Path, tmp_path: Path, way: str, number: signal.Signals | None, code: int
) -> None:
    leave(tmp_path, lab_file, way, number, code)
    assert_silent(served.uris)


def test_after_a_program_that_was_killed_boxes_fall_silent_and_the_next_one_parks_them(
    served: EmulatorProcess, lab_file: Path, tmp_path: Path
) -> None:
    leave(tmp_path, lab_file, "wait", signal.SIGKILL, -signal.SIGKILL)
    deadline_s = time.monotonic() + 30
    while radiating(served.uris) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not radiating(served.uris)
    assert ask(served.uris["client-1"])["tx_gain_db"] == 0.0
    leave(tmp_path, lab_file, "exception", None, 1)
    assert_silent(served.uris)


KILL = """
import os, signal, sys
import hardware.virtual.process
from hardware.lab.file import find_lab
from hardware.lab.opened import open_lab
from hardware.radio.errors import HardwareError

served = []
made = hardware.virtual.process.EmulatorProcess
hardware.virtual.process.EmulatorProcess = lambda *arguments: served.append(made(*arguments)) or served[0]
try:
    with open_lab(find_lab(sys.argv[1]), 1) as lab:
        lab.ready()
        os.kill(served[0].pid, signal.SIGKILL)
        served[0].process.wait()
        lab.ps.receive(3000, lab.ps.now())
except HardwareError as error:
    print(error)
"""


def test_an_emulator_that_is_killed_is_named_and_libuhd_ends_nobody(tmp_path: Path) -> None:
    """To a port that nobody has open libuhd sends once, and then ends the process that it is in."""
    made = tables()
    made["radio"] = [radio for radio in made["radio"] if radio["name"] != "jammer"]
    file = tmp_path / "lab.toml"
    file.write_text(tomli_w.dumps(made))
    done = subprocess.run(
        [sys.executable, "-c", KILL, str(file)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=REPOSITORY,
    )
    assert done.returncode == 0, done.stderr
    assert "emulator of " in done.stdout, done.stderr
    assert "was killed by SIGKILL: its radios are gone" in done.stdout


def radiating(uris: Mapping[str, str]) -> bool:
    states = [ask(uri) for uri in uris.values()]
    return any(state["tx_power"] > 0.0 or state["transmitting"] for state in states)
