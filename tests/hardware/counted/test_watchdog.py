"""Lost samples that nothing but the wall clock tells of."""

import numpy as np
import pytest

from hardware.counted.watchdog import Watchdog

BLOCK = 1000
RATE_HZ = 1e6


def clocked(arrivals_s: list[float]) -> list[int]:
    """Missing samples after each block."""
    watchdog = Watchdog(RATE_HZ, queue_samples=4 * BLOCK)
    return [watchdog.missing((index + 1) * BLOCK, time_s) for index, time_s in enumerate(arrivals_s)]


def test_a_stream_that_keeps_step_misses_nothing() -> None:
    """Crystals 50 ppm off, and a host that is late by up to what the queue holds."""
    rng = np.random.default_rng(3)
    exact = np.arange(1, 20_001) * (BLOCK / RATE_HZ) * (1 + 50e-6)
    for late in (np.zeros(exact.size), rng.uniform(0.0, 4e-3, exact.size)):
        assert not any(clocked(np.maximum.accumulate(exact + late).tolist()))


def test_samples_that_are_lost_show_once() -> None:
    """100 blocks of 1 ms are lost in the middle; what the queue and the host may hold is 4 + 50."""
    times = [0.001 * block for block in range(500)] + [0.001 * block for block in range(600, 1000)]
    missing = clocked(times)
    assert sum(count > 0 for count in missing) == 1
    assert missing[500] == pytest.approx(100 * BLOCK, rel=0.01)


def test_losses_too_small_to_be_told_from_delays_add_up() -> None:
    times, now_s = [], 0.0
    for block in range(4000):
        now_s += 0.001 + (0.020 if block % 1000 == 500 else 0.0)
        times.append(now_s)
    assert sum(count > 0 for count in clocked(times)) == 1
