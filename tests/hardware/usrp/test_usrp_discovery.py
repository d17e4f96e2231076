"""What `airdp radios` and `airdp doctor` say of USRPs: virtual ones, asked as real ones are."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fl.cli.main import main
from hardware.lab.requirements import Requirement
from hardware.radio.errors import HardwareError
from hardware.usrp import backend, discovery
from hardware.usrp.discovery import describe, find_usrps
from hardware.virtual.process import EmulatorProcess, emulator_process
from hardware.virtual.usrp2.side_channel import ask
from tests.conftest import REPOSITORY
from tests.hardware.usrps import BACKEND, lab_of
from tests.uhd_needed import needs_uhd

NOBODY = "addr=127.9.9.9"


@pytest.fixture(scope="module")
def served() -> Iterator[EmulatorProcess]:
    with emulator_process(BACKEND, lab_of(), seed=1) as process:
        yield process


@needs_uhd
def test_the_command_tells_all_that_a_box_says(served: EmulatorProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["radios", "--uri", served.uris["receiver"], "--json"]) == 0
    (radio,) = json.loads(capsys.readouterr().out)["radios"]
    assert (radio["model"], radio["serial"], radio["uris"]) == ("N210r4", "A1D00001", [served.uris["receiver"]])
    assert radio["firmware"] == "fw 12.4, fpga 11.0"
    can = radio["capabilities"]
    # An SBX: 400 MHz to 4.4 GHz, 31.5 dB in steps of half a decibel, and what the converter amplifies besides.
    assert (can["center_hz"], can["tx_gain_step_db"]) == ([400e6, 4400e6], 0.5)
    assert can["rx_gain_db"][0] == 0.0
    assert can["sample_rate_hz"] == [pytest.approx(100e6 / 512), 50e6]
    details = radio["details"]
    assert details["daughterboard"] == "SBX v4 (0x0065) A1D00001 (receiver); SBX v4 (0x0064) A1D00001 (transmitter)"
    assert details["antennas"].startswith("TX/RX, RX2")
    assert details["clock"] == "internal, of internal, external, mimo"
    assert details["time"].startswith("none, of none, external")
    for sensor in ("ref_locked True", "mimo_locked True", "rx lo_locked True", "tx lo_locked True"):
        assert sensor in details["sensors"]


@needs_uhd
def test_a_lost_lock_is_seen(served: EmulatorProcess) -> None:
    uri = served.uris["sender"]
    ask(uri, ref_locked=0, lo_locked=0)
    try:
        said = describe(uri).details["sensors"]
    finally:
        ask(uri, ref_locked=1, lo_locked=1)
    assert "ref_locked False" in said
    assert "tx lo_locked False" in said


@needs_uhd
def test_the_table_is_for_people(served: EmulatorProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["radios", "--uri", served.uris["receiver"]]) == 0
    told = capsys.readouterr().out
    for expected in ("N210r4", "A1D00001", "SBX v4", "400 to 4400 MHz", "external"):
        assert expected in told


@needs_uhd
def test_those_that_answer_are_found_and_those_that_do_not_are_named(
    served: EmulatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_addresses", lambda: [served.uris["receiver"], NOBODY])
    found, problems = find_usrps()
    assert [radio.serial for radio in found] == ["A1D00001"]
    (problem,) = problems
    assert f"cannot be reached at {NOBODY}" in problem
    with pytest.raises(HardwareError, match="cannot be reached"):
        describe(NOBODY)


SEARCH = """
import subprocess, sys
from hardware.lab.file import find_lab
from hardware.virtual.usrp2.emulator import Emulator

for command in (
    "ip link set lo up",
    # libuhd asks the broadcast address of every interface but 127.0.0.1's: that of this one is the first box.
    "ip addr add 127.77.0.254/24 brd 127.77.0.1 dev lo label lo:1",
    "ip route del broadcast 127.77.0.1 table local dev lo",
):
    subprocess.run(command.split(), check=True)
with Emulator(find_lab("loopback"), seed=1, host_base="127.77.0.0"):
    # libuhd lets no other thread run while it asks.
    command = "import sys; from fl.cli.main import main; sys.exit(main(['radios', '--json']))"
    sys.exit(subprocess.run([sys.executable, "-c", command]).returncode)
"""


@needs_uhd
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="a network of its own needs root and `ip`")
def test_boxes_in_the_network_are_found_by_broadcasts() -> None:
    """In a network of its own, where nobody else's boxes are."""
    command = ["unshare", "--net", sys.executable, "-c", SEARCH]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100, cwd=REPOSITORY)
    if "unshare failed" in done.stderr:
        pytest.skip(f"this machine has no network namespaces: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    (radio,) = [one for one in json.loads(done.stdout)["radios"] if one["model"].startswith("N210")]
    assert (radio["uris"], radio["serial"]) == (["addr=127.77.0.1"], "A1D00001")


def test_boxes_are_called_by_their_address_in_the_network_or_else_by_their_serial_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = [
        {"type": "usrp2", "addr": "192.168.10.2", "serial": "A"},
        {"type": "b200", "serial": "B"},
        {"type": "usrp2", "addr": "", "serial": ""},
    ]

    def find(hint: str) -> list[Any]:
        assert hint == ""
        return [SimpleNamespace(to_dict=lambda box=box: box) for box in said]

    monkeypatch.setattr(discovery, "library", lambda: SimpleNamespace(find=find))
    assert list(discovery._scan()) == ["addr=192.168.10.2", "serial=B"]


def test_what_usrps_need_is_listed_with_the_commands_that_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {one.name: one for one in backend.BACKEND.requirements()}
    assert needed["uhd"].help == "sudo apt-get install python3-uhd uhd-host"
    assert needed["uhd_find_devices"].help == "sudo apt-get install uhd-host"
    for name, wanted in (("net.core.rmem_max", 50_000_000), ("net.core.wmem_max", 2_500_000)):
        if name in needed:
            assert needed[name].help == f"sudo sysctl -w {name}={wanted}"
            assert needed[name].present is (int(needed[name].detail.split()[0]) >= wanted)
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    tool: Requirement = next(one for one in backend.BACKEND.requirements() if one.name == "uhd_find_devices")
    assert not tool.present
