import dataclasses
import json

import numpy as np
import pytest

from calibration.errors import MeasurementError
from calibration.schema import to_json
from calibration.timing import measure_timing


def soundings(count: int, ppm: float, jitter: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    commanded = 10**12 + np.sort(rng.integers(0, 50_000_000, count))
    late = 37.25 + ppm * 1e-6 * (commanded - commanded.mean())
    return commanded, commanded + late + jitter * rng.standard_normal(count)


def test_errors_are_as_large_as_their_uncertainties() -> None:
    rng = np.random.default_rng(80)
    errors = []
    for _ in range(500):
        timing = measure_timing(*soundings(20, 0.8, 0.1, rng), "client-0")
        errors.append(
            [
                (timing.offset_samples - 37.25) / timing.offset_samples_std,
                (timing.clock_offset_ppm - 0.8) / timing.clock_offset_ppm_std,
                timing.jitter_ci_samples[0] <= 0.1 <= timing.jitter_ci_samples[1],
            ]
        )
    offset, clock, covered = np.array(errors).T
    for scaled in (offset, clock):
        # A standard uncertainty covers 68 %: one standard deviation of that share is 2 %.
        assert np.mean(np.abs(scaled) < 1.0) == pytest.approx(0.683, abs=0.06)
        assert abs(scaled.mean()) < 0.2
    assert np.mean(covered) == pytest.approx(0.95, abs=0.03)


def test_a_lost_buffer_shows_as_the_largest_error() -> None:
    commanded, arrivals = soundings(30, 0.0, 0.01, np.random.default_rng(81))
    arrivals[15] += 100.0
    assert measure_timing(commanded, arrivals).largest_error_samples > 90.0


def test_shared_clocks_have_no_drift() -> None:
    commanded = np.arange(8) * 100_000
    timing = measure_timing(commanded, commanded + 12.0)
    assert timing.offset_samples == 12.0
    assert timing.clock_offset_ppm == 0.0
    assert timing.jitter_ci_samples == (0.0, 0.0)


def test_bad_soundings_are_refused() -> None:
    commanded = np.arange(5) * 1000
    for pair, reason in (
        ((commanded[:3], commanded[:3] + 1.0), "4 or more"),
        ((commanded, commanded[:4] + 1.0), "as many of both"),
        ((commanded, commanded * np.nan), "as many of both"),
        ((commanded * 0, commanded + 1.0), "same sample"),
    ):
        with pytest.raises(MeasurementError, match=reason):
            measure_timing(*pair)
    timing = measure_timing(commanded, commanded + np.array([0.0, 0.1, 0.0, 0.1, 0.0]))
    with pytest.raises(MeasurementError, match="outside its interval"):
        dataclasses.replace(timing, jitter_samples=100.0)
    assert json.loads(json.dumps(to_json(timing), allow_nan=False))["soundings"] == 5
