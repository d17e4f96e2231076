"""Virtual USRPs as Debian's unmodified programs of uhd-host see them."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hardware.virtual.process import EmulatorProcess, emulator_process
from hardware.virtual.usrp2.side_channel import ask
from tests.gnuradio_needed import needs_gnuradio
from tests.hardware.virtual.usrp2.uhd_client import make_lab
from tests.uhd_needed import EXAMPLES, needs_uhd

pytestmark = needs_uhd
UTILITIES = EXAMPLES.parent / "utils"


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


@contextmanager
def one_burst_more(uri: str) -> Iterator[None]:
    """The box acknowledges one burst. The programs wait a tenth of a second for that, which a busy machine may take."""
    before = ask(uri)
    yield
    deadline_s = time.monotonic() + 60
    while (after := ask(uri))["bursts"] == before["bursts"]:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    damages = ("late", "underflows", "out_of_sequence")
    assert [after[name] - before[name] for name in ("bursts", *damages)] == [1, 0, 0, 0]


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


def test_the_vendors_burners_write_memories(server: EmulatorProcess) -> None:
    uri = server.uris["client-1"]
    said(str(UTILITIES / "usrp_burn_mb_eeprom"), "--args", uri, "--values", "name=renamed")
    assert "name: renamed" in said("uhd_find_devices", "--args", uri)
    burner = (str(UTILITIES / "usrp_burn_db_eeprom"), "--args", uri, "--slot", "A", "--unit", "RX")
    told = said(*burner, "--ser", "B0A2D")
    assert 'Current ID: SBX v4 (0x0065)\n  Current serial: "B0A2D"' in told.partition("Reading RX EEPROM")[2]
    said(str(UTILITIES / "usrp_burn_mb_eeprom"), "--args", uri, "--values", "name=client-1")


def test_pins_of_the_daughterboard(server: EmulatorProcess) -> None:
    """What they are while the radio idles, receives, sends and does both."""
    assert "All tests passed!" in example("gpio", "--args", server.uris["ps"])


def test_several_boxes_receive_from_one_pulse_on(server: EmulatorProcess) -> None:
    addresses = ",".join(f"addr{i}={uri.removeprefix('addr=')}" for i, uri in enumerate(server.uris.values()))
    options = ("--sync", "pps", "--nsamps", "20000", "--rate", "1e6", "--channels", "0,1")
    assert "Done!" in example("rx_multi_samples", "--args", addresses, *options)


def test_bursts_are_acknowledged(server: EmulatorProcess) -> None:
    with one_burst_more(server.uris["ps"]):
        example("tx_bursts", "--args", server.uris["ps"], "--rate", "1e6", "--freq", "2.45e9", "--nsamps", "10000")


def test_rx_timed_samples(server: EmulatorProcess) -> None:
    assert "Done!" in example("rx_timed_samples", "--args", server.uris["ps"], "--nsamps", "50000", "--secs", "0.5")


def test_tx_timed_samples(server: EmulatorProcess) -> None:
    options = ("--args", server.uris["ps"], "--nsamps", "50000", "--secs", "0.5", "--rate", "1e6")
    with one_burst_more(server.uris["ps"]):
        assert "Waiting for async burst ACK" in example("tx_timed_samples", *options)


def test_test_pps_input(server: EmulatorProcess) -> None:
    assert "Success!" in example("test_pps_input", "--args", server.uris["ps"], "--source", "external")


def test_test_timed_commands(server: EmulatorProcess) -> None:
    told = example("test_timed_commands", "--args", server.uris["ps"])
    assert "pass" in told
    assert "fail" not in told


def test_tx_waveforms(server: EmulatorProcess) -> None:
    options = ("--args", server.uris["ps"], "--rate", "1e6", "--freq", "2.45e9", "--nsamps", "100000")
    assert "Done!" in example("tx_waveforms", *options)


def test_rx_samples_to_file(server: EmulatorProcess, tmp_path: Path) -> None:
    file = tmp_path / "samples"
    options = ("--args", server.uris["ps"], "--rate", "1e6", "--freq", "2.45e9", "--nsamps", "100000")
    example("rx_samples_to_file", *options, "--file", str(file), "--setup", "0.1")
    assert file.stat().st_size == 4 * 100000


def test_benchmark_rate_loses_nothing_in_lockstep(server: EmulatorProcess) -> None:
    options = ("--args", server.uris["ps"], "--rx_rate", "1e6", "--tx_rate", "1e6", "--duration", "1")
    told = example("benchmark_rate", *options)
    for what in ("dropped samples", "overruns detected", "underruns detected", "late commands", "timeouts (Rx)"):
        assert re.search(rf"{re.escape(what)}: +0\b", told, re.IGNORECASE), told


@needs_gnuradio
def test_gr_uhd_receives_what_it_sends(server: EmulatorProcess) -> None:
    """A tone from one box's sink to another's source, in a process of its own: libuhd is not for two of them."""
    script = """
import sys, time, numpy as np
from gnuradio import analog, blocks, gr, uhd
sender, receiver = sys.argv[1:]
graph = gr.top_block()
sink = uhd.usrp_sink(sender, uhd.stream_args("fc32", "sc16"))
source = uhd.usrp_source(receiver, uhd.stream_args("fc32", "sc16"))
for end in (sink, source):
    end.set_samp_rate(1e6)
    end.set_center_freq(2.45e9)
sink.set_gain(31.5)
source.set_gain(0)
head, heard = blocks.head(gr.sizeof_gr_complex, 200000), blocks.vector_sink_c()
graph.connect(analog.sig_source_c(1e6, analog.GR_COS_WAVE, 1e5, 0.25), sink)
graph.connect(source, head, heard)
graph.start()
deadline = time.monotonic() + 60
while len(heard.data()) < 200000 and time.monotonic() < deadline:
    time.sleep(0.05)
graph.stop()
graph.wait()
samples = np.array(heard.data())[-50000:]
print(len(heard.data()), np.abs(np.fft.fft(samples)).argmax() / 50000 * 1e6, np.abs(samples).mean())
"""
    told = said(sys.executable, "-c", script, server.uris["client-1"], server.uris["ps"])
    count, frequency_hz, amplitude = (float(word) for word in told.strip().splitlines()[-1].split())
    assert (count, frequency_hz) == (200000, 1e5)
    assert abs(amplitude - 0.25) < 0.001
