"""Detection, timing and frequency against the distributions and bounds that theory gives them."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from phy.errors import SignalError
from phy.frame import SoundingFrame, sounding_samples
from phy.impairments import apply_taps, dc_offset, fractional_delay, rotate
from phy.interpolation import KERNEL_TAPS
from phy.numerology import Numerology
from phy.preamble import preamble_length, preamble_samples
from phy.sync import cfo_bound, detect, detection_metric, detection_threshold
from phy.units import db_to_power_ratio
from tests.phy.signals import NEVER, WRONG, chi_square_p_value, circular, rate_upper_bound

NUMEROLOGY = Numerology()
PREAMBLE = preamble_samples(NUMEROLOGY)
POWER = float(np.mean(np.abs(PREAMBLE) ** 2))
LARGEST_CFO = 5e3 / NUMEROLOGY.sample_rate_hz
CAPTURE = 800


def capture(
    snr_db: float, rng: np.random.Generator, length: int = CAPTURE
) -> tuple[NDArray[np.complex64], float, float]:
    """Noise with one preamble at a random fractional place, phase and frequency offset; returns where and which."""
    start = rng.uniform(KERNEL_TAPS, length - preamble_length(NUMEROLOGY) - KERNEL_TAPS)
    cfo = rng.uniform(-LARGEST_CFO, LARGEST_CFO)
    delayed, offset = fractional_delay(PREAMBLE, start)
    samples = circular(length, POWER / db_to_power_ratio(snr_db), rng)
    samples[offset : offset + delayed.size] += rotate(delayed, cfo, 0, rng.uniform(0, 2 * np.pi))
    return samples, start, cfo


def misses(snr_db: float, trials: int, seed: int) -> int:
    """Captures in which nothing was found, or something elsewhere."""
    rng = np.random.default_rng(seed)
    count = 0
    for _ in range(trials):
        samples, start, _ = capture(snr_db, rng)
        found = detect(samples, NUMEROLOGY)
        count += found is None or abs(found.fine_start - start) > 1.0
    return count


def test_fewer_than_one_in_a_thousand_preambles_is_missed_at_0_db() -> None:
    """4,000 captures at 0 dB per sample with random offsets up to +-5 kHz. At -16 dB the same count says otherwise."""
    assert rate_upper_bound(misses(0.0, 4000, 1), 4000) < 1e-3
    assert rate_upper_bound(misses(-16.0, 200, 2), 200) > 0.1


def test_fewer_than_one_in_a_thousand_captures_of_noise_is_a_false_alarm() -> None:
    """5,000 captures at the default threshold. At a threshold for 10 % the bound holds as well and is no idle one."""
    rng = np.random.default_rng(3)
    largest = np.concatenate(
        [detection_metric(circular((500, 1000), 1.0, rng), NUMEROLOGY).max(axis=-1) for _ in range(10)]
    )
    lags = 1000 - preamble_length(NUMEROLOGY) + 1
    alarms = {p: int(np.sum(largest > detection_threshold(lags, NUMEROLOGY, p))) for p in (1e-6, 0.1)}
    assert rate_upper_bound(alarms[1e-6], largest.size) < 1e-3
    assert 0.05 * largest.size < alarms[0.1] < 0.1 * largest.size
    # Without the factor for the number of lags the alarms would be many: the threshold scales with the length.
    assert np.mean(largest > detection_threshold(1, NUMEROLOGY, 1e-3)) > 0.1


@pytest.mark.parametrize("level", [1.0, 1e-10])
def test_metric_of_noise_is_beta_distributed_at_any_level(level: float) -> None:
    """Oracle: a plane's share of a Gaussian vector of 2 (N - 1) complex dimensions is Beta(2, 2 (N - 1) - 2)."""
    noise = circular((4000, preamble_length(NUMEROLOGY)), level, np.random.default_rng(4))
    metric = detection_metric(noise, NUMEROLOGY)[:, 0]
    assert stats.kstest(metric, stats.beta(2, 508).cdf).pvalue > NEVER
    assert stats.kstest(metric, stats.beta(2, 430).cdf).pvalue < WRONG
    threshold = detection_threshold(7, NUMEROLOGY, 1e-3)
    assert 7 * stats.beta(2, 508).sf(threshold) == pytest.approx(1e-3, rel=1e-6)
    assert 7 * (1 - threshold) ** 508 * (1 + 508 * threshold) == pytest.approx(1e-3, rel=1e-6)


