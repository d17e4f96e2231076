"""Virtual radios whose time follows the wall clock: buffers that are not served in time lose samples."""

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.hardware.virtual.iiod.raw_client import (
    OVERFLOW,
    PHY,
    RX,
    TX,
    UNDERFLOW,
    Bench,
    RawClient,
    as_words,
    bench,
    make_lab,
    on_levels,
    tone,
)

RATE_HZ = 1e6


def soon(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def running() -> Iterator[Bench]:
    with bench(make_lab(1, rate_hz=RATE_HZ), paced=True) as emulator:
        yield emulator


def now(client: RawClient) -> int:
    return int(client.debug("airdp_time"))


def test_time_goes_on_by_itself_and_never_ahead_of_the_wall_clock(running: Bench) -> None:
    client = running.connect("ps")
    started, first = time.monotonic(), now(client)
    soon(lambda: now(client) > first + 20_000)
    last = now(client)
    assert last - first <= (time.monotonic() - started) * RATE_HZ + 0.01 * RATE_HZ
    length = client.command("PRINT")
    assert b'name="airdp,virtual" value="paced"' in client.take(length + 1)


def test_a_reader_that_is_late_loses_whole_blocks(running: Bench) -> None:
    """The sender's samples say when they were sent: a block's samples are consecutive, and between blocks is a gap."""
    sender, receiver = running.sender(256, cyclic=True), running.connect("ps")
    ramp = (np.arange(256) - 128) / 256 + 0j
    sender.write_samples(ramp)
    assert receiver.status(RX) == 0
    receiver.open_rx(1000)
    soon(lambda: receiver.status(RX) == OVERFLOW)
    heard = np.concatenate([receiver.read_words(1000)[:, 0] for _ in range(12)]).reshape(12, 1000)
    steps = np.mod(np.diff(heard // 8, axis=1), 256)
    assert (steps == 1).all()
    joints = np.mod(heard[1:, 0] // 8 - heard[:-1, -1] // 8, 256)
    # The first four were queued without a gap.
    assert (joints[:3] == 1).all()
    assert running.emulator.status()[0].overflows > 0


def test_a_reader_in_time_loses_nothing(running: Bench) -> None:
    receiver = running.connect("ps")
    receiver.done(f"SET {RX} BUFFERS_COUNT 64")
    receiver.open_rx(20_000)
    for _ in range(8):
        receiver.read_words(20_000)
    assert receiver.status(RX) == 0


def test_a_transmitter_that_runs_dry_says_so_once_for_each_time(running: Bench) -> None:
    sender = running.sender(100)
    opened = now(sender)
    soon(lambda: now(sender) > opened + 10_000)
    # Nothing has been due yet.
    assert sender.status(TX) == 0
    for count in (1, 2):
        sender.write_samples(tone(100, 0.1))
        soon(lambda: sender.status(TX) == UNDERFLOW)
        assert sender.debug("airdp_tx_power") == "0"
        sender.set(f"{TX} DEBUG direct_reg_access", "0x80000088 0x1")
        assert running.emulator.status()[1].underflows == count


def test_a_transmitter_in_time_is_heard_without_a_gap(running: Bench) -> None:
    sender, receiver = running.connect("client-1"), running.connect("ps")
    sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", 0)
    receiver.done(f"SET {RX} BUFFERS_COUNT 64")
    receiver.open_rx(20_000)
    sender.open_tx(100_000)
    wave = as_words(on_levels(np.random.default_rng(1).uniform(-0.5, 0.5, 100_000) + 0.25j))
    assert sender.write_words(wave) == wave.nbytes
    parts = [receiver.read_words(20_000)]
    # Until it is silent again after the wave.
    while len(parts) < 2 or parts[-1].any() or not parts[-2].any():
        parts.append(receiver.read_words(20_000))
    heard = np.concatenate(parts)
    first = int(np.argmax(heard[:, 1] != 0))
    assert np.abs(heard[first : first + 100_000] - wave / 8).max() <= 0.5
    assert not heard[first + 100_000 :].any()
