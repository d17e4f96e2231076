"""Every impairment has the physical value that it was asked for, and none of them when asked for nothing."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from phy.errors import AirdpError, SignalError
from phy.impairments import (
    apply_taps,
    dc_offset,
    fractional_delay,
    iq_imbalance,
    phase_noise,
    quantise,
    resample_clock,
    rotate,
    soft_limit,
)
from phy.interpolation import KERNEL_LEAD, KERNEL_TAPS
from tests.phy.signals import NEVER, chi_square_p_value, circular, tone

SAMPLES = circular(3000, 0.05, np.random.default_rng(1))
EDGE = 2 * KERNEL_TAPS
"""Samples at both ends of a tone where it is not yet, or no longer, a tone."""


def test_nothing_asked_is_nothing_done() -> None:
    assert rotate(SAMPLES, 0.0, 12345) is SAMPLES
    assert fractional_delay(SAMPLES, 0.0) == (SAMPLES, 0)
    assert resample_clock(SAMPLES, 0.0, 10**9) == (SAMPLES, 0)
    assert iq_imbalance(SAMPLES, None) is SAMPLES
    assert dc_offset(SAMPLES, None) is SAMPLES
    assert soft_limit(SAMPLES, None, 2.0) is SAMPLES
    assert quantise(SAMPLES, None) == (SAMPLES, 0)
    np.testing.assert_array_equal(apply_taps(SAMPLES, np.ones(1, np.complex64)), SAMPLES)
    np.testing.assert_array_equal(phase_noise(5, 0.0, np.random.default_rng(1)), np.ones(5))
    np.testing.assert_array_equal(phase_noise(5, None, np.random.default_rng(1)), np.ones(5))


def test_batches_are_treated_row_by_row_in_single_precision_and_inputs_are_kept() -> None:
    batch = circular((2, 3, 700), 0.3, np.random.default_rng(2))
    before = batch.copy()
    taps = circular(5, 1.0, np.random.default_rng(3))
    for effect in (
        lambda x: rotate(x, 1e-3, 7, 0.1),
        lambda x: fractional_delay(x, 2.3).samples,
        lambda x: apply_taps(x, taps),
        lambda x: apply_taps(x, np.resize(taps, 100)),
        lambda x: resample_clock(x, 30.0, 10**6).samples,
        lambda x: iq_imbalance(x, -35.0),
        lambda x: dc_offset(x, -30.0),
        lambda x: soft_limit(x, 1.0, 2.0),
        lambda x: quantise(x, 8)[0],
    ):
        result = effect(batch)
        assert result.dtype == np.complex64
        np.testing.assert_allclose(result[1, 2], effect(batch[1, 2]), atol=2e-6)
        np.testing.assert_array_equal(batch, before)


@given(
    frequency=st.floats(-0.5, 0.5),
    start=st.integers(0, 10**10),
    phase=st.floats(-10.0, 10.0),
    at=st.integers(0, 4999),
)
@settings(max_examples=50, deadline=None)
def test_rotation_has_the_exact_phase_at_any_counter(frequency: float, start: int, phase: float, at: int) -> None:
    """Oracle: f (start + n) modulo one in rational arithmetic."""
    turned = rotate(np.ones(5000, np.complex64), frequency, start, phase)
    turns = float(Fraction(frequency) * (start + at) % 1)
    assert abs(turned[at] - np.exp(1j * (2 * np.pi * turns + phase))) < 1e-6


@given(frequency=st.floats(-0.5, 0.5), start=st.integers(0, 10**10), cut=st.integers(1, 2999))
@settings(max_examples=30, deadline=None)
def test_rotation_can_be_undone_and_cut_anywhere(frequency: float, start: int, cut: int) -> None:
    turned = rotate(SAMPLES, frequency, start)
    np.testing.assert_allclose(rotate(turned, -frequency, start), SAMPLES, atol=1e-6)
    parts = [rotate(SAMPLES[:cut], frequency, start), rotate(SAMPLES[cut:], frequency, start + cut)]
    np.testing.assert_allclose(np.concatenate(parts), turned, atol=1e-6)


@given(delay=st.floats(0.0, 100.0), frequency=st.floats(-0.4, 0.4))
@settings(max_examples=60, deadline=None)
def test_delay_of_a_tone_is_a_phase_within_60_db(delay: float, frequency: float) -> None:
    """Oracle: x(t - delay) = exp(j 2 pi f (t - delay)) for |f| <= 0.4, 80 % of the band."""
    delayed, offset = fractional_delay(tone(400, frequency), delay)
    expected = np.exp(2j * np.pi * frequency * (np.arange(delayed.size) + offset - delay))
    error = np.abs(delayed - expected)[EDGE:-EDGE].max()
    assert 20 * math.log10(error + 1e-12) < -60.0


def test_delay_would_be_seen_to_be_wrong_by_a_hundredth_of_a_sample() -> None:
    delayed, offset = fractional_delay(tone(400, 0.2), 3.3)
    wrong = np.exp(2j * np.pi * 0.2 * (np.arange(delayed.size) + offset - 3.31))
    assert 20 * math.log10(np.abs(delayed - wrong)[EDGE:-EDGE].max()) > -60.0


def test_whole_delays_only_move_the_start_and_fractions_lengthen_the_signal_by_the_filter() -> None:
    assert fractional_delay(SAMPLES, 17.0) == (SAMPLES, 17)
    delayed, offset = fractional_delay(SAMPLES, 17.25)
    assert offset == 17 - KERNEL_LEAD
    assert delayed.size == SAMPLES.size + KERNEL_TAPS - 1


@given(taps=st.integers(1, 90), count=st.integers(1, 300), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_taps_are_a_full_convolution(taps: int, count: int, seed: int) -> None:
    """Oracle: numpy.convolve in double precision."""
    rng = np.random.default_rng(seed)
    response, samples = circular(taps, 1.0, rng), circular(count, 1.0, rng)
    expected = np.convolve(samples.astype(np.complex128), response.astype(np.complex128))
    np.testing.assert_allclose(apply_taps(samples, response), expected, atol=2e-5)


def test_long_signals_are_convolved_across_block_borders() -> None:
    samples = circular(40_000, 1.0, np.random.default_rng(4))
    taps = np.array([1.0, 0.0, -0.5, 0.25], np.float32)
    np.testing.assert_allclose(apply_taps(samples, taps), np.convolve(samples, taps), atol=1e-5)


@pytest.mark.parametrize("ppm", [-200.0, -1.0, 2.0, 50.0, 5000.0])
@pytest.mark.parametrize("start", [0, 10**9])
def test_clock_offset_compresses_time(ppm: float, start: int) -> None:
    """Oracle: the receiver's sample m shows the sender's instant m (1 + ppm 1e-6); a tone changes its frequency."""
    frequency = 0.31
    received, offset = resample_clock(tone(20_000, frequency), ppm, start)
    # Relative to start: double precision does not hold the phase of a tone that began 1e9 samples ago.
    index = np.arange(received.size) + offset
    positions = index + ppm * 1e-6 * (index + float(start))
    expected = np.exp(2j * np.pi * frequency * positions)
    inside = (positions > EDGE) & (positions < 20_000 - EDGE)
    assert np.count_nonzero(inside) > 19_500 / (1 + ppm * 1e-6)
    assert 20 * math.log10(np.abs(received - expected)[inside].max()) < -60.0
    # A tenth of the offset more is 2,000 samples' drift away from the truth at the far end.
    wrong = np.exp(2j * np.pi * frequency * (positions + 0.1 * ppm * 1e-6 * 20_000))
    assert np.abs(received - wrong)[inside].max() > 1e-3


def test_clock_offset_is_the_same_for_a_stream_in_pieces() -> None:
    start, cut, ppm = 10**8, 1234, 40.0
    whole, first = resample_clock(SAMPLES, ppm, start)
    together = np.zeros(whole.size, np.complex64)
    for begin, end in ((0, cut), (cut, SAMPLES.size)):
        part, offset = resample_clock(SAMPLES[begin:end], ppm, start + begin)
        at = begin + offset - first
        together[at : at + part.size] += part
    # Tangents are taken at other places: -80 dB at 40 ppm, of a signal that fills its band.
    np.testing.assert_allclose(together, whole, atol=1e-4 * float(np.abs(SAMPLES).max()))


def test_phase_noise_is_a_random_walk_of_the_given_step() -> None:
    """Oracle: increments are N(0, std^2), so their sum of squares over std^2 is chi-square."""
    std = 0.02
    phasors = phase_noise(50_000, std, np.random.default_rng(5))
    assert phasors.dtype == np.complex64
    np.testing.assert_allclose(np.abs(phasors), 1.0, atol=1e-6)
    walk = np.concatenate([[1.0], phasors.astype(np.complex128)])
    steps = np.angle(walk[1:] * walk[:-1].conj())
    assert chi_square_p_value(np.sum(steps**2) / std**2, steps.size) > NEVER
    assert chi_square_p_value(np.sum(steps**2) / (1.03 * std) ** 2, steps.size) < NEVER
    assert stats.kstest(steps / std, "norm").pvalue > NEVER
    assert abs(np.corrcoef(steps[1:], steps[:-1])[0, 1]) < 4 / math.sqrt(steps.size)


@pytest.mark.parametrize("image_db", [-20.0, -35.0, -60.0])
def test_image_is_at_the_given_level(image_db: float) -> None:
    """Oracle: the spectrum of a tone at bin 37 of 1,024, and its mirror at bin -37."""
    spectrum = np.fft.fft(iq_imbalance(tone(1024, 37 / 1024), image_db).astype(np.complex128)) / 1024
    assert 20 * math.log10(abs(spectrum[-37]) / abs(spectrum[37])) == pytest.approx(image_db, abs=0.05)
    assert abs(spectrum[37]) == pytest.approx(1.0, abs=1e-6)


def test_image_comes_half_from_gain_and_half_from_phase() -> None:
    """-35 dB: 0.22 dB between the gains of I and Q and 1.4 degrees between their phases, as documented."""
    real, imaginary = iq_imbalance(np.array([1.0, 1j], np.complex64), -35.0)
    assert 20 * math.log10(real.real / imaginary.imag) == pytest.approx(0.22, abs=0.005)
    skew = np.angle(real) + (np.pi / 2 - np.angle(imaginary))
    assert math.degrees(skew) == pytest.approx(1.44, abs=0.01)


def test_dc_is_at_the_given_level() -> None:
    leak = dc_offset(np.zeros(4, np.complex64), -30.0)
    np.testing.assert_allclose(20 * np.log10(np.abs(leak)), -30.0, atol=1e-4)
    np.testing.assert_array_equal(leak.real, leak.imag)


@pytest.mark.parametrize("smoothness", [1.0, 2.0, 3.0])
def test_amplifier_compresses_by_one_db_at_the_known_point(smoothness: float) -> None:
    """Oracle: Rapp's curve has |y|/|x| = 10^(-1/20) at |x|/A = (10^(p/10) - 1)^(1/(2p))."""
    saturation = 0.7
    drive = saturation * (10 ** (smoothness / 10) - 1) ** (0.5 / smoothness)
    sent = np.array([drive * np.exp(0.7j), 1e-4j], np.complex64)
    amplified = soft_limit(sent, saturation, smoothness)
    gain_db = 20 * np.log10(np.abs(amplified) / np.abs(sent))
    assert gain_db[0] == pytest.approx(-1.0, abs=1e-3)
    assert gain_db[1] == pytest.approx(0.0, abs=1e-3)
    np.testing.assert_allclose(np.angle(amplified), np.angle(sent), atol=1e-6)


