"""Two silences compared: right as often as stated where nothing changed, and a change is found."""

import numpy as np
import pytest

from calibration.errors import MeasurementError
from calibration.noise import NoiseMeasurement, measure_noise
from calibration.pooling.agreement import noise_change
from phy.numerology import Numerology
from tests.calibration.silences import DEFAULT, SMALL, coloured, tone, white


def silence(blocks: int, rng: np.random.Generator, scale_db: float = 0.0, colour: bool = False) -> NoiseMeasurement:
    samples = coloured(blocks, rng, SMALL) if colour else white(blocks, rng, SMALL)
    return measure_noise((samples * 10 ** (scale_db / 20)).astype(np.complex64), SMALL)


@pytest.mark.parametrize("colour", [False, True])
def test_the_interval_holds_the_change_and_the_p_value_is_uniform(colour: bool) -> None:
    """600 pairs, true change 0.3 dB: an interval that misses 1 in 20 misses 30 +- 5.3 of them."""
    rng = np.random.default_rng(200)
    held, p_values = [], []
    for number in range(600):
        then = silence(64, rng, colour=colour)
        now = silence(16, rng, scale_db=0.3 * (number % 2), colour=colour)
        change = noise_change(then, now, 0.05)
        held.append(change.ci_db[0] <= 0.3 * (number % 2) <= change.ci_db[1])
        if number % 2 == 0:
            p_values.append(change.p_value)
    assert abs(np.mean(held) - 0.95) < 5 * np.sqrt(0.05 * 0.95 / 600)
    # A uniform p-value has the mean 1/2 and the variance 1/12.
    assert abs(np.mean(p_values) - 0.5) < 5 * np.sqrt(1 / 12 / 300)


@pytest.mark.parametrize("scale_db", [-3.0, -0.8, 0.8, 3.0])
def test_a_change_is_found_with_its_size(scale_db: float) -> None:
    rng = np.random.default_rng(201)
    change = noise_change(silence(256, rng), silence(64, rng, scale_db), 1e-6)
    assert change.p_value < 1e-6
    assert change.ratio_db == pytest.approx(scale_db, abs=0.5)
    assert change.beyond(0.2)
    assert change.beyond(1.0) == (abs(scale_db) > 1.0)


def test_no_change_is_not_found() -> None:
    rng = np.random.default_rng(202)
    change = noise_change(silence(256, rng), silence(64, rng), 1e-6)
    assert change.p_value > 1e-4
    assert not change.beyond(0.0)


def test_a_spur_in_either_silence_does_not_count() -> None:
    rng = np.random.default_rng(203)
    quiet = white(64, rng, SMALL)
    spoilt = (quiet + tone(quiet.size, 9.3, 3e-2, SMALL)).astype(np.complex64)
    then, now = measure_noise(quiet, SMALL), measure_noise(spoilt, SMALL)
    assert now.excluded_bins
    for change in (noise_change(then, now, 1e-6), noise_change(now, then, 1e-6)):
        assert abs(change.ratio_db) < 0.05


def test_what_cannot_be_compared_is_refused() -> None:
    rng = np.random.default_rng(204)
    one = silence(16, rng)
    with pytest.raises(MeasurementError, match="other subcarriers"):
        noise_change(one, measure_noise(white(16, rng, DEFAULT), DEFAULT), 1e-6)
    numerology = Numerology(fft_size=64, cp_samples=16, data_subcarriers=48)
    used = [int(number) for number in numerology.used_bins]
    lower = measure_noise(white(16, rng, numerology), numerology, exclude_bins=used[:24])
    upper = measure_noise(white(16, rng, numerology), numerology, exclude_bins=used[24:])
    with pytest.raises(MeasurementError, match="free of spurs in both"):
        noise_change(lower, upper, 1e-6)
    with pytest.raises(MeasurementError, match="error"):
        noise_change(one, one, 0.0)
