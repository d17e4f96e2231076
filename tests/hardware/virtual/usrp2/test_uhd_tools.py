"""Virtual USRPs as Debian's unmodified programs of uhd-host see them."""

import subprocess
from collections.abc import Iterator

import pytest

from hardware.virtual.process import EmulatorProcess, emulator_process
from tests.hardware.virtual.usrp2.uhd_client import make_lab
from tests.uhd_needed import EXAMPLES, needs_uhd

pytestmark = needs_uhd


@pytest.fixture(scope="module")
def server() -> Iterator[EmulatorProcess]:
    with emulator_process("usrp-virtual", make_lab(1), seed=1) as process:
        yield process


def said(*command: str) -> str:
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def example(name: str, *options: str) -> str:
    return said(str(EXAMPLES / name), *options)


def test_uhd_find_devices_finds_each_box(server: EmulatorProcess) -> None:
    for number, (name, uri) in enumerate(server.uris.items(), start=1):
        found = said("uhd_find_devices", "--args", uri)
        assert f"serial: A1D0000{number}" in found
        assert f"name: {name}" in found
        assert "type: usrp2" in found


def test_uhd_usrp_probe_finds_an_n210_with_an_sbx(server: EmulatorProcess) -> None:
    found = said("uhd_usrp_probe", "--args", server.uris["ps"])
    for expected in (
        "Mboard: N210r4",
        "FPGA Version: 11.0",
        "SBX v4 (0x0065)",
        "SBX v4 (0x0064)",
        "Freq range: 400.000 to 4400.000 MHz",
        "Gain range PGA0: 0.0 to 31.5 step 0.5 dB",
        "Sensors: mimo_locked, ref_locked",
    ):
        assert expected in found


def test_rx_timed_samples(server: EmulatorProcess) -> None:
    assert "Done!" in example("rx_timed_samples", "--args", server.uris["ps"], "--nsamps", "50000", "--secs", "0.5")


def test_tx_timed_samples(server: EmulatorProcess) -> None:
    options = ("--args", server.uris["ps"], "--nsamps", "50000", "--secs", "0.5", "--rate", "1e6")
    told = example("tx_timed_samples", *options)
    assert "Got async burst ACK message" in told or "Waiting for async burst ACK... success" in told


def test_test_pps_input(server: EmulatorProcess) -> None:
    assert "Success!" in example("test_pps_input", "--args", server.uris["ps"], "--source", "external")


def test_test_timed_commands(server: EmulatorProcess) -> None:
    told = example("test_timed_commands", "--args", server.uris["ps"])
    assert "pass" in told
    assert "fail" not in told
