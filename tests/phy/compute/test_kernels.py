"""Compiled loops against what NumPy makes of the same."""

import numpy as np
import pytest

from phy.compute.kernels import accumulate, accumulate_turning, gather, largest_part, lay_out, peak_and_energy
from phy.numerology import Numerology
from tests.phy.signals import circular


@pytest.mark.parametrize("numerology", [Numerology(), Numerology(16, 0, 5), Numerology(8, 2, 7)])
def test_cells_go_to_their_bins_and_come_back(numerology: Numerology) -> None:
    cells = circular((3, numerology.data_subcarriers), 1.0, np.random.default_rng(2))
    grid = np.zeros((3, numerology.fft_size), np.complex64)
    below, factor = numerology.negative_subcarriers, np.complex64(0.3 - 0.7j)
    lay_out(cells, factor, below, grid)
    np.testing.assert_allclose(grid[:, numerology.used_bins], cells * factor, rtol=1e-6)
    assert not grid[:, numerology.null_bins].any()
    back = np.empty_like(cells)
    gather(grid.view(np.float32), np.float32(0.5), below, back.view(np.float32))
    np.testing.assert_array_equal(back, grid[:, numerology.used_bins] * np.float32(0.5))


def test_the_largest_part_is_found_wherever_it_is() -> None:
    samples = circular(1001, 1e-4, np.random.default_rng(3))
    for place in (0, 500, 1000):
        for value in (0.75, -0.75, 0.75j, -0.75j):
            changed = samples.copy()
            changed[place] = value
            assert largest_part(changed) == 0.75
    assert largest_part(np.zeros(3, np.complex64)) == 0.0
    assert largest_part(np.empty(0, np.complex64)) == 0.0


@pytest.mark.parametrize("value", [np.nan, -np.nan, complex(0, np.nan)])
def test_nan_is_larger_than_everything(value: complex) -> None:
    samples = np.array([0.1, np.inf, value, 0.2], np.complex64)
    assert np.isnan(largest_part(samples))
    assert largest_part(np.array([1, complex(0, -np.inf)], np.complex64)) == np.inf


@pytest.mark.parametrize("count", [0, 1, 2047, 2048, 10_001])
def test_peak_and_energy_are_those_of_numpy(count: int) -> None:
    samples = circular(count, 0.3, np.random.default_rng(4))
    peak, energy = peak_and_energy(samples)
    assert peak == largest_part(samples)
    assert energy == pytest.approx(float(np.sum(np.abs(samples.astype(np.complex128)) ** 2)), rel=1e-6)


def test_accumulating_touches_its_own_places_only() -> None:
    rng = np.random.default_rng(5)
    samples, total = circular(300, 1.0, rng), circular(500, 1.0, rng)
    expected = total.copy()
    expected[40:140] += samples[7:107] * np.complex64(0.3 - 2j)
    accumulate(samples, 7, 100, np.complex64(0.3 - 2j), total, 40)
    np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(total[:40], expected[:40])
    np.testing.assert_array_equal(total[140:], expected[140:])


@pytest.mark.parametrize("count", [1, 64, 100_001])
def test_accumulating_turns_as_it_goes(count: int) -> None:
    """Oracle: the same in double precision; a carrier off by a millionth of a cycle a sample would be seen."""
    rng, cycles = np.random.default_rng(6), 0.0123
    samples, total = circular(count + 3, 1.0, rng), np.zeros(count + 9, np.complex64)
    accumulate_turning(samples, 3, count, 0.3 - 2j, cycles, total, 5)
    exact = samples[3:] * ((0.3 - 2j) * np.exp(2j * np.pi * cycles * np.arange(count)))
    np.testing.assert_allclose(total[5:-4], exact, atol=3e-6)
    assert not total[:5].any()
    assert not total[-4:].any()
