import numpy as np
import pytest

from calibration.errors import MeasurementError
from calibration.spurs import MOST_TONES, Spur, bin_name, loud_bins, remove_spurs, signed_bin
from tests.calibration.silences import DEFAULT, NOISE_VAR_REAL, tone, white


def test_frequency_of_a_tone_reaches_its_cramer_rao_bound() -> None:
    """Oracle: var(f) = 6 / ((2 pi)^2 snr n (n^2 - 1)) for a tone of unknown phase (Rife and Boorstyn, 1974)."""
    rng = np.random.default_rng(50)
    amplitude, count = 3e-4, 4096
    errors = []
    for _ in range(200):
        bins = rng.uniform(-100.0, 100.0)
        _, _, (spur, *_) = remove_spurs(white(16, rng) + tone(count, bins, amplitude), DEFAULT)
        errors.append(spur.offset_hz / 5e6 - bins / 256)
    snr = amplitude**2 / (2.0 * NOISE_VAR_REAL)
    bound = np.sqrt(6.0 / ((2.0 * np.pi) ** 2 * snr * count * (count**2 - 1.0)))
    assert 0.85 * bound < np.sqrt(np.mean(np.square(errors))) < 1.2 * bound


def test_removing_a_tone_leaves_the_noise() -> None:
    rng = np.random.default_rng(51)
    noise = white(64, rng)
    rest, _, spurs = remove_spurs(noise + tone(noise.size, 12.4, 0.1), DEFAULT)
    assert len(spurs) == 1
    # Three parameters were fitted: the rest differs from the noise by about as many values of it.
    error = float(np.sum(np.abs(rest - (noise - noise.mean())) ** 2))
    assert error < 20 * 2 * NOISE_VAR_REAL


def test_two_tones_in_one_bin_are_one_spur() -> None:
    noise = white(256, np.random.default_rng(52))
    capture = noise + tone(noise.size, 20.1, 2e-3) + tone(noise.size, 20.3, 1e-3)
    _, _, spurs = remove_spurs(capture, DEFAULT)
    (spur,) = spurs
    assert spur.bin == 20
    assert spur.name.startswith("wavering tone")
    assert 10.0 ** (spur.level_dbfs / 10.0) == pytest.approx(5e-6, rel=0.1)


def test_many_tones_end_the_search() -> None:
    rng = np.random.default_rng(53)
    capture = white(16, rng)
    for bins in range(-100, 100, 5):
        capture = capture + tone(capture.size, bins + 0.5, 5e-3)
    _, _, spurs = remove_spurs(capture, DEFAULT)
    assert 0 < len(spurs) <= MOST_TONES


def test_a_slope_across_the_band_has_no_loud_bins() -> None:
    rng = np.random.default_rng(54)
    slope = 10.0 ** (np.linspace(-0.5, 0.5, 192))
    loud, _ = loud_bins(rng.gamma(100.0, size=192) / 100.0 * slope, 100)
    assert not loud.any()


def test_loud_bins_are_found_beside_each_other_and_at_the_edge() -> None:
    powers = np.random.default_rng(55).gamma(100.0, size=192) / 100.0
    powers[[0, 50, 51, 52, 191]] *= 3.0
    loud, p_values = loud_bins(powers, 100)
    assert np.flatnonzero(loud).tolist() == [0, 50, 51, 52, 191]
    assert np.all(p_values[loud] < 1e-4)


def test_few_subcarriers_have_no_neighbours_to_stand_out_of() -> None:
    loud, p_values = loud_bins(np.array([1.0, 100.0, 1.0]), 100)
    assert not loud.any()
    assert np.all(p_values == 1.0)


def test_bins_are_named_by_sign_and_frequency() -> None:
    assert signed_bin(255, DEFAULT) == -1
    assert bin_name(37, DEFAULT) == "bin +37 (+722.7 kHz)"
    assert bin_name(219, DEFAULT) == "bin -37 (-722.7 kHz)"


def test_a_capture_without_dc_has_a_level_that_json_can_hold() -> None:
    noise = white(16, np.random.default_rng(56))
    _, dc, _ = remove_spurs(noise - noise.mean(), DEFAULT)
    assert np.isfinite(dc.level_dbfs)
    assert dc.p_value == pytest.approx(1.0)


def test_impossible_spurs_cannot_exist() -> None:
    with pytest.raises(MeasurementError, match="bin -1"):
        Spur("x", -1, 0.0, 0.0, 0.0, 0.5)
    with pytest.raises(MeasurementError, match="p-value"):
        Spur("x", 1, 0.0, 0.0, 0.0, 2.0)
