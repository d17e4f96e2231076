"""What a receiver's converter adds to a silence is no noise that counts."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from calibration.converter import LEAST_STEPS, converter_step
from calibration.noise import measure_noise, sigma_lower_bound
from calibration.pooling.noise_pool import NoisePool
from calibration.pooling.spectrum import spectrum_of
from calibration.silence import observe_silence
from hardware.radio.errors import CaptureError
from phy.impairments import quantise
from tests.calibration.silences import DEFAULT, NOISE_VAR_REAL, white

BITS = 8
STEP = 1.0 / (2.0 ** (BITS - 1) - 1.0)


def silence(steps: float, blocks: int, seed: int, offset: complex = 0.0) -> NDArray[np.complex64]:
    """Noise of that many steps per real value, rounded; zero lies at `offset` steps between two levels."""
    noise = white(blocks, np.random.default_rng(seed)) / np.float32(np.sqrt(NOISE_VAR_REAL))
    return quantise(((noise * np.float32(steps) + np.complex64(offset)) * np.float32(STEP)).astype(np.complex64), BITS)[
        0
    ]


def test_the_step_is_read_off_the_samples() -> None:
    rounded = silence(1.0, 64, seed=1)
    assert converter_step(rounded, rounded) == pytest.approx(STEP, rel=1e-5)
    smooth = white(64, np.random.default_rng(2))
    assert converter_step(smooth, smooth) ** 2 / 12.0 < 1e-9 * NOISE_VAR_REAL


@pytest.mark.parametrize("steps", [0.8, 1.0, 2.0])
def test_a_bound_leaves_out_what_rounding_adds(steps: float) -> None:
    """Oracle: the noise before the converter. Of 1 step 8 % more are seen behind it, which 2,048 blocks tell from it:
    their bound is 1 % below what they show."""
    samples = silence(steps, 2048, seed=3)
    truth = (steps * STEP) ** 2
    heard = spectrum_of(observe_silence(samples, DEFAULT))
    pooled = NoisePool.of(heard).bound(heard, 0.999)
    assert pooled.noise_var_real < truth
    assert sigma_lower_bound(measure_noise(samples, DEFAULT, 0.998)).noise_var_real < truth
    # What would be wrong: the same without the converter.
    shown = float(np.mean(heard.powers)) / 2.0
    assert shown == pytest.approx(truth + STEP**2 / 12.0, rel=0.01)
    assert shown > 1.015 * truth


@pytest.mark.parametrize("steps", [0.2, 0.5, 0.6])
def test_noise_that_rounding_hides_is_refused(steps: float) -> None:
    with pytest.raises(CaptureError, match="step of the receiver's converter"):
        observe_silence(silence(steps, 64, seed=4, offset=0.5 + 0.5j), DEFAULT)


def test_one_value_in_q_alone_is_refused() -> None:
    with pytest.raises(CaptureError, match="Q of the silence is one value"):
        observe_silence(silence(1.0, 64, seed=5).real.astype(np.complex64), DEFAULT)


def fisher_information(place: float, std: float) -> float:
    """Of the mean, in what is left of a Gaussian of `std` steps after rounding, by summing over the levels."""
    edges = (np.arange(-20, 22) - 0.5 - place) / std
    probability = np.diff(special.ndtr(edges))
    slope = -np.diff(np.exp(-(edges**2) / 2.0) / np.sqrt(2.0 * np.pi)) / std
    seen = probability > 1e-200
    return float(np.sum(slope[seen] ** 2 / probability[seen]))


def variance_shown(place: float, std: float) -> float:
    levels = np.arange(-20, 21)
    probability = np.diff(special.ndtr((np.arange(-20, 22) - 0.5 - place) / std))
    mean = float(np.sum(levels * probability))
    return float(np.sum((levels - mean) ** 2 * probability))


@pytest.mark.parametrize("std", [0.7, 0.8, 1.0, 3.0])
def test_no_signal_is_told_better_than_through_the_noise_that_counts(std: float) -> None:
    """Brute force over where signal and zero lie between two levels: information times counted noise is below 1."""
    places = np.linspace(0.0, 1.0, 41)
    shown = max(variance_shown(place, std) for place in places)
    assert shown >= LEAST_STEPS**2
    assert max(fisher_information(place, std) for place in places) * (shown - 1.0 / 12.0) < 1.0


def test_below_the_least_step_what_is_shown_would_be_a_lie() -> None:
    """With 0.2 of a step neighbours are twice as far apart as the shown noise says, 1.6 times without q^2/12."""
    places = np.linspace(0.0, 1.0, 41)
    information = max(fisher_information(place, 0.2) for place in places)
    shown = max(variance_shown(place, 0.2) for place in places)
    assert np.sqrt(information * shown) > 1.9
    assert np.sqrt(information * (shown - 1.0 / 12.0)) > 1.6
