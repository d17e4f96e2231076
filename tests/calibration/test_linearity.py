import json

import numpy as np
import pytest

from calibration.errors import MeasurementError
from calibration.linearity import Verdict, gain_change_bound, measure_attenuator, measure_linearity
from calibration.schema import to_json

STEPS_DB = np.arange(0.0, 10.25, 0.25)


def received(levels: np.ndarray, std: float, rng: np.random.Generator, repeats: int = 1) -> np.ndarray:
    noise = rng.standard_normal((levels.size, repeats, 2)) * std
    gains = levels[:, None] * np.exp(0.4j) + noise[..., 0] + 1j * noise[..., 1]
    return gains[:, 0] if repeats == 1 else gains


def test_a_linear_transmitter_is_within_tolerance() -> None:
    amplitudes = np.linspace(0.1, 1.0, 10)
    gains = received(0.05 * amplitudes, 2e-6, np.random.default_rng(70))
    result = measure_linearity(amplitudes, gains, 2e-6)
    assert result.verdict is Verdict.WITHIN
    assert result.gain_db == pytest.approx(20 * np.log10(0.05), abs=0.01)
    assert result.slope_db_per_db == pytest.approx(1.0, abs=5 * result.slope_std)
    assert result.largest_deviation_ci_db[0] <= result.largest_deviation_db <= result.largest_deviation_ci_db[1]


def test_compression_is_beyond_tolerance_and_found_at_the_top() -> None:
    """Oracle: a saturation of 1 dB at full scale, spread over the fit."""
    amplitudes = np.linspace(0.1, 1.0, 10)
    compressed = amplitudes / (1.0 + (10 ** (1 / 10) - 1) * amplitudes**4) ** 0.5
    result = measure_linearity(amplitudes, received(compressed, 1e-5, np.random.default_rng(71)), 1e-5)
    assert result.verdict is Verdict.BEYOND
    assert result.largest_at_db == pytest.approx(0.0)
    assert 0.4 < result.largest_deviation_db <= 1.0
    assert result.slope_db_per_db < 1.0


def test_a_wrong_attenuator_step_is_found() -> None:
    """0.25 dB steps of which one, from 5 dB on, is 0.4 dB."""
    levels = 10.0 ** (-(STEPS_DB + np.where(STEPS_DB >= 5.0, 0.15, 0.0)) / 20.0)
    result = measure_attenuator(STEPS_DB, received(levels, 1e-5, np.random.default_rng(72)), 1e-5, tolerance_db=0.05)
    assert result.kind == "attenuator"
    assert result.largest_step_error_db == pytest.approx(0.15, abs=0.01)
    assert result.verdict is Verdict.BEYOND


def test_exact_attenuator_steps_are_within_tolerance() -> None:
    levels = 10.0 ** (-STEPS_DB / 20.0)
    result = measure_attenuator(STEPS_DB, received(levels, 1e-4, np.random.default_rng(73)), 1e-4, tolerance_db=0.05)
    assert result.verdict is Verdict.WITHIN


def test_too_much_noise_leaves_the_question_open() -> None:
    levels = 10.0 ** (-STEPS_DB / 20.0)
    result = measure_attenuator(STEPS_DB, received(levels, 0.01, np.random.default_rng(74)), 0.01, tolerance_db=0.05)
    assert result.verdict is Verdict.UNDECIDED


def test_interval_holds_the_largest_true_deviation_as_often_as_stated() -> None:
    """True deviations: one setting 0.1 dB high, less the tenth of it that the fitted constant takes."""
    rng = np.random.default_rng(75)
    amplitudes = np.geomspace(0.3, 1.0, 10)
    levels = amplitudes.copy()
    levels[4] *= 10 ** (0.1 / 20)
    held, scattered = [], []
    for _ in range(400):
        result = measure_linearity(amplitudes, received(levels, 0.002, rng), 0.002)
        true_db = 20 * np.log10(levels / amplitudes)
        largest = np.max(np.abs(true_db - true_db.mean()))
        held.append(result.largest_deviation_ci_db[0] <= largest <= result.largest_deviation_ci_db[1])
        scattered.append(result.deviation_db[0] - (true_db - true_db.mean())[0])
    assert np.mean(held) >= 0.94
    assert np.std(scattered) == pytest.approx(result.deviation_std_db[0], rel=0.12)


def test_repetitions_give_the_uncertainty() -> None:
    amplitudes = np.linspace(0.2, 1.0, 8)
    gains = received(amplitudes, 1e-3, np.random.default_rng(76), repeats=40)
    result = measure_linearity(amplitudes, gains)
    expected = 20 / np.log(10) * 1e-3 / np.sqrt(40) / amplitudes
    # Each deviation is from the mean of all eight.
    deviation = np.sqrt(expected**2 * (1 - 2 / 8) + np.sum(expected**2) / 64)
    assert result.deviation_std_db == pytest.approx(deviation.tolist(), rel=0.1)


