"""Paths that are learnt from what was sent and received."""

import numpy as np
import pytest

from fl.audit.paths import EARLIEST, TAPS, FilteredPath, SimulatedPath, StillPath, Window, learn_paths
from fl.audit.watch import Burst
from hardware.lab.file import find_lab
from hardware.lab.opened import open_lab


def noise(rng: np.random.Generator, count: int) -> np.ndarray:
    return ((rng.standard_normal(count) + 1j * rng.standard_normal(count)) / np.sqrt(2)).astype(np.complex64)


def test_filters_of_two_senders_are_told_apart() -> None:
    rng = np.random.default_rng(1)
    true = []
    for delay, gain in ((3, 0.5), (-2, 0.2j)):
        taps = np.zeros(TAPS, np.complex128)
        taps[delay - EARLIEST], taps[delay - EARLIEST + 5] = gain, 0.3 * gain
        true.append(FilteredPath(taps))
    lessons, starts = [], []
    for start in (1000, 9000, 20_000):
        window = Window(start, 1500)
        bursts = [Burst(noise(rng, 900), start + 200, 0), Burst(noise(rng, 1100), start + 107, 7)]
        heard = sum(path.heard(burst, window) for path, burst in zip(true, bursts, strict=True))
        lessons.append((bursts, np.asarray(heard + 0.01 * noise(rng, 1500), np.complex64)))
        starts.append(start)
    learnt = learn_paths(lessons, starts)
    for path, expected in zip(learnt, true, strict=True):
        # 3 x 900 samples of unit power in noise of 1e-4: each tap is known to 2e-4.
        assert np.abs(path.taps - expected.taps).max() < 5 * 2.5e-4


def test_a_burst_is_heard_where_the_window_is() -> None:
    taps = np.zeros(TAPS, np.complex128)
    taps[-EARLIEST] = 2.0
    path = FilteredPath(taps)
    burst = Burst(np.arange(1, 5, dtype=np.complex64), 105, 5)
    assert path.heard(burst, Window(98, 5)) == pytest.approx(np.array([0, 0, 2, 4, 6]))
    assert path.heard(burst, Window(102, 4)) == pytest.approx(np.array([6, 8, 0, 0]))
    assert not path.heard(burst, Window(0, 50)).any()


def test_two_impulse_responses_are_the_whole_of_a_still_path() -> None:
    """Multipath, fractional delay and the images of both mixers; a free clock is no such path."""
    rng = np.random.default_rng(2)
    burst, window = Burst(0.1 * noise(rng, 1200), 3000), Window(2800, 1700)
    with open_lab(find_lab("loopback-harsh"), 1) as lab:
        path = SimulatedPath(lab, 1, 5, "client-2", "ps")
        assert path.still
        heard = path.heard(burst, window)
        found = StillPath.of(path).heard(burst, window)
        assert np.linalg.norm(found - heard) < 1e-5 * np.linalg.norm(heard)
        without = StillPath.of(SimulatedPath(lab, 1, 5, "client-2", "ps", image=False)).heard(burst, window)
        # The receiver's image, at -35 dB.
        assert np.linalg.norm(without - heard) == pytest.approx(10 ** (-35 / 20) * np.linalg.norm(heard), rel=0.1)
    with open_lab(find_lab("loopback-free-clock"), 1) as lab:
        assert not SimulatedPath(lab, 1, 5, "client-2", "ps").still
