import dataclasses
import json

import numpy as np
import pytest

from calibration.errors import MeasurementError
from calibration.links import LinkMeasurement, gain_upper_bound, measure_link, measure_sounding, residual_phase
from calibration.schema import to_json
from phy.fading import circular_noise
from phy.frame import SoundingFrame, sounding_cells, sounding_samples
from phy.impairments import fractional_delay, rotate
from phy.numerology import Numerology

NUMEROLOGY = Numerology()
GAIN, DELAY, CFO_HZ = 0.8 * np.exp(0.7j), 3.37, 812.3


def received(symbols: int, noise_var_real: float, rng: np.random.Generator) -> np.ndarray:
    """Cells of a sounding over one path, by the model of `calibration.links`."""
    pilots = sounding_cells(NUMEROLOGY, symbols)
    slope = np.exp(-2j * np.pi * NUMEROLOGY.used_frequencies * DELAY)
    places = (np.arange(symbols) - (symbols - 1) / 2.0) * NUMEROLOGY.symbol_samples / NUMEROLOGY.sample_rate_hz
    cells = GAIN * slope * pilots * np.exp(2j * np.pi * CFO_HZ * places)[:, None]
    noise = circular_noise(cells.size, noise_var_real, rng).reshape(cells.shape)
    return (cells + noise).astype(np.complex64)


@pytest.mark.parametrize(("symbols", "noise_var_real"), [(2, 0.003), (4, 0.03), (16, 0.3)])
def test_errors_are_as_large_as_their_uncertainties(symbols: int, noise_var_real: float) -> None:
    """Estimates are unbiased, and their scatter is the standard uncertainty that comes with them."""
    rng = np.random.default_rng(60)
    pilots = sounding_cells(NUMEROLOGY, symbols)
    truth = GAIN * np.exp(-2j * np.pi * NUMEROLOGY.used_frequencies * DELAY)
    scaled = []
    for _ in range(250):
        link = measure_link(received(symbols, noise_var_real, rng), pilots, NUMEROLOGY)
        gains = (np.array(link.gain_per_subcarrier) - truth) / link.gain_per_subcarrier_std
        scaled.append(
            [
                (abs(link.gain) - abs(GAIN)) / link.gain_std,
                np.angle(link.gain / GAIN) / (link.gain_std / abs(GAIN)),
                (link.delay_samples - DELAY) / link.delay_samples_std,
                (link.cfo_hz - CFO_HZ) / link.cfo_hz_std,
                gains[5].real,
                gains[-1].imag,
            ]
        )
    errors = np.array(scaled)
    # Of 250 values the mean scatters by 0.063 and the standard deviation by 0.045.
    assert np.all(np.abs(errors.mean(axis=0)) < 0.22)
    assert np.all(np.abs(errors.std(axis=0) - 1.0) < 0.16)


def test_residual_noise_and_snr_are_those_of_the_sounding() -> None:
    pilots = sounding_cells(NUMEROLOGY, 16)
    link = measure_link(received(16, 0.01, np.random.default_rng(61)), pilots, NUMEROLOGY)
    assert link.residual_noise_var_real == pytest.approx(0.01, rel=0.05)
    expected_db = 10 * np.log10(0.64 * np.mean(np.abs(pilots) ** 2) / 0.02)
    assert link.snr_db == pytest.approx(expected_db, abs=0.2)


def test_gain_bound_holds_on_all_subcarriers_at_once() -> None:
    rng = np.random.default_rng(62)
    pilots = sounding_cells(NUMEROLOGY, 2)
    links = [measure_link(received(2, 0.02, rng), pilots, NUMEROLOGY) for _ in range(150)]
    assert np.mean([np.all(gain_upper_bound(link, 0.95) >= abs(GAIN)) for link in links]) >= 0.93
    # The plain estimates would understate the sensitivity on half of the subcarriers.
    assert np.mean([np.abs(link.gain_per_subcarrier) >= abs(GAIN) for link in links]) < 0.6


def test_phase_noise_shows_in_the_residual_phase() -> None:
    rng = np.random.default_rng(63)
    symbols = 32
    pilots = sounding_cells(NUMEROLOGY, symbols)
    clean = received(symbols, 1e-4, rng)
    shaken = (clean * np.exp(0.1j * rng.standard_normal(symbols))[:, None]).astype(np.complex64)
    calm, rough = (
        residual_phase(cells, pilots, NUMEROLOGY, measure_link(cells, pilots, NUMEROLOGY)) for cells in (clean, shaken)
    )
    assert calm.shape == (symbols,)
    assert np.std(calm) < 0.005
    assert np.std(rough) == pytest.approx(0.1, rel=0.35)


