"""What a calibration must find on a lab whose air is known, whatever the backend."""

from datetime import UTC, datetime

import pytest

from calibration.procedure import Plan, calibrate
from calibration.record import CalibrationRecord
from hardware.air.build import build_medium
from hardware.counted.arrival import ARRIVAL_SAMPLES
from hardware.lab.model import Lab
from hardware.lab.opened import open_lab

PLAN = Plan(silence_samples=1024 * 256, soundings=4, repeats=1, scales_db=(0.0, -3.0, -6.0), gain_steps=2)


def checked_calibration(lab: Lab, noise_var_real: float) -> CalibrationRecord:
    """The record of a lab of aligned radios, after everything that all such labs have in common was checked."""
    with open_lab(lab, 1) as opened:
        record = calibrate(opened, datetime(2025, 1, 1, tzinfo=UTC), PLAN).record
        assert all(radio.parked for radio in opened.radios.values())
    low, high = record.noise.ci
    # Where in the noise a capture falls depends on the host's timing, and an interval of 95 % misses once in twenty
    # times: two and a half of them, which is five standard deviations.
    assert record.noise.noise_var_real == pytest.approx(noise_var_real, abs=2.5 * (high - low) / 2)
    assert high - low < 0.03 * noise_var_real
    assert record.diagnostics.bound_holds
    medium = build_medium(lab, 1)
    assert set(record.links) == {"client-1", "client-2", "client-3", "jammer"}
    for name, link in record.links.items():
        (tap,) = medium.taps(name, "ps")
        assert abs(link.gain) == pytest.approx(abs(tap), rel=4e-3)
        assert abs(link.delay_samples - ARRIVAL_SAMPLES) < 0.6
        assert abs(link.cfo_hz) < 1.0
    return record
