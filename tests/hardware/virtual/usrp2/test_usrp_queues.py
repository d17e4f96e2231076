"""Parts of a virtual USRP at the edges of what clients say: bursts with holes, oscillators, captures without an end."""

import threading
import time
from datetime import UTC, datetime

import numpy as np
import pytest

from hardware.lab.file import find_lab
from hardware.virtual.usrp2.device.clock import Clock
from hardware.virtual.usrp2.device.gpsdo import Gpsdo
from hardware.virtual.usrp2.device.registers import TICKS_PER_S
from hardware.virtual.usrp2.device.synthesiser import Synthesiser
from hardware.virtual.usrp2.emulator import Emulator
from hardware.virtual.usrp2.radio import VirtualUsrp
from hardware.virtual.usrp2.side_channel import ask
from hardware.virtual.usrp2.tx_queue import ACKNOWLEDGED, LATE, UNDERFLOW, TxQueue
from hardware.virtual.usrp2.wire.vrt import TxPacket

STEP = 25
BEGIN = 1000 * STEP
NEXT_BURST = 1 << 2
LONGEST_COMMAND = (1 << 28) - 1
AT_ONCE = 1 << 31


def new_box() -> VirtualUsrp:
    return VirtualUsrp(find_lab("usrp-virtual").ps, threading.Lock(), 1.0)


class Queue:
    """A transmit queue, and the codes of what it has reported."""

    def __init__(self, policy: int = NEXT_BURST) -> None:
        self.clock = Clock(1.0)
        self.clock.step = STEP
        self.clock.move(BEGIN)
        self.said: list[int] = []
        self.tx = TxQueue(self.clock, lambda report: self.said.append(report[19]))
        self.tx.policy, self.tx.scale = policy, 1.0
        self._counter = 0

    def push(self, samples: int, ticks: int | None, *, end: bool = False) -> None:
        payload = np.full(2 * samples, 1, ">i2").tobytes()
        self.tx.push(TxPacket(self._counter, self._counter & 0xF, ticks, False, end, memoryview(payload)))
        self._counter += 1

    def run(self, samples: int) -> int:
        """Let so many pass; how many left."""
        left = 0
        for _ in range(samples):
            while self.tx.settle() or self.tx.skip_empty():
                pass
            if self.tx.active and self.tx.ready:
                left += self.tx.take(1) is not None
            self.clock.move(self.clock.count + STEP)
        return left


def test_packets_of_a_burst_go_on_whatever_their_times_say_within_a_sample() -> None:
    queue = Queue()
    queue.push(10, BEGIN)
    queue.push(0, BEGIN + 10 * STEP)
    queue.push(10, BEGIN + 10 * STEP + 1)
    queue.push(10, BEGIN, end=True)
    assert queue.run(100) == 30
    assert queue.said == [ACKNOWLEDGED]


@pytest.mark.parametrize(
    ("policy", "left", "said"), [(NEXT_BURST, 10, [UNDERFLOW]), (0, 20, [UNDERFLOW, ACKNOWLEDGED])]
)
def test_a_hole_in_a_burst_is_an_underflow_though_its_other_end_is_there(
    policy: int, left: int, said: list[int]
) -> None:
    """As samples that were not there in time: what comes after them is dropped, or goes at its own time."""
    queue = Queue(policy)
    queue.push(10, BEGIN)
    queue.push(10, BEGIN + 50 * STEP, end=True)
    assert queue.run(40) == 10
    assert queue.run(60) == left - 10
    assert queue.said == said
    queue.push(5, BEGIN + 200 * STEP, end=True)
    assert queue.run(200) == 5
    assert queue.said == [*said, ACKNOWLEDGED]


def test_an_empty_packet_that_is_early_stops_nothing() -> None:
    queue = Queue()
    queue.push(10, None)
    queue.push(0, BEGIN + 1000 * STEP)
    queue.push(10, None, end=True)
    assert queue.run(100) == 10
    assert queue.said == [UNDERFLOW]


def test_a_burst_that_has_not_begun_is_late() -> None:
    queue = Queue()
    queue.push(10, BEGIN - 2 * STEP, end=True)
    assert queue.run(100) == 0
    assert queue.said == [LATE]


@pytest.mark.parametrize("word", [0, 0xFFFF8000 | 0x7FF8, 8])
def test_an_oscillator_stays_within_its_range_whatever_it_is_told(word: int) -> None:
    oscillator = Synthesiser()
    for number in (5, 4, 3, 2, 1):
        oscillator.write(number)
    oscillator.write(word)
    assert 400e6 <= oscillator.frequency_hz <= 4.4e9


@pytest.mark.parametrize(("hours", "skipped"), [(0.9, True), (1.1, False), (1e9, False)])
def test_the_wait_for_a_capture_is_skipped_unless_it_is_absurd(hours: float, skipped: bool) -> None:
    box = new_box()
    box.rx[0].command(1000, box.clock.now + round(hours * 3600 * TICKS_PER_S))
    assert box.expects is skipped


def test_a_gpsdo_counts_weeks_as_satellites_do() -> None:
    gpsdo = Gpsdo(datetime(2026, 1, 1, tzinfo=UTC))
    assert gpsdo.sentences(3) == gpsdo.sentences(3 + 1024 * 7 * 86400 * 10**9)
    assert gpsdo.sentences(3) != gpsdo.sentences(4)


def test_a_capture_of_minutes_keeps_nobody_waiting() -> None:
    """Nobody reads it: time runs as fast as it can, between what clients say."""
    with Emulator(find_lab("usrp-virtual"), seed=1) as emulator:
        box = emulator._virtual.radios["ps"]
        with emulator._virtual.lock:
            box.rx[0].command(AT_ONCE | LONGEST_COMMAND, 0)
        deadline_s = time.monotonic() + 60
        while box.streamed_samples < 100_000:
            assert time.monotonic() < deadline_s
            time.sleep(0.001)
        uri = emulator.uris["client-1"]
        first, second = ask(uri)["ticks"], ask(uri)["ticks"]
        assert first < second
        assert ask(emulator.uris["ps"])["receiving"]
