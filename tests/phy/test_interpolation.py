"""The interpolation filter that delays and clock offsets share."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phy.impairments import fractional_delay
from phy.interpolation import KERNEL_LEAD, KERNEL_TAPS, delay_taps, interpolate
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


@given(
    positions=st.lists(st.floats(-60.0, 560.0), min_size=1, max_size=40),
    frequency=st.floats(-0.4, 0.4),
)
@settings(max_examples=50, deadline=None)
def test_values_at_any_positions_are_those_of_the_continuous_signal(positions: list[float], frequency: float) -> None:
    """Oracle: a tone has a value everywhere. Positions need not be in order; outside of the samples all is zero."""
    at = np.array(positions)
    values = interpolate(tone(500, frequency), at)
    inside = (at > KERNEL_TAPS) & (at < 500 - KERNEL_TAPS)
    np.testing.assert_allclose(values[inside], np.exp(2j * np.pi * frequency * at[inside]), atol=1e-3)
    outside = (at < -KERNEL_TAPS) | (at > 500 + KERNEL_TAPS)
    np.testing.assert_array_equal(values[outside], 0.0)


def test_polynomial_and_exact_filter_agree() -> None:
    samples = circular((2, 5000), 1.0, np.random.default_rng(1))
    for delay in (0.05, 0.37, 0.8):
        exact, offset = fractional_delay(samples, delay)
        values = interpolate(samples, np.arange(exact.shape[-1]) + offset - delay)
        np.testing.assert_allclose(values, exact, atol=1e-3)