def timing_and_cfo_errors(snr_db: float, trials: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(round(snr_db))
    errors = []
    for _ in range(trials):
        samples, start, cfo = capture(snr_db, rng)
        found = detect(samples, NUMEROLOGY)
        assert found is not None
        assert abs(found.start_sample - start) < 1.0
        errors.append((found.fine_start - start, found.cfo_cycles_per_sample - cfo))
    timing, frequency = np.array(errors).T
    return timing, frequency


@pytest.mark.parametrize("snr_db", [5.0, 10.0, 20.0])
def test_timing_is_within_a_sample_and_frequency_within_twice_the_bound(snr_db: float) -> None:
    """Oracles: `cfo_bound` (its formula has a test of its own) and the theory of the two-halves estimator.

    Of that estimator var(f) = (1 + 0.75/(2 g)) / ((2 pi N)^2 g N), g the SNR per sample and 0.75 the used part of the
    band: 1.38 times the bound of the whole preamble at high SNR. A fraction of 20 % more is rejected.
    """
    timing, frequency = timing_and_cfo_errors(snr_db, 500)
    assert np.abs(timing).max() < 0.2
    snr = db_to_power_ratio(snr_db)
    ratio = np.sqrt(np.mean(frequency**2)) / cfo_bound(snr, NUMEROLOGY)
    assert 1.0 < ratio < 2.0
    size = NUMEROLOGY.fft_size
    variance = (1 + 0.75 / (2 * snr)) / ((2 * np.pi * size) ** 2 * snr * size)
    assert chi_square_p_value(np.sum(frequency**2) / variance, frequency.size) > NEVER
    assert chi_square_p_value(np.sum(frequency**2) / (1.2**2 * variance), frequency.size) < NEVER


def test_a_degraded_frequency_estimator_would_not_be_within_twice_the_bound() -> None:
    """The angle of an eighth of the products of both halves has sqrt(8) times the error."""
    rng = np.random.default_rng(6)
    size, errors = NUMEROLOGY.fft_size, []
    for _ in range(400):
        samples, start, cfo = capture(10.0, rng)
        begin = round(start) + NUMEROLOGY.cp_samples
        first, second = samples[begin : begin + size // 8], samples[begin + size : begin + size + size // 8]
        errors.append(np.angle(np.vdot(first, second)) / (2 * np.pi * size) - cfo)
    assert np.sqrt(np.mean(np.square(errors))) > 2.0 * cfo_bound(db_to_power_ratio(10.0), NUMEROLOGY)


def test_bound_is_that_of_a_tone_for_a_preamble_of_constant_modulus() -> None:
    """Oracle: Rife and Boorstyn (IEEE Trans. Inf. Theory 20(5), 1974): var(omega) = 6 / (g L (L^2 - 1))."""
    length, snr = preamble_length(NUMEROLOGY), 3.0
    classic = np.sqrt(6 / (snr * length * (length**2 - 1))) / (2 * np.pi)
    # The chirp's modulus is nearly constant, so the two are nearly equal.
    assert cfo_bound(snr, NUMEROLOGY) == pytest.approx(classic, rel=0.02)
    assert cfo_bound(4 * snr, NUMEROLOGY) == pytest.approx(cfo_bound(snr, NUMEROLOGY) / 2)


@pytest.mark.parametrize("cfo", [-LARGEST_CFO, 0.0, LARGEST_CFO])
def test_a_whole_frame_is_found_where_it_begins(cfo: float) -> None:
    frame = SoundingFrame(NUMEROLOGY, 4)
    samples = circular(6000, 1e-4, np.random.default_rng(7))
    samples[2345 : 2345 + frame.length] += rotate(0.1 * sounding_samples(frame), cfo, 0)
    found = detect(samples, NUMEROLOGY)
    assert found is not None
    assert found.start_sample == 2345
    assert found.fine_start == pytest.approx(2345, abs=0.05)
    assert found.cfo_cycles_per_sample == pytest.approx(cfo, abs=1e-5)


def test_echoes_do_not_disturb_the_frequency() -> None:
    """Two equal halves stay equal on any channel shorter than the prefix; the time is that of the strongest path."""
    rng = np.random.default_rng(8)
    taps = np.zeros(40, np.complex64)
    taps[[0, 6, 25, 39]] = 0.3, 1.0, 0.5j, -0.4
    for _ in range(20):
        cfo = rng.uniform(-LARGEST_CFO, LARGEST_CFO)
        # What follows in the frame is as strong as the preamble, as it is when symbols follow.
        sent = rotate(sounding_samples(SoundingFrame(NUMEROLOGY, 2)), cfo, 0)
        samples = circular(3000, 1e-6, rng)
        samples[500 : 500 + sent.size + 39] += apply_taps(sent, taps)
        found = detect(samples, NUMEROLOGY)
        assert found is not None
        assert abs(found.start_sample - 506) <= 1
        assert found.cfo_cycles_per_sample == pytest.approx(cfo, abs=1e-6)


def test_dc_offset_neither_hides_the_preamble_nor_bends_its_frequency() -> None:
    samples = circular(2000, 1e-5, np.random.default_rng(9))
    samples[700 : 700 + PREAMBLE.size] += 0.03 * rotate(PREAMBLE, 8e-4, 0)
    metric = detection_metric(samples, NUMEROLOGY)
    np.testing.assert_allclose(detection_metric(dc_offset(samples, -20.0), NUMEROLOGY), metric, atol=1e-3)
    found = detect(dc_offset(samples, -20.0), NUMEROLOGY)
    assert found is not None
    assert found.start_sample == 700
    assert found.cfo_cycles_per_sample == pytest.approx(8e-4, abs=2e-5)


def test_silence_and_constants_are_no_preamble_and_a_burst_in_silence_is_one() -> None:
    samples = np.zeros(20_000, np.complex64)
    assert detect(samples, NUMEROLOGY) is None
    assert detect(samples + np.complex64(0.7 + 0.7j), NUMEROLOGY) is None
    samples[15_000 : 15_000 + PREAMBLE.size] = PREAMBLE
    found = detect(samples, NUMEROLOGY)
    assert found is not None
    assert found.start_sample == 15_000
    assert found.metric == pytest.approx(1.0, abs=1e-5)
    # Payload is not taken for a preamble either.
    assert detect(circular(20_000, 1.0, np.random.default_rng(1)) * (np.arange(20_000) > 9000), NUMEROLOGY) is None


@pytest.mark.parametrize("numerology", [Numerology(64, 16, 52), Numerology(1024, 72, 600), Numerology(128, 0, 100)])
def test_other_numerologies(numerology: Numerology) -> None:
    samples = circular(5000, 0.05, np.random.default_rng(10))
    preamble = preamble_samples(numerology)
    samples[1000 : 1000 + preamble.size] += preamble
    found = detect(samples, numerology)
    assert found is not None
    assert found.start_sample == 1000


def test_captures_that_cannot_be_searched_are_refused() -> None:
    samples = np.zeros(1000, np.complex64)
    with pytest.raises(SignalError, match="capture length is 575; expected 576"):
        detect(samples[:575], NUMEROLOGY)
    with pytest.raises(SignalError, match="one dimension"):
        detect(samples.reshape(1, -1), NUMEROLOGY)
    with pytest.raises(SignalError, match="false_alarm_probability"):
        detect(samples, NUMEROLOGY, 0.0)
    samples[3] = np.nan
    with pytest.raises(SignalError, match="not finite"):
        detect(samples, NUMEROLOGY)
