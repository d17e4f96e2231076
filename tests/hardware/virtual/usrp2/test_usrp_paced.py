"""Virtual USRPs in real time: whoever is late is told so, as by a real box, however slow the machine is."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from hardware.virtual.process import EmulatorProcess, emulator_process
from hardware.virtual.usrp2.side_channel import ask
from tests.hardware.virtual.usrp2.uhd_client import RATE_HZ, TICK_RATE_HZ, Box, make_lab, open_box
from tests.uhd_needed import needs_uhd

pytestmark = needs_uhd

BURST = np.full(5000, 0.25, np.complex64)
SOCKET_BYTES = 100_000


@pytest.fixture(scope="module")
def server() -> Iterator[EmulatorProcess]:
    with emulator_process("usrp-virtual", make_lab(1), seed=1, paced=True) as process:
        yield process


@pytest.fixture
def uri(server: EmulatorProcess) -> str:
    return server.uris["ps"]


@pytest.fixture(scope="module")
def box(server: EmulatorProcess) -> Iterator[Box]:
    box = open_box(server.uris["ps"], arguments=f"recv_buff_size={SOCKET_BYTES}")
    yield box
    box.close()


def test_time_goes_on_whoever_waits(uri: str) -> None:
    state = ask(uri)
    assert state["mode"] == "paced"
    deadline_s = time.monotonic() + 60
    while ask(uri)["ticks"] < state["ticks"] + TICK_RATE_HZ / 2:
        assert time.monotonic() < deadline_s


def test_a_late_burst_is_told_so_and_radiates_nothing(box: Box, uri: str) -> None:
    before = ask(uri)
    box.send(BURST, box.now() - round(TICK_RATE_HZ / 100))
    assert box.event()[0] == "time_error"
    after = ask(uri)
    assert (after["late"], after["bursts"]) == (before["late"] + 1, before["bursts"])


def test_a_burst_whose_samples_do_not_come_runs_dry(box: Box, uri: str) -> None:
    """In lockstep time would wait for them."""
    before = ask(uri)["underflows"]
    box.send(BURST, box.now() + round(TICK_RATE_HZ / 2), end=False)
    assert box.event(60.0)[0] == "underflow"
    assert ask(uri)["underflows"] == before + 1
    # Ends what the box still drops.
    box.send(BURST[:1], None)


def test_a_late_capture_is_told_so(box: Box) -> None:
    box.ask(1000, box.now() - round(TICK_RATE_HZ / 100))
    assert box.take(1000)[2] == "late"


def test_who_does_not_read_loses_samples_and_is_told_so(box: Box, uri: str) -> None:
    """In lockstep time would stand still. Packets are counted with four bits: one loss in 16 shows by ticks only."""
    box.ask(0, None, "start_cont")
    told = set[str]()
    for _ in range(8):
        told |= {box.take(4096)[2] for _ in range(200)}
        if "lost" in told:
            break
        unread(uri, 20 * SOCKET_BYTES // 4)
    assert "lost" in told
    box.ask(0, None, "stop_cont")
    while box.take(4096, 0.2)[2] != "timeout":
        pass


def unread(uri: str, samples: int) -> None:
    """Let so many come that nobody takes."""
    wanted = ask(uri)["ticks"] + samples / RATE_HZ * TICK_RATE_HZ
    deadline_s = time.monotonic() + 60
    while ask(uri)["ticks"] < wanted:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
