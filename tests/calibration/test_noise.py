import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calibration.noise
from calibration.errors import MeasurementError
from calibration.noise import BoundSource, NoiseMeasurement, frequency_whiteness, measure_noise, sigma_lower_bound
from calibration.schema import to_json
from calibration.silence import observe_silence
from calibration.statistics import variance_factors, variance_lower_factor
from hardware.radio.errors import CaptureError
from phy.errors import AirdpError
from phy.impairments import iq_imbalance
from phy.numerology import Numerology
from tests.calibration.silences import (
    DEFAULT,
    NOISE_VAR_REAL,
    SMALL,
    coloured,
    coloured_noise_var_real,
    tone,
    white,
)

CALIBRATIONS = 1000


def calibrations(numerology: Numerology, runs: int = CALIBRATIONS) -> list[NoiseMeasurement]:
    rng = np.random.default_rng(20)
    return [measure_noise(white(16, rng, numerology), numerology) for _ in range(runs)]


def coverage(measurements: list[NoiseMeasurement]) -> float:
    """Share of calibrations whose 95 % interval holds the true sigma_c^2."""
    return float(np.mean([m.ci[0] <= NOISE_VAR_REAL <= m.ci[1] for m in measurements]))


@pytest.fixture(scope="module")
def small() -> list[NoiseMeasurement]:
    """1,000 calibrations on white noise."""
    return calibrations(SMALL)


def is_right(share: float) -> bool:
    """Within what 1,000 calibrations at 95 % give: two standard deviations of a binomial are 1.4 %."""
    return 0.935 <= share <= 0.965


def test_interval_covers_the_truth_as_often_as_it_says(small: list[NoiseMeasurement]) -> None:
    assert is_right(coverage(small))
    assert is_right(coverage(calibrations(DEFAULT)))


def test_coverage_notices_a_complex_variance_taken_for_a_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration.noise, "noise_var_real_from_complex", lambda noise_var_complex: noise_var_complex)
    assert not is_right(coverage(calibrations(SMALL)))


