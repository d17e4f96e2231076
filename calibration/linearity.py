"""Does twice the amplitude arrive as twice the amplitude: digital scale, and attenuator steps.

Power control asks for an amplitude and accounts for what it asked; a deviation of x dB is an error of x dB in a weight
of the aggregate and in the sensitivity.
"""

import math
from enum import Enum

import numpy as np
from numpy.typing import NDArray
from scipy import special

from calibration.errors import MeasurementError
from calibration.schema import measurement
from calibration.statistics import check_probability

_DB_PER_NEPER = 20.0 / math.log(10.0)
# Below 20 dB an amplitude's logarithm is biased by noise, by 0.02 dB at this ratio.
_LOWEST_AMPLITUDE_RATIO = 10.0
# Levels are set digitally; this is for rounding of logarithms.
_LEVEL_TOLERANCE_DB = 0.01


class Verdict(Enum):
    """What a measurement with an uncertainty says about a tolerance."""

    WITHIN = "within tolerance"
    BEYOND = "beyond tolerance"
    UNDECIDED = "undecided: measure for longer"


@measurement
class LinearityMeasurement:
    """How received amplitudes follow the set ones, in dB.

    set_db, deviation_db: (L,) settings and what the received amplitude is above the fit, y = x + const.
    deviation_std_db: (L,) standard uncertainties. gain_db: the fitted constant. slope_db_per_db, slope_std: straight
    line through all points, 1 where linear. largest_deviation_db: the absolutely largest deviation, with an interval
    that holds at `confidence` for all settings at once (Bonferroni). largest_step_error_db: worst error of a step
    between neighbouring settings.
    """

    kind: str
    set_db: tuple[float, ...]
    deviation_db: tuple[float, ...]
    deviation_std_db: tuple[float, ...]
    gain_db: float
    slope_db_per_db: float
    slope_std: float
    largest_deviation_db: float
    largest_deviation_ci_db: tuple[float, float]
    largest_at_db: float
    largest_step_error_db: float
    confidence: float
    tolerance_db: float
    verdict: Verdict

    def __post_init__(self) -> None:
        """Refuse sizes that do not fit."""
        if not len(self.set_db) == len(self.deviation_db) == len(self.deviation_std_db) >= 2:
            raise MeasurementError(f"linearity of {len(self.set_db)} settings: expected as many deviations, 2 or more")
        check_probability("confidence", self.confidence)


def measure_linearity(
    amplitudes: NDArray[np.float64],
    received_gains: NDArray[np.complex128] | NDArray[np.float64],
    gain_std: NDArray[np.float64] | float | None = None,
    tolerance_db: float = 0.1,
    confidence: float = 0.95,
    kind: str = "digital scale",
) -> LinearityMeasurement:
    """Compare set amplitudes (L,), linear, with received gains (L,) or (L, R) of R repetitions, complex or absolute.

    gain_std: standard uncertainty of each received gain per real component (`LinkMeasurement.gain_std`); may be left
    out with R >= 2, when the scatter of the repetitions gives it. Raises `MeasurementError` for fewer than three
    settings, equal settings only, settings not above 0, or gains less than 20 dB above their uncertainty.
    """
    check_probability("confidence", confidence)
    if not tolerance_db > 0:
        raise MeasurementError(f"tolerance_db = {tolerance_db}: expected a number above 0")
    amplitudes = np.asarray(amplitudes, dtype=np.float64)
    if amplitudes.ndim != 1 or amplitudes.size < 3 or not np.all(np.isfinite(amplitudes) & (amplitudes > 0)):
        raise MeasurementError(f"{amplitudes.size} set amplitudes: expected 3 or more finite numbers above 0")
    levels, stds = _levels(received_gains, gain_std, amplitudes.size)
    set_db = _DB_PER_NEPER * np.log(amplitudes)
    if np.ptp(set_db) == 0:
        raise MeasurementError("all set amplitudes are equal: expected at least two different ones")
    received_db, received_std_db = _DB_PER_NEPER * np.log(levels), _DB_PER_NEPER * stds / levels
    return _fit(kind, set_db, received_db, received_std_db, tolerance_db, confidence)


def measure_attenuator(
    attenuations_db: NDArray[np.float64],
    received_gains: NDArray[np.complex128] | NDArray[np.float64],
    gain_std: NDArray[np.float64] | float | None = None,
    tolerance_db: float = 0.1,
    confidence: float = 0.95,
) -> LinearityMeasurement:
    """`measure_linearity` of an attenuator: attenuations (L,) in dB, in steps of 0.25 dB on an AD936x."""
    amplitudes = 10.0 ** (-np.asarray(attenuations_db, dtype=np.float64) / 20.0)
    return measure_linearity(amplitudes, received_gains, gain_std, tolerance_db, confidence, kind="attenuator")


