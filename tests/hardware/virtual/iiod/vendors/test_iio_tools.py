"""The command-line tools of libiio, unmodified, against virtual radios."""

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.hardware.virtual.iiod.raw_client import PHY, RATE_HZ, RX, TX, Bench, as_words, bench, tone

TOOLS = ("iio_info", "iio_attr", "iio_readdev", "iio_writedev", "iio_reg")
pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in TOOLS),
    reason="the tools of libiio are missing: apt-get install --no-install-recommends libiio-utils libiio0",
)


@pytest.fixture
def running() -> Iterator[Bench]:
    with bench() as emulator:
        yield emulator


def call(*command: str, given: bytes = b"") -> bytes:
    outcome = subprocess.run(command, input=given, capture_output=True, timeout=240, check=False)
    assert outcome.returncode == 0, outcome.stderr.decode()
    assert b"rror" not in outcome.stderr, outcome.stderr.decode()
    return outcome.stdout


def test_iio_info_finds_everything(running: Bench) -> None:
    text = call("iio_info", "-u", running.emulator.uris["ps"]).decode()
    assert "airdp,virtual: lockstep" in text
    assert "IIO context has 5 devices" in text
    assert "cf-ad9361-lpc (buffer capable)" in text
    assert "altvoltage0: RX_LO (output)" in text
    assert "frequency value: 2450000000" in text
    assert "airdp_tx_power value: 0" in text
    # What a real Pluto refuses as well, and nothing else.
    refused = [line.split(":")[1].split()[0] for line in text.splitlines() if "ERROR" in line]
    assert set(refused) == {"fastlock_recall", "dcxo_tune_coarse", "dcxo_tune_fine", "multichip_sync", "samples_pps"}


def test_iio_info_on_another_port() -> None:
    from hardware.virtual.iiod.emulator import Emulator
    from tests.hardware.virtual.iiod.raw_client import make_lab

    with Emulator(make_lab(), seed=1, port=30999) as emulator:
        assert emulator.uris["ps"].endswith(":30999")
        assert b"ad9361-phy" in call("iio_info", "-u", emulator.uris["ps"])


def test_iio_attr_writes_and_reads(running: Bench) -> None:
    uri = running.emulator.uris["ps"]
    call("iio_attr", "-u", uri, "-o", "-c", PHY, "TX_LO", "frequency", "2412000000")
    assert call("iio_attr", "-u", uri, "-o", "-c", PHY, "TX_LO", "frequency").strip() == b"2412000000"
    call("iio_attr", "-u", uri, "-d", PHY, "ensm_mode", "alert")
    assert call("iio_attr", "-u", uri, "-d", PHY, "ensm_mode").strip() == b"alert"
    call("iio_attr", "-u", uri, "-D", PHY, "loopback", "1")
    assert call("iio_attr", "-u", uri, "-D", PHY, "loopback").strip() == b"1"
    refused = subprocess.run(
        ["iio_attr", "-u", uri, "-o", "-c", PHY, "TX_LO", "frequency", "1"],
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert b"Invalid argument" in refused.stderr + refused.stdout


def test_iio_reg_reads_and_clears_the_status(running: Bench) -> None:
    uri = running.emulator.uris["ps"]
    client = running.connect("ps")
    client.set(f"{PHY} DEBUG airdp_drop_rx_buffers", 1)
    client.open_rx(100)
    assert int(call("iio_reg", "-u", uri, RX, "0x80000088"), 0) == 4
    call("iio_reg", "-u", uri, RX, "0x80000088", "0x4")
    assert int(call("iio_reg", "-u", uri, RX, "0x80000088"), 0) == 0


def test_iio_readdev_hears_what_a_cyclic_iio_writedev_sends(running: Bench) -> None:
    uris = running.emulator.uris
    control = running.connect("client-1")
    control.set(f"{PHY} OUTPUT voltage0 hardwaregain", 0)
    wave = as_words(tone(400, 0.05, 0.5))
    with subprocess.Popen(
        ["iio_writedev", "-u", uris["client-1"], "-c", "-b", "400", TX],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as writer:
        assert writer.stdin is not None
        writer.stdin.write(wave.tobytes())
        writer.stdin.close()
        deadline = time.monotonic() + 20
        while float(control.debug("airdp_tx_power")) == 0.0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        data = call("iio_readdev", "-u", uris["ps"], "-b", "1000", "-s", "4000", RX)
        writer.send_signal(signal.SIGINT)
    heard = np.frombuffer(data, np.int16).astype(np.float32).view(np.complex64) / 2048
    assert heard.size == 4000
    assert np.abs(heard - np.resize(tone(400, 0.05, 0.5), 4000)).max() < 1 / 2048
    assert control.debug("airdp_tx_power") == "0"


def test_iio_writedev_streams_to_iio_readdev(running: Bench) -> None:
    """Both opened before anything is sent, so that nothing is sent into the void."""
    uris = running.emulator.uris
    control = running.connect("client-1")
    control.set(f"{PHY} OUTPUT voltage0 hardwaregain", 0)
    wave = as_words(np.concatenate([tone(5000, 0.01 * number, 0.1 * number) for number in range(1, 9)]))
    writer = subprocess.Popen(
        ["iio_writedev", "-u", uris["client-1"], "-b", "1000", TX], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_for(running, "client-1", tx_buffers=1)
    reader = subprocess.Popen(
        ["iio_readdev", "-u", uris["ps"], "-b", "2500", "-s", "40000", RX],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_for(running, "ps", rx_buffers=1)
    assert writer.stdin is not None
    writer.stdin.write(wave.tobytes())
    writer.stdin.flush()
    data, _ = reader.communicate(timeout=240)
    writer.communicate(timeout=240)
    heard = np.frombuffer(data, np.int16).reshape(-1, 2)
    assert np.abs(heard - wave / 8).max() <= 0.5


def wait_for(running: Bench, radio: str, **buffers: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        status = next(status for status in running.emulator.status() if status.name == radio)
        if all(getattr(status, name) == count for name, count in buffers.items()):
            return
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("tool", ["iio_readdev", "iio_writedev"])
def test_a_tool_that_is_killed_leaves_its_radio_free(running: Bench, tool: str) -> None:
    uri = running.emulator.uris["ps"]
    device, kind = (RX, "rx_buffers") if tool == "iio_readdev" else (TX, "tx_buffers")
    # Its output is not read, or its input has no end: it is in the middle of something.
    with subprocess.Popen(
        [tool, "-u", uri, "-b", "65536", device],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_for(running, "ps", **{kind: 1})
        process.kill()
    wait_for(running, "ps", rx_buffers=0, tx_buffers=0)
    assert len(call("iio_readdev", "-u", uri, "-b", "1000", "-s", "1000", RX)) == 4000
    running.connect("ps").open_tx(100)


def test_the_sample_rate_is_the_labs(running: Bench) -> None:
    text = call("iio_attr", "-u", running.emulator.uris["client-2"], "-i", "-c", RX, "voltage0", "sampling_frequency")
    assert float(text) == RATE_HZ