def test_coverage_notices_one_degree_of_freedom_per_complex_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration.noise, "variance_factors", lambda n, level: variance_factors(n // 2, level))
    assert not is_right(coverage(calibrations(SMALL)))


def test_intervals_of_single_subcarriers_cover_the_truth(small: list[NoiseMeasurement]) -> None:
    intervals = np.array([measurement.ci_per_bin for measurement in small])
    held = (intervals[..., 0] <= NOISE_VAR_REAL) & (intervals[..., 1] >= NOISE_VAR_REAL)
    # 48,000 intervals: the standard deviation of the share is 0.1 %.
    assert np.mean(held) == pytest.approx(0.95, abs=0.005)


def test_white_noise_is_accounted_by_its_quietest_subcarrier_too() -> None:
    measurement = measure_noise(white(256, np.random.default_rng(22)), DEFAULT)
    bound = sigma_lower_bound(measurement)
    assert bound.source is BoundSource.QUIETEST
    assert bound.bin == measurement.quietest.bin
    lost = measurement.impropriety.upper(0.0025)
    factor = variance_lower_factor(256, 0.0225)
    assert bound.noise_var_real == pytest.approx(factor * measurement.quietest.noise_var_real * (1 - lost))
    assert bound.noise_std_real == math.sqrt(bound.noise_var_real)
    assert bound.confidence == pytest.approx(0.975)


def test_bound_lies_below_the_truth_in_white_noise(small: list[NoiseMeasurement]) -> None:
    """Always in 1,000: the smallest of 48 equal subcarriers is far below the truth before the factor is applied."""
    assert all(sigma_lower_bound(measurement).noise_var_real <= NOISE_VAR_REAL for measurement in small)


def test_coloured_noise_is_accounted_by_its_quietest_subcarrier() -> None:
    rng = np.random.default_rng(24)
    truth = coloured_noise_var_real()
    measurements = [measure_noise(coloured(48, rng), DEFAULT) for _ in range(200)]
    bounds = [sigma_lower_bound(measurement) for measurement in measurements]
    for measurement, bound in zip(measurements, bounds, strict=True):
        quietest = int(np.argmin(measurement.noise_var_real_per_bin))
        assert bound.bin == measurement.bins[quietest] == measurement.quietest.bin
    below = np.mean([bound.noise_var_real <= truth.min() for bound in bounds])
    assert below >= bounds[0].confidence
    # What the accountant would have counted on without looking at subcarriers: 1.7 times too much noise.
    assert all(measurement.ci[0] > 1.6 * truth.min() for measurement in measurements)


def test_unequal_i_and_q_are_accounted_by_the_quieter() -> None:
    """An image at -30 dB: x + 0.0316 x*, whose I has (1 + 0.0316)^2 of the variance and Q (1 - 0.0316)^2."""
    rng = np.random.default_rng(38)
    truth = NOISE_VAR_REAL * (1.0 - 10.0**-1.5) ** 2
    measurements = [measure_noise(iq_imbalance(white(256, rng), -30.0), DEFAULT) for _ in range(60)]
    bounds = [sigma_lower_bound(measurement) for measurement in measurements]
    assert all("unequal I and Q may cost" in bound.reason for bound in bounds)
    assert all(bound.noise_var_real <= truth for bound in bounds)
    # Each cell taken for itself looks fine, and protects less than it seems to.
    assert all(measurement.ci[0] > 1.04 * truth for measurement in measurements)
    assert np.mean([measurement.impropriety.upper(0.0025) for measurement in measurements]) < 0.09


def test_per_subcarrier_noise_follows_the_true_spectrum() -> None:
    measurement = measure_noise(coloured(2000, np.random.default_rng(25)), DEFAULT)
    ratio = np.array(measurement.noise_var_real_per_bin) / coloured_noise_var_real()
    # Each has 4,000 degrees of freedom: a relative standard deviation of 2.2 %.
    assert np.all(np.abs(ratio - 1.0) < 0.1)
    assert np.mean(ratio) == pytest.approx(1.0, abs=0.01)


def test_quietest_bound_holds_for_all_subcarriers_at_once(small: list[NoiseMeasurement]) -> None:
    """Of 48 lower ends, each of 97.5 %, some lie above the truth most of the time: hence Bonferroni."""
    highest = np.array([max(measurement.noise_var_real_per_bin) for measurement in small])
    factor = small[0].quietest.noise_var_real_lower / small[0].quietest.noise_var_real
    assert np.mean(highest * factor <= NOISE_VAR_REAL) >= 0.965
    assert np.mean(highest * variance_factors(16, 0.95)[0] <= NOISE_VAR_REAL) < 0.5


@pytest.mark.parametrize(("slope_db", "lowest", "highest"), [(0.0, 0.0, 0.03), (0.2, 0.9, 1.0)])
def test_whiteness_test_sees_the_slope_that_the_bound_promises(slope_db: float, lowest: float, highest: float) -> None:
    rng = np.random.default_rng(27)
    slope = 10.0 ** (np.linspace(-slope_db / 2, slope_db / 2, 192) / 10.0)
    rejected = [frequency_whiteness(rng.gamma(1000.0, size=192) / 1000.0 * slope, 1000)[1] < 0.01 for _ in range(400)]
    assert lowest <= np.mean(rejected) <= highest


def test_dc_and_spurs_are_left_out_and_reported() -> None:
    rng = np.random.default_rng(28)
    noise = white(256, rng)
    steady = tone(noise.size, 40.0, 2e-3) + tone(noise.size, -70.37, 1e-3)
    capture = noise + steady + np.complex64(0.01j)
    measurement = measure_noise(capture, DEFAULT)
    assert measurement.ci[0] <= NOISE_VAR_REAL <= measurement.ci[1]
    assert measurement.excluded_bins == measurement.loud_bins == (256 - 70, 40)
    first, second = measurement.spurs
    assert first.bin == 40
    assert first.level_dbfs == pytest.approx(20 * math.log10(2e-3), abs=0.1)
    assert first.name.startswith("tone at +781.25 kHz in bin +40")
    assert second.bin == 256 - 70
    assert second.level_dbfs == pytest.approx(-60.0, abs=0.2)
    assert second.offset_hz == pytest.approx(-70.37 * DEFAULT.subcarrier_spacing_hz, abs=5.0)
    assert measurement.dc.level_dbfs == pytest.approx(-40.0, abs=0.05)
    # 256 samples of DC in one bin: 24 dB above -40 dBFS, over noise at -57 dBFS.
    assert measurement.dc.excess_db == pytest.approx(-40.0 + 24.08 + 56.99, abs=0.3)
    assert measurement.dc.p_value < 1e-9


def test_interference_that_is_no_tone_is_left_out_of_the_pooled_value() -> None:
    rng = np.random.default_rng(29)
    noise = white(64, rng)
    narrow = np.repeat(white(64, rng)[:64] * 8.0, 256) * tone(noise.size, 25.0, 1.0)
    measurement = measure_noise(noise + narrow, DEFAULT)
    assert 25 in measurement.loud_bins
    assert measurement.ci[0] <= NOISE_VAR_REAL <= measurement.ci[1]
    assert any(spur.bin == 25 for spur in measurement.spurs)


def test_tones_do_not_raise_the_bound() -> None:
    """Strong tones between bins leak into all subcarriers; as noise they would raise even the quietest of them."""
    rng = np.random.default_rng(30)
    for _ in range(20):
        noise = white(64, rng)
        alone = measure_noise(noise, DEFAULT)
        capture = noise + tone(noise.size, rng.integers(-90, 90) + rng.uniform(0.3, 0.7), 0.05) + np.complex64(0.02)
        disturbed = measure_noise(capture, DEFAULT)
        raw = observe_silence(capture, DEFAULT).raw_bin_power[DEFAULT.used_bins] / 2.0
        assert raw.min() > 1.05 * alone.quietest.noise_var_real
        assert disturbed.pooled_lower <= 1.002 * alone.pooled_lower
        assert disturbed.quietest.noise_var_real_lower <= 1.02 * alone.quietest.noise_var_real_lower


def test_excluding_quiet_subcarriers_does_not_raise_the_bound() -> None:
    rng = np.random.default_rng(31)
    for make in (white, coloured):
        capture = make(64, rng)
        plain = measure_noise(capture, DEFAULT)
        order = np.argsort(plain.noise_var_real_per_bin)
        quiet = [plain.bins[place] for place in order[:60]]
        picked = measure_noise(capture, DEFAULT, exclude_bins=quiet)
        assert picked.noise_var_real > plain.noise_var_real
        assert set(quiet) <= set(picked.excluded_bins)
        assert sigma_lower_bound(picked).noise_var_real <= sigma_lower_bound(plain).noise_var_real


def test_white_noise_has_few_spurs(small: list[NoiseMeasurement]) -> None:
    """1 % for subcarriers and 0.1 % for tones, over a capture."""
    assert np.mean([bool(measurement.spurs) for measurement in small]) < 0.03


@settings(max_examples=20, deadline=None)
@given(st.floats(min_value=1e-3, max_value=1e3), st.integers(min_value=0, max_value=1000))
def test_noise_scales_with_the_square_of_the_amplitude(scale: float, seed: int) -> None:
    capture = white(16, np.random.default_rng(seed), SMALL) * 0.1
    once = measure_noise(capture.astype(np.complex64), SMALL)
    scaled = measure_noise((capture * scale).astype(np.complex64), SMALL)
    assert scaled.noise_var_real == pytest.approx(once.noise_var_real * scale**2, rel=1e-4)
    assert scaled.whiteness_p == pytest.approx(once.whiteness_p, abs=1e-4)
    assert sigma_lower_bound(scaled).noise_std_real == pytest.approx(
        sigma_lower_bound(once).noise_std_real * scale, rel=1e-4
    )


def test_higher_confidence_gives_wider_intervals_and_a_lower_bound() -> None:
    capture = white(64, np.random.default_rng(33))
    mild, strict = (measure_noise(capture, DEFAULT, confidence=confidence) for confidence in (0.9, 0.999))
    assert strict.ci[0] < mild.ci[0] < mild.noise_var_real < mild.ci[1] < strict.ci[1]
    assert sigma_lower_bound(strict).noise_var_real < sigma_lower_bound(mild).noise_var_real


def bad_capture(kind: str) -> np.ndarray:
    capture = white(32, np.random.default_rng(34))
    match kind:
        case "short":
            return capture[: 16 * 256 - 1]
        case "zero":
            return np.zeros_like(capture)
        case "lost":
            capture[2560:2816] = 0
        case "nan":
            capture[1000] = complex("nan")
        case "infinite":
            capture[1000] = complex("inf")
        case "stuck":
            capture[:] = 0.25 + 0.5j
        case "saturated":
            return np.clip(capture.view(np.float32) * 1000.0, -1.0, 1.0).view(np.complex64)
        case "real":
            return capture.real
        case "matrix":
            return capture.reshape(2, -1)
    return capture


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("short", "4095 samples: expected at least 4096"),
        ("zero", "all zero"),
        ("lost", "zeros, the first at index 2560"),
        ("nan", "NaN or infinite samples, the first at index 1000"),
        ("infinite", "NaN or infinite"),
        ("stuck", "one value throughout"),
        ("saturated", "saturated.*lower rx_gain_db"),
        ("real", "expected complex64"),
        ("matrix", "shape"),
    ],
)
def test_captures_without_usable_noise_are_refused(kind: str, reason: str) -> None:
    with pytest.raises(CaptureError, match=reason) as caught:
        measure_noise(bad_capture(kind), DEFAULT)
    assert isinstance(caught.value, AirdpError)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, float("nan")])