def test_bad_settings_and_gains_are_refused() -> None:
    amplitudes = np.array([0.1, 0.5, 1.0])
    gains = amplitudes.astype(np.complex128)
    for arguments, reason in (
        ((amplitudes[:2], gains[:2], 1e-3), "3 or more"),
        ((np.array([0.0, 0.5, 1.0]), gains, 1e-3), "above 0"),
        ((np.array([0.5, 0.5, 0.5]), gains, 1e-3), "all set amplitudes are equal"),
        ((amplitudes, gains[:2], 1e-3), "received gains of shape"),
        ((amplitudes, gains * np.nan, 1e-3), "finite"),
        ((amplitudes, gains, None), "gain_std is missing"),
        ((amplitudes, gains, 0.0), "not above 0"),
        ((amplitudes, gains, 0.05), "setting number 0 was received less than 20 dB"),
        ((amplitudes, gains, 1e-3, -1.0), "tolerance_db"),
        ((amplitudes, gains, 1e-3, 0.1, 1.0), "confidence"),
    ):
        with pytest.raises(MeasurementError, match=reason):
            measure_linearity(*arguments)


def test_json_names_the_verdict() -> None:
    amplitudes = np.linspace(0.1, 1.0, 5)
    result = measure_linearity(amplitudes, received(amplitudes, 1e-5, np.random.default_rng(77)), 1e-5)
    assert json.loads(json.dumps(to_json(result), allow_nan=False))["verdict"] == "within tolerance"


def compressed(amplitudes: np.ndarray, at_full_scale: float) -> np.ndarray:
    """A saturation whose gain is `at_full_scale` of the small-signal gain at amplitude 1."""
    return amplitudes / (1.0 + (at_full_scale**-4 - 1.0) * amplitudes**4) ** 0.25


def test_the_change_of_gain_below_full_scale_is_bounded_as_often_as_stated() -> None:
    """Truth: 0.99 at full scale against the least level, where 1e-6 of the compression is left."""
    rng = np.random.default_rng(78)
    amplitudes = 10 ** (-np.arange(0.0, 25.0, 3.0) / 20)
    std = 5e-4 * amplitudes.min()
    truth = float(np.max(compressed(amplitudes, 0.99) / amplitudes) / 0.99)
    bounds = []
    for _ in range(200):
        gains = received(compressed(amplitudes, 0.99), std * np.sqrt(2), rng, repeats=2)
        bounds.append(gain_change_bound(measure_linearity(amplitudes, gains, std * np.sqrt(2)), -12.0, 0.9))
    missed = np.mean(np.array(bounds) < truth)
    assert missed < 0.1 + 5 * np.sqrt(0.09 / 200)
    assert np.median(bounds) < truth + 0.003


def test_expansion_counts_as_compression_does() -> None:
    amplitudes = np.array([1.0, 0.5, 0.25])
    for gains in (np.array([1.03, 0.5, 0.25]), np.array([1.0, 0.515, 0.2575])):
        result = measure_linearity(amplitudes, gains + 0j, 1e-6)
        assert gain_change_bound(result, -12.0, 0.999) == pytest.approx(1.03, abs=1e-3)


def test_uncertainties_of_levels_come_back_from_those_of_deviations() -> None:
    """Oracle: far below the noise of the last level all others are exact, so its own uncertainty decides."""
    amplitudes = np.array([1.0, 0.5, 0.25, 0.125])
    stds = np.array([1e-9, 1e-9, 1e-9, 1e-3])
    bound = gain_change_bound(measure_linearity(amplitudes, amplitudes + 0j, stds), -18.0, 0.999)
    assert bound == pytest.approx(1 + 8e-3 * 3.587, rel=1e-3)  # the normal quantile of 1e-3 / 6


def test_levels_that_were_not_measured_bound_nothing() -> None:
    amplitudes = 10 ** (-np.array([0.0, 3.0, 6.0]) / 20)
    result = measure_linearity(amplitudes, amplitudes + 0j, 1e-5)
    assert gain_change_bound(result, -6.0, 0.99) >= 1.0
    with pytest.raises(MeasurementError, match=r"from 0\.0 to -6\.0 dB: expected 0 to -11\.4 dB"):
        gain_change_bound(result, -11.4, 0.99)
    weaker = measure_linearity(0.5 * amplitudes, amplitudes + 0j, 1e-5)
    with pytest.raises(MeasurementError, match=r"from -6\.0 to -12\.0 dB"):
        gain_change_bound(weaker, -9.0, 0.99)
    with pytest.raises(MeasurementError, match="confidence"):
        gain_change_bound(result, -6.0, 1.0)
