"""Channel, frequency and delay estimates have the errors that theory promises, and the tests would notice others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from phy.errors import SignalError
from phy.estimation import delay_basis, delay_estimate, estimate_channel, residual_cfo
from phy.frame import sounding_cells
from phy.impairments import apply_taps, rotate
from phy.modem import demodulate, modulate
from phy.numerology import Numerology
from tests.phy.signals import NEVER, WRONG, chi_square_p_value, circular

NUMEROLOGY = Numerology()
USED = NUMEROLOGY.data_subcarriers
TRIALS = 300


def channels(
    trials: int, rng: np.random.Generator, earliest: float = 0.0, latest: float = 60.0
) -> NDArray[np.complex64]:
    """Responses of five paths at random fractional delays, shape (trials, USED), E|H|^2 = 1."""
    delays = rng.uniform(earliest, latest, (trials, 5))
    phases = np.exp(-2j * np.pi * NUMEROLOGY.used_frequencies[:, None] * delays[:, None, :])
    return np.einsum("tkp,tp->tk", phases, circular((trials, 5), 0.2, rng)).astype(np.complex64)


@pytest.mark.parametrize("symbols", [1, 2, 4])
def test_channel_estimate_is_at_its_theoretical_mse(symbols: int) -> None:
    """Oracle: the error lies in r of U dimensions, so 2 E sum |H^ - H|^2 / sigma^2 is chi-square with 2 r degrees each.

    An MSE that is 10 % off is rejected, in the mean and at the band's edge, where the variance is largest.
    """
    rng = np.random.default_rng(symbols)
    noise_var, truth, pilots = 0.02, channels(TRIALS, rng), sounding_cells(NUMEROLOGY, symbols)
    received = truth[:, None] * pilots + circular((TRIALS, symbols, USED), noise_var, rng)
    estimate = estimate_channel(received, pilots, NUMEROLOGY)
    assert estimate.channel.dtype == np.complex64
    energy = symbols * abs(pilots[0, 0]) ** 2
    rank = delay_basis(NUMEROLOGY, -2.0, 64.0).shape[1]
    power = np.abs(estimate.channel - truth).astype(np.float64) ** 2
    statistic = 2 * energy * power.sum() / noise_var
    degrees = 2 * rank * TRIALS
    assert chi_square_p_value(statistic, degrees) > NEVER
    assert chi_square_p_value(statistic / 1.1, degrees) < WRONG
    assert chi_square_p_value(statistic / 0.9, degrees) < WRONG
    # The variance that is reported is the one that occurs, subcarrier by subcarrier: 5 standard deviations.
    predicted = estimate.channel_var.mean(axis=0)
    np.testing.assert_allclose(power.mean(axis=0) / predicted, 1.0, atol=5 / np.sqrt(TRIALS))
    assert predicted.mean() == pytest.approx(noise_var / energy * rank / USED, rel=0.02)


def test_denoising_is_worth_its_trouble() -> None:
    """With 64 samples of prefix 58 of 192 dimensions remain: 5.2 dB less error; with 20 samples 9 dB."""
    assert 10 * np.log10(USED / delay_basis(NUMEROLOGY, -2.0, 64.0).shape[1]) == pytest.approx(5.2, abs=0.1)
    assert 10 * np.log10(USED / delay_basis(NUMEROLOGY, -2.0, 20.0).shape[1]) == pytest.approx(9.2, abs=0.2)


@pytest.mark.parametrize("symbols", [1, 2, 5])
def test_noise_estimate_is_chi_square_distributed(symbols: int) -> None:
    """Oracle: 2 f v^ / v is chi-square with 2 f degrees, f = (S - 1) U, or U - r for one symbol."""
    rng = np.random.default_rng(10 + symbols)
    noise_var, truth, pilots = 0.3, channels(TRIALS, rng), sounding_cells(NUMEROLOGY, symbols)
    received = truth[:, None] * pilots + circular((TRIALS, symbols, USED), noise_var, rng)
    measured = estimate_channel(received, pilots, NUMEROLOGY).noise_var_complex
    rank = delay_basis(NUMEROLOGY, -2.0, 64.0).shape[1]
    freedom = (symbols - 1) * USED if symbols > 1 else USED - rank
    assert stats.kstest(2 * freedom * measured / noise_var, stats.chi2(2 * freedom).cdf).pvalue > NEVER
    wrong = stats.kstest(2 * freedom * measured / (1.05 * noise_var), stats.chi2(2 * freedom).cdf)
    assert wrong.pvalue < NEVER


@given(low=st.floats(-10.0, 10.0), span=st.floats(1.0, 80.0), place=st.floats(0.0, 1.0))
@settings(max_examples=40, deadline=None)
def test_projection_keeps_every_delay_of_its_range(low: float, span: float, place: float) -> None:
    """No path within the range loses more than -50 dB, and the basis is orthonormal."""
    basis = delay_basis(NUMEROLOGY, low, low + span).astype(np.complex128)
    np.testing.assert_allclose(basis.conj().T @ basis, np.eye(basis.shape[1]), atol=1e-5)
    path = np.exp(-2j * np.pi * NUMEROLOGY.used_frequencies * (low + place * span))
    lost = path - basis @ (basis.conj().T @ path)
    assert np.mean(np.abs(lost) ** 2) < 1e-5


def test_paths_outside_of_the_range_are_lost() -> None:
    pilots = sounding_cells(NUMEROLOGY, 2)
    far = channels(50, np.random.default_rng(3), 90.0, 120.0)
    estimate = estimate_channel(far[:, None] * pilots, pilots, NUMEROLOGY)
    assert np.mean(np.abs(estimate.channel) ** 2) < 0.05
    wide = estimate_channel(far[:, None] * pilots, pilots, NUMEROLOGY, max_delay_samples=125.0)
    np.testing.assert_allclose(wide.channel, far, atol=0.01)


def test_estimate_through_samples_and_taps() -> None:
    """Oracle: the transform of the taps. Batch dimensions come first."""
    rng = np.random.default_rng(4)
    pilots = sounding_cells(NUMEROLOGY, 3)
    taps = circular(30, 0.05, rng)
    samples = apply_taps(modulate(pilots, NUMEROLOGY), taps)[: 3 * 320]
    # The first symbol of a stream lacks its predecessor, not its prefix, so all three are right.
    cells = np.stack([demodulate(samples, NUMEROLOGY), demodulate(samples, NUMEROLOGY, 48)])
    estimate = estimate_channel(cells, pilots, NUMEROLOGY)
    truth = np.exp(-2j * np.pi * np.outer(NUMEROLOGY.used_frequencies, np.arange(30))) @ taps
    np.testing.assert_allclose(estimate.channel[0], truth, atol=2e-3)
    assert estimate.channel.shape == estimate.channel_var.shape == (2, USED)
    assert estimate.noise_var_complex.shape == (2,)


@pytest.mark.parametrize("symbols", [2, 4, 9])
def test_residual_frequency_is_at_the_bound_it_reports(symbols: int) -> None:
    """Oracle: var(theta) = 6 sigma^2 / (E S (S^2 - 1)) of a tone of S points; 15 % off in deviation is rejected."""
    rng = np.random.default_rng(20 + symbols)
    trials, noise_var = 1500, 0.05
    truth, pilots = channels(trials, rng), sounding_cells(NUMEROLOGY, symbols)
    cfo = rng.uniform(-1e-3, 1e-3, trials)
    turns = np.exp(2j * np.pi * cfo[:, None] * 320 * np.arange(symbols)).astype(np.complex64)
    received = truth[:, None] * pilots * turns[..., None] + circular((trials, symbols, USED), noise_var, rng)
    estimate = residual_cfo(received, pilots, NUMEROLOGY)
    # Channels differ in strength, so each error is compared with its own standard deviation.
    errors = (estimate.cfo_cycles_per_sample - cfo) / estimate.std_cycles_per_sample
    assert chi_square_p_value(np.sum(errors**2), trials) > NEVER
    assert chi_square_p_value(np.sum(errors**2) / 1.15**2, trials) < NEVER
    assert chi_square_p_value(np.sum(errors**2) * 1.15**2, trials) < NEVER


def test_residual_frequency_through_samples() -> None:
    pilots = sounding_cells(NUMEROLOGY, 6)
    for hertz in (-2000.0, -3.0, 0.0, 500.0):
        cfo = hertz / NUMEROLOGY.sample_rate_hz
        cells = demodulate(rotate(modulate(pilots, NUMEROLOGY), cfo, 77), NUMEROLOGY)
        assert residual_cfo(cells, pilots, NUMEROLOGY).cfo_cycles_per_sample == pytest.approx(cfo, abs=1e-6)


def test_delay_is_at_the_bound_it_reports() -> None:
    """Oracle: the Cramer-Rao bound of a phase slope; before and after denoising; 15 % off is rejected."""
    rng = np.random.default_rng(30)
    trials, noise_var, pilots = 1500, 0.1, sounding_cells(NUMEROLOGY, 2)
    delays = rng.uniform(-15.0, 50.0, trials)
    gains = np.exp(2j * np.pi * rng.random(trials))
    truth = gains[:, None] * np.exp(-2j * np.pi * NUMEROLOGY.used_frequencies * delays[:, None])
    received = (truth[:, None] * pilots).astype(np.complex64) + circular((trials, 2, USED), noise_var, rng)
    energy = 2 * abs(pilots[0, 0]) ** 2
    estimate = estimate_channel(received, pilots, NUMEROLOGY, min_delay_samples=-20.0)
    plain = (received * pilots.conj()).sum(axis=1) / np.float32(energy)
    for channel in (plain, estimate.channel):
        found = delay_estimate(channel, NUMEROLOGY, noise_var / energy)
        errors = (found.delay_samples - delays) / found.std_samples
        assert chi_square_p_value(np.sum(errors**2), trials) > NEVER
        assert chi_square_p_value(np.sum(errors**2) / 1.15**2, trials) < NEVER
        assert chi_square_p_value(np.sum(errors**2) * 1.15**2, trials) < NEVER


@given(delay=st.floats(-127.0, 127.0), phase=st.floats(0.0, 6.28))
@settings(max_examples=40, deadline=None)
def test_delay_without_noise_is_exact(delay: float, phase: float) -> None:
    channel = np.exp(1j * phase - 2j * np.pi * NUMEROLOGY.used_frequencies * delay).astype(np.complex64)
    found = delay_estimate(channel, NUMEROLOGY)
    assert found.delay_samples == pytest.approx(delay, abs=1e-4)
    assert found.std_samples == 0.0


def test_without_a_signal_the_uncertainty_is_infinite() -> None:
    pilots = sounding_cells(NUMEROLOGY, 2)
    silence = np.zeros((3, 2, USED), np.complex64)
    assert np.all(np.isinf(residual_cfo(silence, pilots, NUMEROLOGY).std_cycles_per_sample))
    assert np.all(np.isinf(delay_estimate(silence[:, 0], NUMEROLOGY, 1e-3).std_samples))
    estimate = estimate_channel(silence, pilots, NUMEROLOGY)
    np.testing.assert_array_equal(estimate.channel, 0.0)
    np.testing.assert_array_equal(estimate.channel_var, 0.0)


def test_what_cannot_be_estimated_is_refused() -> None:
    pilots = sounding_cells(NUMEROLOGY, 2)
    with pytest.raises(SignalError, match="received cells' shape"):
        estimate_channel(pilots[:, :100], pilots, NUMEROLOGY)
    with pytest.raises(SignalError, match="unequal energy"):
        estimate_channel(pilots, pilots * np.linspace(1, 2, USED, dtype=np.float32), NUMEROLOGY)
    with pytest.raises(SignalError, match="delay range"):
        estimate_channel(pilots, pilots, NUMEROLOGY, max_delay_samples=-3.0)
    with pytest.raises(SignalError, match="two or more"):
        residual_cfo(pilots[:1], pilots[:1], NUMEROLOGY)
    with pytest.raises(SignalError, match="one symbol"):
        estimate_channel(pilots[:1], pilots[:1], NUMEROLOGY, max_delay_samples=250.0)
