import dataclasses
import json
from collections.abc import Callable

import numpy as np
import pytest
from scipy import signal, stats

from calibration.diagnostics import NoiseDiagnostics, diagnose, holm, holm_corrected
from calibration.errors import MeasurementError
from calibration.schema import to_json
from hardware.radio.errors import CaptureError
from phy.impairments import quantise
from tests.calibration.silences import DEFAULT, tone, white

NAMES = ("white_frequency", "white_time", "gaussian_body", "gaussian_tails", "circular", "stationary")
RUNS = 400


@pytest.fixture(scope="module")
def good() -> list[NoiseDiagnostics]:
    """Diagnostics of white circular Gaussian noise in the shortest captures, where approximations are worst."""
    rng = np.random.default_rng(40)
    return [diagnose(white(16, rng), DEFAULT) for _ in range(RUNS)]


@pytest.mark.parametrize("name", NAMES)
def test_p_values_are_uniform_on_good_noise(good: list[NoiseDiagnostics], name: str) -> None:
    p_values = np.array([diagnostics.test(name).p_value for diagnostics in good])
    assert stats.kstest(p_values, "uniform").pvalue > 0.003
    # The check sees p-values that are off: 7 % rejected where 3 % are stated.
    assert stats.kstest(p_values**1.35, "uniform").pvalue < 0.003


def test_good_noise_fails_as_rarely_as_the_level_says(good: list[NoiseDiagnostics]) -> None:
    """1 % of 400: 4 expected, more than 11 have a probability of 0.1 %."""
    assert sum(not diagnostics.passed for diagnostics in good) <= 11
    assert good[0].passed
    assert good[0].bound_holds
    assert good[0].verdict.startswith("noise: Gaussian, white, circular and stationary")