def gain_change_bound(linearity: LinearityMeasurement, lowest_db: float, confidence: float) -> float:
    """Factor >= 1 by which the gain at no level differs from that at full scale, upwards or downwards.

    A run sounds at full scale and then sends weaker, with peaks anywhere below full scale. lowest_db: its rms, in the
    scale of `set_db`. Deviations of all levels are taken from that at 0 dB, where the fit's constant cancels, and the
    largest holds with probability `confidence` (Bonferroni over the levels). Below the lowest level measured the gain
    is taken to be what it is there, as amplifiers are linear where they are small.

    An amplifier that turns x into x G(|x|), with a gain that falls and an output |x| G(|x|) that is concave, as one
    that saturates does, moves no two signals further apart than G(0) times their distance: so this factor bounds a
    sensitivity, and not only a mean gain. Raises `MeasurementError` unless the measurement reaches from 0 dB to
    `lowest_db`.
    """
    check_probability("confidence", confidence)
    set_db, deviation_db = np.asarray(linearity.set_db), np.asarray(linearity.deviation_db)
    if set_db.max() < -_LEVEL_TOLERANCE_DB or set_db.min() > lowest_db + _LEVEL_TOLERANCE_DB:
        raise MeasurementError(
            f"linearity was measured from {set_db.max():.1f} to {set_db.min():.1f} dB: expected 0 to {lowest_db:.1f} dB"
        )
    full = int(np.argmax(set_db))
    variances = _level_variances(np.asarray(linearity.deviation_std_db))
    others = np.arange(set_db.size) != full
    changes = np.abs(deviation_db - deviation_db[full])[others]
    stds = np.sqrt(variances + variances[full])[others]
    quantile = -float(special.ndtri((1.0 - confidence) / 2.0 / stds.size))
    return math.exp(float(np.max(changes + quantile * stds)) / _DB_PER_NEPER)


def _level_variances(deviation_std_db: NDArray[np.float64]) -> NDArray[np.float64]:
    """Variances (L,) of the levels themselves, from those of their deviations from the mean: `_fit` the other way."""
    count = deviation_std_db.size
    if count < 3:
        raise MeasurementError(f"{count} levels do not show their uncertainties: expected 3 or more")
    total = float(np.sum(deviation_std_db**2)) / (1.0 - 1.0 / count)
    return np.asarray(np.maximum(deviation_std_db**2 - total / count**2, 0.0) / (1.0 - 2.0 / count))


def _levels(
    received_gains: NDArray[np.complex128] | NDArray[np.float64],
    gain_std: NDArray[np.float64] | float | None,
    count: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean received amplitude (L,) and its standard uncertainty (L,)."""
    levels = np.abs(np.asarray(received_gains)).astype(np.float64)
    if levels.ndim not in {1, 2} or len(levels) != count or not np.all(np.isfinite(levels)):
        raise MeasurementError(f"received gains of shape {levels.shape}: expected ({count},) or ({count}, R), finite")
    repeats = 1 if levels.ndim == 1 else levels.shape[1]
    means = levels.reshape(count, repeats).mean(axis=1)
    if gain_std is not None:
        stds = np.broadcast_to(np.asarray(gain_std, dtype=np.float64), (count,)) / math.sqrt(repeats)
    elif repeats >= 2:
        # One noise for all settings: their scatter is pooled.
        stds = np.full(count, math.sqrt(float(levels.var(axis=1, ddof=1).mean()) / repeats))
    else:
        raise MeasurementError("gain_std is missing: expected it, or two repetitions of each setting or more")
    if not np.all(stds > 0):
        raise MeasurementError("gain_std is not above 0: expected the standard uncertainty of each received gain")
    weak = np.flatnonzero(means < _LOWEST_AMPLITUDE_RATIO * stds)
    if weak.size:
        raise MeasurementError(
            f"setting number {int(weak[0])} was received less than 20 dB above its uncertainty: send stronger or longer"
        )
    return means, stds


def _fit(
    kind: str,
    set_db: NDArray[np.float64],
    received_db: NDArray[np.float64],
    std_db: NDArray[np.float64],
    tolerance_db: float,
    confidence: float,
) -> LinearityMeasurement:
    # All settings count alike: weights by their noise would draw the fit to the strongest, where compression is.
    count = set_db.size
    offsets = received_db - set_db
    gain_db = float(offsets.mean())
    deviation = offsets - gain_db
    deviation_std = np.sqrt(std_db**2 * (1.0 - 2.0 / count) + np.sum(std_db**2) / count**2)
    centered = set_db - set_db.mean()
    moment = float(np.sum(centered**2))
    slope = 1.0 + float(np.sum(centered * deviation)) / moment
    slope_std = math.sqrt(float(np.sum(centered**2 * std_db**2))) / moment
    worst = int(np.argmax(np.abs(deviation)))
    quantile = float(special.ndtri(1.0 - (1.0 - confidence) / 2.0 / count))
    low = float(np.max(np.abs(deviation) - quantile * deviation_std))
    high = float(np.max(np.abs(deviation) + quantile * deviation_std))
    order = np.argsort(set_db)
    steps = np.diff(received_db[order]) - np.diff(set_db[order])
    within, beyond = high <= tolerance_db, low > tolerance_db
    return LinearityMeasurement(
        kind=kind,
        set_db=tuple(set_db.tolist()),
        deviation_db=tuple(deviation.tolist()),
        deviation_std_db=tuple(deviation_std.tolist()),
        gain_db=gain_db,
        slope_db_per_db=slope,
        slope_std=slope_std,
        largest_deviation_db=float(abs(deviation[worst])),
        largest_deviation_ci_db=(max(low, 0.0), high),
        largest_at_db=float(set_db[worst]),
        largest_step_error_db=float(np.max(np.abs(steps))),
        confidence=confidence,
        tolerance_db=tolerance_db,
        verdict=Verdict.WITHIN if within else Verdict.BEYOND if beyond else Verdict.UNDECIDED,
    )