def test_confidence_must_be_a_probability(confidence: float) -> None:
    with pytest.raises(MeasurementError, match="confidence"):
        measure_noise(white(16, np.random.default_rng(35)), DEFAULT, confidence=confidence)


def test_excluded_bins_must_exist_and_leave_some() -> None:
    capture = white(16, np.random.default_rng(36))
    with pytest.raises(MeasurementError, match="exclude_bins has 256"):
        measure_noise(capture, DEFAULT, exclude_bins=[256])
    with pytest.raises(MeasurementError, match="every used subcarrier is excluded"):
        measure_noise(capture, DEFAULT, exclude_bins=range(256))


@pytest.fixture(scope="module")
def measurement() -> NoiseMeasurement:
    return measure_noise(white(16, np.random.default_rng(37), SMALL), SMALL)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("noise_var_real", lambda m: {"noise_var_real": 2 * m.noise_var_real}),
        (r"ci\[0\]", lambda m: {"ci": (m.ci[0] * 1.2, m.ci[1])}),
        ("blocks|ci", lambda m: {"blocks": 2 * m.blocks}),
        ("confidence", lambda m: {"confidence": 1.0}),
        ("quietest", lambda m: {"quietest": dataclasses.replace(m.quietest, noise_var_real_lower=1.0)}),
        ("ci_per_bin", lambda m: {"ci_per_bin": m.ci_per_bin[1:]}),
        ("excluded_bins", lambda m: {"excluded_bins": m.bins}),
        ("excluded_bins", lambda m: {"loud_bins": (m.bins[0],)}),
        ("whiteness_p", lambda m: {"whiteness_p": 1.5}),
        ("impropriety", lambda m: {"impropriety": dataclasses.replace(m.impropriety, size=2.0)}),
    ],
)
def test_a_measurement_whose_parts_disagree_cannot_exist(measurement: NoiseMeasurement, name: str, change) -> None:
    with pytest.raises(MeasurementError, match=name):
        dataclasses.replace(measurement, **change(measurement))


def test_json_has_the_promised_keys(measurement: NoiseMeasurement) -> None:
    value = json.loads(json.dumps(to_json(measurement), allow_nan=False))
    assert value["noise_var_real"] == measurement.noise_var_real
    assert value["ci"] == list(measurement.ci)
    assert value["confidence"] == 0.95
    assert json.loads(json.dumps(to_json(sigma_lower_bound(measurement))))["source"] == "quietest"