@given(drive=st.floats(0.0, 1e4), smoothness=st.floats(0.5, 50.0), saturation=st.floats(0.01, 10.0))
@settings(max_examples=50, deadline=None)
def test_amplifier_never_exceeds_saturation(drive: float, smoothness: float, saturation: float) -> None:
    amplified = soft_limit(np.array([drive], np.complex64), saturation, smoothness)
    assert abs(amplified[0]) <= min(saturation, drive) * (1 + 1e-5)


def test_quantiser_gains_six_db_per_bit() -> None:
    """Oracle: uniform error of variance step^2/12 per axis, step = 1/(2^(b-1) - 1), hence 6.02 dB per bit."""
    rng = np.random.default_rng(6)
    samples = (rng.uniform(-1, 1, 100_000) + 1j * rng.uniform(-1, 1, 100_000)).astype(np.complex64)
    errors_db = {}
    for bits in (6, 8, 10, 12):
        quantised, clipped = quantise(samples, bits)
        assert clipped == 0
        power = float(np.mean(np.abs(quantised.astype(np.complex128) - samples) ** 2))
        step = 1 / (2 ** (bits - 1) - 1)
        # The error's square has a relative standard deviation of 0.9 per axis: 0.2 % for 200,000 of them.
        assert power == pytest.approx(2 * step**2 / 12, rel=0.01)
        errors_db[bits] = 10 * math.log10(power)
    assert (errors_db[8] - errors_db[12]) / 4 == pytest.approx(6.02, abs=0.05)
    assert (errors_db[6] - errors_db[12]) / 6 == pytest.approx(6.02, abs=0.08)