def sounding_capture(delay: float, cfo_hz: float, gain: complex, noise_var_real: float, seed: int) -> np.ndarray:
    frame = SoundingFrame(NUMEROLOGY, 8)
    capture = np.zeros(frame.length + 1500, dtype=np.complex64)
    shifted = fractional_delay(sounding_samples(frame), delay)
    begin = 500 + shifted.offset
    capture[begin : begin + shifted.samples.size] = gain * shifted.samples
    turned = rotate(capture, cfo_hz / NUMEROLOGY.sample_rate_hz, 0)
    return turned + circular_noise(capture.size, noise_var_real, np.random.default_rng(seed))


def test_a_sounding_is_found_and_measured_in_a_capture() -> None:
    frame = SoundingFrame(NUMEROLOGY, 8)
    capture = sounding_capture(7.4, 2345.0, 0.05j, 1e-6, 64)
    link = measure_sounding(capture, frame, "client-3", expected_start_sample=500)
    assert link.transmitter == "client-3"
    # Five standard uncertainties, and what the interpolation of the delay adds (-60 dB).
    assert link.delay_samples == pytest.approx(7.4, abs=5 * link.delay_samples_std + 2e-3)
    assert link.cfo_hz == pytest.approx(2345.0, abs=5 * link.cfo_hz_std + 0.1)
    assert abs(link.gain) == pytest.approx(0.05, rel=5e-3)
    middle = 507 + frame.sounding_slice.start + 4 * NUMEROLOGY.symbol_samples
    expected_phase = np.pi / 2 + 2 * np.pi * 2345.0 * middle / 5e6
    assert np.angle(link.gain * np.exp(-1j * expected_phase)) == pytest.approx(0.0, abs=0.02)


def test_a_capture_without_a_whole_sounding_is_refused() -> None:
    frame = SoundingFrame(NUMEROLOGY, 8)
    capture = sounding_capture(0.0, 0.0, 0.05, 1e-6, 65)
    with pytest.raises(MeasurementError, match="no sounding of 'client-1'"):
        measure_sounding(circular_noise(5000, 1e-6, np.random.default_rng(66)), frame, "client-1")
    with pytest.raises(MeasurementError, match="capture for longer"):
        measure_sounding(capture[: 500 + frame.length - 1], frame, "client-1")


def test_soundings_that_cannot_be_measured_are_refused() -> None:
    rng = np.random.default_rng(67)
    pilots = sounding_cells(NUMEROLOGY, 4)
    cells = received(4, 0.01, rng)
    broken = cells.copy()
    broken[1, 1] = complex("nan")
    uneven = pilots * np.linspace(0.5, 1.0, 192, dtype=np.float32)
    for bad_cells, bad_pilots, reason in (
        (cells[:1], pilots[:1], r"expected \(S, 192\) with S >= 2"),
        (cells[:, :100], pilots, "shape"),
        (cells, pilots[:2], "pilots have the shape"),
        (broken, pilots, "NaN or infinite"),
        (cells, uneven, "modulus"),
        (circular_noise(cells.size, 0.01, rng).reshape(cells.shape), pilots, "is it transmitting"),
    ):
        with pytest.raises(MeasurementError, match=reason):
            measure_link(bad_cells, bad_pilots, NUMEROLOGY, "client-0")


def test_impossible_links_cannot_exist_and_json_holds_complex_numbers() -> None:
    link = measure_link(received(2, 0.01, np.random.default_rng(68)), sounding_cells(NUMEROLOGY, 2), NUMEROLOGY)
    with pytest.raises(MeasurementError, match="cfo_hz_std"):
        dataclasses.replace(link, cfo_hz_std=float("inf"))
    with pytest.raises(MeasurementError, match="no gains"):
        dataclasses.replace(link, gain_per_subcarrier=())
    value = json.loads(json.dumps(to_json(link), allow_nan=False))
    assert complex(*value["gain"]) == link.gain
    assert len(value["gain_per_subcarrier"]) == 192
    assert set(value) == {field.name for field in dataclasses.fields(LinkMeasurement)}
