"""The coordinate grid is an orthogonal map with an exact inverse, and spreads energy."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.linalg import hadamard

from phy.compute.transforms import aligned_zeros
from phy.errors import SignalError
from phy.grid import CoordinateGrid
from phy.modem import bin_weight, modulate, modulate_bins
from phy.numerology import Numerology
from tests.phy.signals import NEVER, chi_square_p_value, circular

NUMEROLOGIES = (Numerology(), Numerology(64, 16, 52), Numerology(32, 4, 13), Numerology(16, 0, 15))
grids = st.builds(
    CoordinateGrid,
    st.sampled_from(NUMEROLOGIES),
    st.integers(1, 3000),
    st.one_of(st.none(), st.integers(0, 2**40)),
)


@given(grid=grids, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_inverse_undoes_the_map_and_norms_are_kept(grid: CoordinateGrid, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((2, grid.coordinates), dtype=np.float32)
    cells = grid.to_cells(x)
    assert cells.dtype == np.complex64
    assert cells.shape == (2, grid.symbols, grid.numerology.data_subcarriers)
    np.testing.assert_allclose(np.linalg.norm(cells, axis=(1, 2)), np.linalg.norm(x, axis=1), rtol=1e-5)
    back = grid.to_coordinates(cells)
    assert back.dtype == np.float32
    np.testing.assert_allclose(back, x, atol=3e-6)


@given(grid=grids, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_map_is_linear_and_the_inverse_its_adjoint(grid: CoordinateGrid, seed: int) -> None:
    """<y, A x> = <A^T y, x> on real inner products: what makes A^T of white noise white."""
    rng = np.random.default_rng(seed)
    x, z = rng.standard_normal((2, grid.coordinates), dtype=np.float32)
    np.testing.assert_allclose(grid.to_cells(x + z), grid.to_cells(x) + grid.to_cells(z), atol=1e-5)
    y = circular((grid.symbols, grid.numerology.data_subcarriers), 2.0, rng)
    left = float(np.real(np.vdot(y, grid.to_cells(x))))
    assert left == pytest.approx(float(grid.to_coordinates(y) @ x), abs=1e-3 * np.sqrt(grid.coordinates))


def test_transform_is_signs_and_a_hadamard_matrix() -> None:
    """Oracle: scipy.linalg.hadamard, and the matrix of the map column by column."""
    grid = CoordinateGrid(Numerology(16, 2, 8), 128, 3)
    matrix = grid.to_cells(np.eye(128, dtype=np.float32)).reshape(128, -1).view(np.float32).T
    assert grid.order == 16
    expected = np.kron(hadamard(16), np.eye(8)) / 4.0
    # The Hadamard matrix's first row has no minus, so the map's first rows show the signs.
    column = np.arange(128)
    signs = 4.0 * matrix[column % 8, column]
    assert set(signs.tolist()) == {-1.0, 1.0}
    np.testing.assert_array_equal(matrix, expected * signs)


def test_seed_fixes_the_signs_and_none_leaves_coordinates_alone() -> None:
    x = np.arange(1.0, 601.0, dtype=np.float32)
    numerology = Numerology()
    first, second = (CoordinateGrid(numerology, 600, 5).to_cells(x) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, CoordinateGrid(numerology, 600, 6).to_cells(x))
    plain = CoordinateGrid(numerology, 600, None).to_cells(x)
    assert plain[0, 0] == 1.0 + 2.0j
    assert plain[1, 191] == 0.0


def test_signs_are_those_that_other_nodes_have() -> None:
    """All nodes must draw the same signs, on any machine and with any version: these are pinned."""
    cells = CoordinateGrid(Numerology(16, 2, 8), 16, 7).to_cells(np.ones(16, np.float32))
    signs = hadamard(16) @ cells.reshape(-1).view(np.float32) / 4.0
    assert "".join("+" if sign > 0 else "-" for sign in signs) == "+---+-++-+--+-+-"


def test_noise_stays_white_gaussian_with_half_the_complex_variance() -> None:
    """Oracle: 2 N-fold chi-square of the coordinates' power, and Kolmogorov and Smirnov's test."""
    grid = CoordinateGrid(Numerology(), 50_000, 11)
    noise = circular((grid.symbols, 192), 0.5, np.random.default_rng(2))
    coordinates = grid.to_coordinates(noise).astype(np.float64)
    power = np.sum(coordinates**2)
    assert chi_square_p_value(power / 0.25, coordinates.size) > NEVER
    assert chi_square_p_value(power / (1.03**2 * 0.25), coordinates.size) < NEVER
    assert stats.kstest(coordinates / 0.5, "norm").pvalue > NEVER
    for lag in (1, 2, 192, grid.cells * 2 // grid.order):
        correlation = np.corrcoef(coordinates[lag:], coordinates[:-lag])[0, 1]
        assert abs(correlation) < 4 / np.sqrt(coordinates.size)


def test_energy_in_one_place_is_spread_over_sixteen_symbols() -> None:
    """An update that lives in a thirtieth of its coordinates fills half of the symbols instead of one."""
    grid = CoordinateGrid(Numerology(), 384 * 32, 1)
    x = np.zeros(grid.coordinates, np.float32)
    x[:384] = np.random.default_rng(3).standard_normal(384)
    spread = np.sum(np.abs(grid.to_cells(x)) ** 2, axis=1)
    plain = np.sum(np.abs(CoordinateGrid(grid.numerology, grid.coordinates, None).to_cells(x)) ** 2, axis=1)
    assert np.count_nonzero(plain) == 1
    assert np.count_nonzero(spread > plain.sum() / 17) == 16


def test_results_can_go_into_a_given_array_and_threads_do_not_meet() -> None:
    grid = CoordinateGrid(Numerology(), 20_000, 4)
    rng = np.random.default_rng(5)
    updates = rng.standard_normal((4, 20_000), dtype=np.float32)
    expected = grid.to_cells(updates)
    results = np.empty((4, grid.symbols, 192), np.complex64)

    def work(row: int) -> None:
        for _ in range(20):
            assert grid.to_cells(updates[row], out=results[row]) is not None

    threads = [threading.Thread(target=work, args=(row,)) for row in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(results, expected)


def test_wrong_shapes_and_types_are_refused() -> None:
    grid = CoordinateGrid(Numerology(), 1000, 1)
    cells = grid.to_cells(np.zeros(1000, np.float32))
    with pytest.raises(SignalError, match=r"coordinates is float64 .* float32"):
        grid.to_cells(np.zeros(1000))  # type: ignore[arg-type]
    with pytest.raises(SignalError, match=r"expected float32 \(\.\.\., 1000\)"):
        grid.to_cells(np.zeros(999, np.float32))
    with pytest.raises(SignalError, match="out is"):
        grid.to_cells(np.zeros(1000, np.float32), out=cells[:1])
    with pytest.raises(SignalError, match="cells is"):
        grid.to_coordinates(cells[:1])
    with pytest.raises(SignalError, match="coordinates is 0"):
        CoordinateGrid(Numerology(), 0, 1)
    with pytest.raises(SignalError, match="seed is -1"):
        CoordinateGrid(Numerology(), 5, -1)


@pytest.mark.parametrize(
    ("numerology", "coordinates", "seed"),
    [
        (Numerology(1024, 0, 768), 20_001, 3),
        (Numerology(), 1000, 3),
        (Numerology(16, 0, 5), 77, 4),
        (Numerology(), 50, None),
    ],
)
def test_bins_are_what_the_modulator_makes_of_cells(numerology: Numerology, coordinates: int, seed: int | None) -> None:
    """The way that payloads take, in one pass, against the one step by step."""
    grid = CoordinateGrid(numerology, coordinates, seed)
    x = np.random.default_rng(1).standard_normal(coordinates, dtype=np.float32)
    factor = 0.2 - 0.5j
    bins = aligned_zeros(grid.symbols, numerology.fft_size)
    grid.to_bins(x, factor * bin_weight(numerology), bins)
    samples = modulate_bins(bins, numerology, np.empty(grid.symbols * numerology.symbol_samples, np.complex64))
    expected = modulate(grid.to_cells(x), numerology, factor=factor)
    np.testing.assert_allclose(samples, expected, atol=1e-6 * float(np.abs(expected).max()))
    assert not bins[:, numerology.null_bins].any()
    with pytest.raises(SignalError, match="out is"):
        grid.to_bins(x, 1.0, bins[:, 1:])
    with pytest.raises(SignalError, match="coordinates is"):
        grid.to_bins(x[1:], 1.0, bins)