def uniform(blocks: int, rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(-1e-3, 1e-3, (blocks * 256, 2)).astype(np.float32).view(np.complex64)[:, 0]


def heavy(blocks: int, rng: np.random.Generator) -> np.ndarray:
    return white(blocks, rng) * np.where(rng.random(blocks * 256) < 1e-3, 6.0, 1.0)


def autoregressive(blocks: int, rng: np.random.Generator) -> np.ndarray:
    return signal.lfilter([1.0], [1.0, -0.1], white(blocks, rng))


def echo(blocks: int, rng: np.random.Generator) -> np.ndarray:
    noise = white(blocks, rng)
    return noise + 0.1 * np.roll(noise, 300)


def unequal(blocks: int, rng: np.random.Generator) -> np.ndarray:
    noise = white(blocks, rng)
    return noise.real * np.sqrt(1.05) + 1j * noise.imag


def correlated(blocks: int, rng: np.random.Generator) -> np.ndarray:
    noise = white(blocks, rng)
    return noise.real + 1j * (noise.imag + 0.05 * noise.real)


def drifting(blocks: int, rng: np.random.Generator) -> np.ndarray:
    return white(blocks, rng) * np.sqrt(np.linspace(1.0, 1.05, blocks * 256))


@pytest.mark.parametrize(
    ("make", "blocks", "names"),
    [
        (uniform, 64, {"gaussian_body", "gaussian_tails"}),
        (heavy, 64, {"gaussian_tails"}),
        (autoregressive, 64, {"white_frequency"}),
        (echo, 192, {"white_time"}),
        (unequal, 256, {"circular"}),
        (correlated, 256, {"circular"}),
        (drifting, 1024, {"stationary"}),
    ],
)
def test_each_test_sees_its_defect(make: Callable[..., np.ndarray], blocks: int, names: set[str]) -> None:
    rng = np.random.default_rng(41)
    runs = 15
    found = [diagnose(make(blocks, rng).astype(np.complex64), DEFAULT) for _ in range(runs)]
    for name in names:
        assert sum(not diagnostics.test(name).passed for diagnostics in found) >= 0.9 * runs
    # Defects are told apart: what belongs to another test is rarely rejected. Impulses make powers jump as well.
    others = set(NAMES) - names - ({"gaussian_body", "stationary", "circular"} if make is heavy else set())
    for name in others:
        assert sum(not diagnostics.test(name).passed for diagnostics in found) <= 2
    failed = next(diagnostics for diagnostics in found if not diagnostics.passed)
    assert failed.verdict.startswith("not the noise that the accounting assumes: ")
    assert any(name in failed.verdict for name in names)
    assert failed.bound_holds == (names <= {"white_frequency", "circular"})


def test_spurs_and_dc_do_not_make_noise_fail() -> None:
    noise = white(128, np.random.default_rng(42))
    capture = noise + tone(noise.size, 33.3, 5e-3) + np.complex64(0.01)
    assert diagnose(capture, DEFAULT).passed


def test_what_a_filter_does_outside_the_used_band_does_not_matter() -> None:
    spectrum = np.fft.fft(white(128, np.random.default_rng(43)))
    spectrum[np.abs(np.fft.fftfreq(spectrum.size)) > 0.42] = 0.0
    assert diagnose(np.fft.ifft(spectrum).astype(np.complex64), DEFAULT).passed


def test_noise_of_a_few_converter_steps_passes() -> None:
    """12 bits: noise of 2 steps, as at a low receiver gain."""
    noise = white(128, np.random.default_rng(44))
    quantised, _ = quantise((noise * np.float32(2.0 / 2048 / 1e-3)).astype(np.complex64), 12)
    assert diagnose(quantised, DEFAULT).passed


def test_noise_far_below_a_converter_step_is_refused() -> None:
    noise = white(128, np.random.default_rng(45))
    quantised, _ = quantise((noise * np.float32(0.25 / 2048 / 1e-3)).astype(np.complex64), 12)
    with pytest.raises(CaptureError, match="raise rx_gain_db"):
        diagnose(quantised, DEFAULT)


def test_corrected_p_values_are_compared_with_the_level_itself() -> None:
    """By hand: times 6 and times 5; 0.004 of six tests is no rejection at 0.01, although it is below it."""
    p_values = [0.9, 0.004, 0.5, 0.3, 0.0011, 0.7]
    corrected = holm_corrected(p_values)
    assert corrected[4] == pytest.approx(0.0066)
    assert corrected[1] == pytest.approx(0.02)
    assert corrected[3] == 1.0
    assert holm(p_values, 0.01) == [False, False, False, False, True, False]
    assert holm_corrected([]) == []


def test_holm_rejects_step_by_step() -> None:
    """Oracle: Holm's own rule, p_(k) <= level / (m - k + 1), until the first that is not."""
    assert holm([0.001, 0.02, 0.04, 0.9], 0.05) == [True, False, False, False]
    assert holm([0.9, 0.012, 0.016, 0.02], 0.05) == [False, True, True, True]
    assert holm([0.013, 0.9], 0.05) == [True, False]


def test_verdicts_follow_from_p_values() -> None:
    diagnostics = diagnose(white(16, np.random.default_rng(46)), DEFAULT)
    with pytest.raises(MeasurementError, match="verdict"):
        dataclasses.replace(diagnostics, passed=False)
    with pytest.raises(MeasurementError, match="p-value"):
        dataclasses.replace(diagnostics.tests[0], p_value=1.5)
    with pytest.raises(MeasurementError, match="no test 'colour': there are white_frequency"):
        diagnostics.test("colour")


def test_bad_captures_and_levels_are_refused() -> None:
    with pytest.raises(CaptureError, match="all zero"):
        diagnose(np.zeros(8192, dtype=np.complex64), DEFAULT)
    with pytest.raises(MeasurementError, match="level"):
        diagnose(white(16, np.random.default_rng(47)), DEFAULT, level=0.0)


def test_json_has_every_test() -> None:
    value = json.loads(json.dumps(to_json(diagnose(white(16, np.random.default_rng(48)), DEFAULT)), allow_nan=False))
    assert {test["name"] for test in value["tests"]} == set(NAMES)
    assert set(value) == {"level", "tests", "passed", "verdict"}
