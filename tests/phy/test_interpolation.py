"""The interpolation filter that delays and clock offsets share."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from phy.impairments import fractional_delay, resample_clock, rotate
from phy.interpolation import KERNEL_LEAD, KERNEL_TAPS, _kernel, delay_taps, interpolate
from tests.phy.signals import circular, tone


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 0.99])
def test_filter_is_within_60_db_of_the_ideal_in_80_percent_of_the_band(fraction: float) -> None:
    """Oracle: the ideal response exp(-j 2 pi f mu). Outside, where no filter this short can follow, it is not."""
    frequencies = np.linspace(-0.5, 0.5, 501)
    index = np.arange(KERNEL_TAPS) - KERNEL_LEAD
    response = np.exp(-2j * np.pi * np.outer(frequencies, index)) @ delay_taps(fraction)
    error = np.abs(response - np.exp(-2j * np.pi * frequencies * fraction))
    assert error[np.abs(frequencies) <= 0.4].max() < 1e-3
    assert error[np.abs(frequencies) <= 0.49].max() > 1e-3 or fraction == 0.0


def test_without_a_fraction_the_filter_is_an_impulse() -> None:
    np.testing.assert_allclose(delay_taps(0.0), np.eye(KERNEL_TAPS)[KERNEL_LEAD], atol=1e-7)


@given(first=st.floats(-60.0, 560.0), delta=st.floats(-2e-3, 2e-3), frequency=st.floats(-0.4, 0.4))
@settings(max_examples=50, deadline=None)
def test_values_are_those_of_the_continuous_signal(first: float, delta: float, frequency: float) -> None:
    """Oracle: a tone has a value everywhere. Outside of the samples all is zero."""
    values = interpolate(tone(500, frequency), first, delta, 300)
    at = first + np.arange(300) * (1.0 + delta)
    inside = (at > KERNEL_TAPS) & (at < 500 - KERNEL_TAPS)
    np.testing.assert_allclose(values[inside], np.exp(2j * np.pi * frequency * at[inside]), atol=1e-3)
    outside = (at < -KERNEL_TAPS) | (at > 500 + KERNEL_TAPS)
    np.testing.assert_array_equal(values[outside], 0.0)


def _filtered_one_by_one(samples: NDArray[np.complex64], at: NDArray[np.float64]) -> NDArray[np.complex128]:
    """The filter itself, for each position on its own, in double precision."""
    whole, taps = np.floor(at).astype(int), np.arange(KERNEL_TAPS) - KERNEL_LEAD
    return np.array(
        [samples[i + taps].astype(np.complex128) @ _kernel(taps - mu) for i, mu in zip(whole, at - whole, strict=True)]
    )


@pytest.mark.parametrize(
    ("ppm", "limit_db"),
    [(-40.0, -84.0), (-1e-3, -95.0), (20.0, -90.0), (40.0, -84.0), (99.0, -76.0), (400.0, -115.0), (2_000.0, -115.0)],
)
def test_tangents_are_closer_to_the_filter_than_the_filter_to_the_truth(ppm: float, limit_db: float) -> None:
    """Oracle: the filter, which leaves -69 dB itself. Tones at which the middle of the slope is worst.

    Beyond 100 ppm there are no tangents.
    """
    delta, places = ppm * 1e-6, np.arange(0, 19_000, 61)
    at = 40.3 + places * (1.0 + delta)
    for frequency in (-0.4, 0.3, 0.36):
        samples = tone(20_000, frequency)
        exact = _filtered_one_by_one(samples, at)
        values = interpolate(samples, 40.3, delta, 19_000)[places]
        assert 20 * np.log10(np.abs(values - exact).max()) < limit_db
        # A crystal one part in a thousand worse is seen.
        wrong = interpolate(samples, 40.3, delta * 1.001 + 1e-8, 19_000)[places]
        assert 20 * np.log10(np.abs(wrong - exact).max()) > limit_db


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_blocks_and_single_values_meet_without_a_seam(count: int) -> None:
    """Whole blocks inside of the signal, single values at its ends and beyond: alike, and nothing else is written."""
    samples = tone(150, 0.1)
    out = np.full(count + 2, 7.0, np.complex64)
    interpolate(samples, -20.25, 1e-5, count, out[1:-1])
    padded = np.concatenate([np.zeros(60, np.complex64), samples, np.zeros(200, np.complex64)])
    exact = _filtered_one_by_one(padded, 60.0 - 20.25 + np.arange(count) * (1.0 + 1e-5))
    np.testing.assert_allclose(out[1:-1], exact, atol=3e-5)
    assert out[0] == out[-1] == 7.0


def test_tabulated_and_exact_filter_agree() -> None:
    samples = circular((2, 5000), 1.0, np.random.default_rng(1))
    for delay in (0.05, 0.37, 0.8):
        exact, offset = fractional_delay(samples, delay)
        values = interpolate(samples, offset - delay, 0.0, exact.shape[-1])
        np.testing.assert_allclose(values, exact, atol=1e-4)


def test_a_delay_and_a_clock_at_once_are_one_after_the_other() -> None:
    """But for what the second of two filters does to a signal that fills its band: here it does not."""
    samples, ppm, start = 0.3 * tone(3000, 0.2), 30.0, 10**7
    both, offset = resample_clock(samples, ppm, start, 3.4)
    drifted, before = resample_clock(samples, ppm, start)
    exact, delayed = fractional_delay(drifted, 3.4)
    inner = slice(100, 2800)
    shift = offset - (before + delayed)
    np.testing.assert_allclose(both[inner], exact[inner.start + shift : inner.stop + shift], atol=1e-3)


def test_results_in_given_arrays_are_the_same_and_nothing_is_left_of_an_earlier_signal() -> None:
    long, short = circular(9000, 1.0, np.random.default_rng(2)), circular(400, 1.0, np.random.default_rng(3))
    expected = interpolate(short, -30.2, 2e-5, 500)
    interpolate(long, 3.3, 1e-5, 9000)
    out = np.full(500, np.nan, np.complex64)
    assert interpolate(short, -30.2, 2e-5, 500, out) is out
    np.testing.assert_array_equal(out, expected)
    rooms: list[int] = []

    def room(count: int) -> NDArray[np.complex64]:
        rooms.append(count)
        return np.empty(count, np.complex64)

    fresh, given_room = resample_clock(short, 20.0, 10**6), resample_clock(short, 20.0, 10**6, room=room)
    np.testing.assert_array_equal(fresh.samples, given_room.samples)
    assert rooms == [fresh.samples.size]
    turned = rotate(short, 0.01, 5, out=np.empty_like(short))
    np.testing.assert_array_equal(turned, rotate(short, 0.01, 5))
