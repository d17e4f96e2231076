"""Compiled loops against what NumPy makes of the same."""

import numpy as np
import pytest
from scipy.linalg import hadamard

from phy.compute.kernels import gather, largest_part, lay_out, mix
from phy.numerology import Numerology
from tests.phy.signals import circular


@pytest.mark.parametrize(("filled", "padded", "order"), [(1, 2, 1), (15, 16, 16), (1000, 1024, 8), (20_000, 20_480, 4)])
def test_mixing_is_a_hadamard_matrix_on_rows(filled: int, padded: int, order: int) -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal(filled, dtype=np.float32)
    signs = rng.choice([-0.5, 0.5], filled).astype(np.float32)
    out = np.full(padded, np.nan, np.float32)
    mix(values, signs, order, out)
    signed = np.zeros(padded)
    signed[:filled] = values * signs
    exact = hadamard(order) @ signed.reshape(order, -1)
    assert np.abs(out.reshape(order, -1) - exact).max() < 1e-5


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
