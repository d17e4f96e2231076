"""The Walsh-Hadamard transform over rows against SciPy's matrix."""

import numpy as np
import pytest
from scipy.linalg import hadamard

from phy.compute.kernels import lay_out
from phy.compute.mixing import mix, spread
from phy.numerology import Numerology

NO_SIGNS = np.empty(0, np.int8)


@pytest.mark.parametrize(
    ("filled", "padded", "order"),
    [(1, 2, 1), (15, 16, 16), (1000, 1024, 8), (20_000, 20_480, 4), (9_000, 9_216, 16), (6, 6, 2)],
)
def test_mixing_is_a_hadamard_matrix_on_rows(filled: int, padded: int, order: int) -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal(filled, dtype=np.float32)
    signs = rng.choice([-1, 1], filled).astype(np.int8)
    for some in (signs, NO_SIGNS):
        out = np.full(padded, np.nan, np.float32)
        mix(values, some, order, np.float32(0.5), out)
        signed = np.zeros(padded)
        signed[:filled] = values * (some if some.size else 1)
        exact = 0.5 * hadamard(order) @ signed.reshape(order, -1)
        assert np.abs(out.reshape(order, -1) - exact).max() < 1e-5


@pytest.mark.parametrize(
    ("numerology", "symbols", "order"),
    [
        (Numerology(1024, 0, 768), 5, 16),
        (Numerology(), 3, 16),
        (Numerology(16, 0, 5), 8, 4),
        (Numerology(8, 2, 7), 2, 2),
    ],
)
def test_spreading_is_mixing_and_laying_out(numerology: Numerology, symbols: int, order: int) -> None:
    rng, used = np.random.default_rng(2), numerology.data_subcarriers
    padded, below, factor = 2 * symbols * used, numerology.negative_subcarriers, np.complex64(0.3 - 0.7j)
    values = rng.standard_normal(padded - 3, dtype=np.float32)
    signs = rng.choice([-1, 1], values.size).astype(np.int8)
    cells = np.empty((symbols, used), np.complex64)
    mix(values, signs, order, np.float32(1), cells.reshape(-1).view(np.float32))
    expected, grid = (np.zeros((symbols, numerology.fft_size), np.complex64) for _ in range(2))
    lay_out(cells, factor, below, expected)
    spread(values, signs, order, factor, below, used, grid)
    np.testing.assert_array_equal(grid, expected)
