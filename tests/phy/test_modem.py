"""The modem's laws: inverse, linear, unitary, and right on a channel shorter than the prefix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from phy.errors import SignalError
from phy.grid import CoordinateGrid
from phy.impairments import apply_taps, fractional_delay
from phy.modem import demodulate, demodulate_bins, modulate
from phy.numerology import Numerology
from tests.phy.signals import NEVER, chi_square_p_value, circular

NUMEROLOGIES = (Numerology(), Numerology(64, 16, 52), Numerology(63, 7, 13), Numerology(16, 0, 15))
numerologies = st.sampled_from(NUMEROLOGIES)
seeds = st.integers(0, 2**32 - 1)


def cells_of(numerology: Numerology, seed: int, *batch: int) -> NDArray[np.complex64]:
    return circular((*batch, numerology.data_subcarriers), 1.0, np.random.default_rng(seed))


@given(numerology=numerologies, seed=seeds, symbols=st.integers(1, 5), data=st.data())
@settings(max_examples=60, deadline=None)
def test_demodulation_undoes_modulation_wherever_the_window_begins(
    numerology: Numerology, seed: int, symbols: int, data: st.DataObject
) -> None:
    cells = cells_of(numerology, seed, 2, symbols)
    samples = modulate(cells, numerology)
    assert samples.dtype == np.complex64
    assert samples.shape == (2, symbols * numerology.symbol_samples)
    start = data.draw(st.one_of(st.none(), st.integers(0, numerology.cp_samples)))
    back = demodulate(samples, numerology, start)
    assert back.dtype == np.complex64
    np.testing.assert_allclose(back, cells, atol=1e-5)
    np.testing.assert_allclose(demodulate_bins(samples, numerology, numerology.used_bins, start), cells, atol=1e-5)
    nulls = demodulate_bins(samples, numerology, numerology.null_bins, start)
    np.testing.assert_allclose(nulls, 0.0, atol=1e-5)


@given(numerology=numerologies, seed=seeds, senders=st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_what_is_demodulated_from_a_sum_is_the_sum(numerology: Numerology, seed: int, senders: int) -> None:
    cells = cells_of(numerology, seed, senders, 3)
    received = modulate(cells, numerology).sum(axis=0)
    np.testing.assert_allclose(demodulate(received, numerology), cells.sum(axis=0), atol=3e-5)


@given(numerology=numerologies, seed=seeds)
@settings(max_examples=30, deadline=None)
def test_energy_is_kept_and_the_prefix_is_the_symbols_end(numerology: Numerology, seed: int) -> None:
    cells = cells_of(numerology, seed, 3)
    samples = modulate(cells, numerology).reshape(3, -1)
    body = samples[:, numerology.cp_samples :]
    np.testing.assert_allclose(np.sum(np.abs(body) ** 2, 1), np.sum(np.abs(cells) ** 2, 1), rtol=1e-5)
    np.testing.assert_array_equal(samples[:, : numerology.cp_samples], samples[:, numerology.fft_size :])


def test_one_cell_is_one_tone() -> None:
    """Oracle: x[n] = exp(j 2 pi k n / N) / sqrt(N)."""
    numerology = Numerology()
    cells = np.zeros((1, 192), np.complex64)
    cells[0, 96 + 4] = 1.0
    expected = np.exp(2j * np.pi * 5 * (np.arange(320) - 64) / 256) / 16
    np.testing.assert_allclose(modulate(cells, numerology), expected, atol=1e-6)


def test_output_array_is_filled() -> None:
    numerology = Numerology()
    cells = cells_of(numerology, 1, 4)
    out = np.full(4 * 320, np.nan, np.complex64)
    assert modulate(cells, numerology, out=out) is out
    np.testing.assert_allclose(out, modulate(cells, numerology), atol=1e-5)
    np.testing.assert_allclose(demodulate(out, numerology), cells, atol=1e-5)


def test_noise_has_the_same_variance_in_samples_and_cells() -> None:
    """Oracle: 2 |z|^2 / variance is chi-square with two degrees per cell; 10 % off is rejected."""
    numerology = Numerology()
    noise = circular(200 * 320, 0.3, np.random.default_rng(3))
    for bins in (numerology.used_bins, numerology.null_bins):
        power = np.sum(np.abs(demodulate_bins(noise, numerology, bins).astype(np.complex128)) ** 2)
        degrees = 2 * 200 * bins.size
        assert chi_square_p_value(2 * power / 0.3, degrees) > NEVER
        assert chi_square_p_value(2 * power / (0.3 * 1.1), degrees) < NEVER


def test_channel_shorter_than_the_prefix_is_one_factor_per_subcarrier() -> None:
    """Oracle: H[k] = sum_l h[l] exp(-j 2 pi k l / N). Longer than the prefix it is not."""
    numerology = Numerology()
    cells = cells_of(numerology, 4, 3)
    for taps, flat in ((circular(60, 0.02, np.random.default_rng(5)), True), (np.eye(200)[190], False)):
        received = apply_taps(modulate(cells, numerology), taps.astype(np.complex64))[: 3 * 320]
        response = np.exp(-2j * np.pi * np.outer(numerology.used_frequencies, np.arange(taps.size))) @ taps
        # The first symbol has no predecessor to be disturbed by, so only the others count.
        error = np.abs(demodulate(received, numerology) - cells * response)[1:].max()
        assert (error < 1e-4) == flat


def test_precoded_senders_with_own_delays_and_echoes_add_up_to_the_mean() -> None:
    """What the system rests on: each sender inverts its own H[k], and the receiver gets the plain sum of updates."""
    numerology = Numerology()
    grid = CoordinateGrid(numerology, 5000, 9)
    rng = np.random.default_rng(6)
    updates = rng.standard_normal((4, 5000), dtype=np.float32)
    capture = np.zeros(grid.symbols * 320 + 200, np.complex64)
    for update in updates:
        taps = circular(5, 0.02, rng)
        taps[0] += 1.0
        delay = rng.uniform(12.0, 30.0)
        frequencies = numerology.used_frequencies
        response = np.exp(-2j * np.pi * np.outer(frequencies, np.arange(5) + delay)) @ taps
        sent = modulate(grid.to_cells(update) / response.astype(np.complex64), numerology)
        arrived, offset = fractional_delay(apply_taps(sent, taps), delay)
        capture[offset : offset + arrived.size] += arrived
    received = grid.to_coordinates(demodulate(capture[: grid.symbols * 320], numerology))
    error = received - updates.sum(axis=0)
    assert 10 * np.log10(np.mean(error**2) / np.mean(updates.sum(axis=0) ** 2)) < -55.0


def test_wrong_shapes_and_types_are_refused() -> None:
    numerology = Numerology()
    cells = cells_of(numerology, 1, 2)
    samples = modulate(cells, numerology)
    with pytest.raises(SignalError, match="cells is complex128"):
        modulate(cells.astype(np.complex128), numerology)
    with pytest.raises(SignalError, match="cells is"):
        modulate(cells[:, :100], numerology)
    with pytest.raises(SignalError, match="out is"):
        modulate(cells, numerology, out=samples[1:])
    with pytest.raises(SignalError, match="samples is"):
        demodulate(samples[1:], numerology)
    for start in (-1, 65):
        with pytest.raises(SignalError, match=f"window_start is {start}"):
            demodulate(samples, numerology, start)