@given(bits=st.integers(2, 16), value=st.complex_numbers(max_magnitude=3.0))
@settings(max_examples=60, deadline=None)
def test_quantiser_saturates_counts_and_is_idempotent(bits: int, value: complex) -> None:
    samples = np.array([value, 0.0, 1.0, -1.0 - 1.0j], np.complex64)
    quantised, clipped = quantise(samples, bits)
    top = 2 ** (bits - 1) - 1
    assert max(np.abs(quantised.real).max(), np.abs(quantised.imag).max()) <= 1.0
    np.testing.assert_array_equal(quantised[1:], samples[1:])
    parts = np.array([samples[0].real, samples[0].imag])
    assert clipped == np.count_nonzero(np.abs(np.rint(parts * np.float32(top))) > top)
    np.testing.assert_array_equal(quantise(quantised, bits)[0], quantised)
    assert quantise(quantised, bits)[1] == 0


def test_overdrive_is_counted_per_axis_and_never_wraps() -> None:
    quantised, clipped = quantise(np.array([5.0, -5.0j, 2.0 + 2.0j, 0.5], np.complex64), 12)
    assert clipped == 4
    np.testing.assert_allclose(quantised[:3], [1.0, -1.0j, 1.0 + 1.0j])


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: rotate(SAMPLES, math.nan, 0), "cfo_cycles_per_sample"),
        (lambda: rotate(SAMPLES, 0.1, 0, math.inf), "phase_rad"),
        (lambda: fractional_delay(SAMPLES, -0.5), "delay_samples"),
        (lambda: fractional_delay(SAMPLES, math.nan), "delay_samples"),
        (lambda: apply_taps(SAMPLES, np.ones((2, 2), np.complex64)), "taps"),
        (lambda: apply_taps(SAMPLES, np.ones(0, np.complex64)), "taps"),
        (lambda: resample_clock(SAMPLES, 1e6, 0), "offset_ppm"),
        (lambda: phase_noise(3, -1.0, np.random.default_rng(0)), "std_rad_per_sqrt_sample"),
        (lambda: iq_imbalance(SAMPLES, 3.0), "image_db"),
        (lambda: dc_offset(SAMPLES, math.nan), "level_dbfs"),
        (lambda: soft_limit(SAMPLES, 0.0, 2.0), "saturation"),
        (lambda: soft_limit(SAMPLES, 1.0, 0.0), "smoothness"),
        (lambda: quantise(SAMPLES, 1), "bits"),
        (lambda: quantise(SAMPLES, 40), "bits"),
    ],
)
def test_impossible_values_are_refused_by_name(call: object, named: str) -> None:
    assert issubclass(SignalError, AirdpError)
    with pytest.raises(SignalError, match=f"{named}.* expected "):
        call()  # type: ignore[operator]


def test_wrong_level_of_an_image_would_be_seen() -> None:
    spectrum = np.fft.fft(iq_imbalance(tone(1024, 37 / 1024), -36.0).astype(np.complex128))
    assert 20 * math.log10(abs(spectrum[-37]) / abs(spectrum[37])) != pytest.approx(-35.0, abs=0.05)
