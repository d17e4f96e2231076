"""A band of a signal at another rate. Oracle: the formula of a tone, which is known at every instant."""

import numpy as np
import pytest
from numpy.typing import NDArray

from phy.errors import SignalError
from phy.resampling import Band, take_band

Samples = NDArray[np.complex64]


def tone(count: int, cycles_per_sample: float, start: int = 0) -> Samples:
    return np.exp(2j * np.pi * cycles_per_sample * (start + np.arange(count))).astype(np.complex64)


@pytest.mark.parametrize("ratio", [1.0, 0.75, 4 / 3, 0.13, 7.3, 1 + 25e-6])
@pytest.mark.parametrize("delay", [0.0, 40.25])
def test_a_tone_in_the_band_has_its_value_at_every_instant(ratio: float, delay: float) -> None:
    start, half = 123_456, 0.5 * min(1.0, 1.0 / ratio)
    frequency = 0.5 * half
    values, first = take_band(tone(20_000, frequency, start), start, Band(-half, half), ratio, delay)
    # Away from the ends by what the kernel reaches.
    skip = int(2 * Band(-half, half).reach / ratio) + 1
    index = first + np.arange(values.size)
    exact = np.exp(2j * np.pi * frequency * ratio * (index - delay))
    assert values.size > 3 * skip
    assert np.abs(values - exact)[skip:-skip].max() < 1e-3


def test_what_is_outside_of_the_band_is_gone() -> None:
    band = Band(-0.1, 0.3)
    levels = {}
    for frequency in (-0.4, -0.2, 0.0, 0.2, 0.4):
        values, _ = take_band(tone(8000, frequency), 0, band, 1.0)
        levels[frequency] = float(np.abs(values[500:-500]).max())
    assert levels[0.0] == pytest.approx(1.0, abs=1e-3)
    assert levels[0.2] == pytest.approx(1.0, abs=1e-3)
    # 70 dB down.
    assert max(levels[-0.4], levels[-0.2], levels[0.4]) < 4e-4


def test_bursts_that_follow_each_other_add_up_to_one() -> None:
    rng = np.random.default_rng(1)
    samples = rng.standard_normal((6000, 2), np.float32).view(np.complex64).reshape(-1)
    band, ratio, delay = Band(-0.3, 0.3), 1.37, 12.5
    whole, first = take_band(samples, 1000, band, ratio, delay)
    total = np.zeros(whole.size + 2, np.complex64)
    for begin, end in ((0, 777), (777, 4000), (4000, 6000)):
        part, place = take_band(samples[begin:end], 1000 + begin, band, ratio, delay)
        total[place - first : place - first + part.size] += part
    assert np.abs(total[: whole.size] - whole).max() < 1e-4


@pytest.mark.parametrize("edges", [(0.1, 0.1), (0.2, 0.1), (-0.6, 0.1), (0.0, 0.51)])
def test_what_is_no_band_is_refused(edges: tuple[float, float]) -> None:
    with pytest.raises(SignalError):
        Band(*edges)
