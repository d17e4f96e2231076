"""Do two silences show the same noise: one of a calibration, and one of today."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from calibration.errors import MeasurementError
from calibration.noise import NoiseMeasurement
from calibration.statistics import check_probability

_DB_PER_NEPER = 10.0 / math.log(10.0)


@dataclass(frozen=True)
class NoiseChange:
    """By how much the noise has changed. ratio_db: now against then, with an interval of equal tails.

    p_value: of no change at all, two-sided.
    """

    ratio_db: float
    ci_db: tuple[float, float]
    p_value: float

    def beyond(self, tolerance_db: float) -> bool:
        """Whether the whole interval lies outside of +-tolerance_db."""
        return self.ci_db[0] > tolerance_db or self.ci_db[1] < -tolerance_db


def noise_change(then: NoiseMeasurement, now: NoiseMeasurement, error: float) -> NoiseChange:
    """Compare two silences of one receiver; the interval misses the true change with probability `error`.

    The variance of each subcarrier is the mean of B exponentials, so the logarithm of its ratio over two silences has
    the mean ln(ratio) + psi(B_now) - ln B_now - psi(B_then) + ln B_then and the variance psi'(B_now) + psi'(B_then)
    whatever the noise's colour. The mean over the K subcarriers that neither silence excluded is Gaussian as closely
    as matters here: its skewness is 1/sqrt(B K) at most, and B is 16 or more.

    The test sees a change that is common to the subcarriers. One that comes and goes between them leaves the level as
    it is, and is left to the tests of whiteness of each silence.
    """
    check_probability("error", error)
    if then.bins != now.bins:
        raise MeasurementError("the two silences have other subcarriers: expected one numerology")
    kept = ~np.isin(then.bins, (*then.excluded_bins, *now.excluded_bins))
    count = int(np.count_nonzero(kept))
    if count == 0:
        raise MeasurementError("no subcarrier is free of spurs in both silences: their noise cannot be compared")
    logs = [np.log(np.asarray(silence.noise_var_real_per_bin)[kept]) for silence in (now, then)]
    bias = _mean_log(now.blocks) - _mean_log(then.blocks)
    std = math.sqrt((_var_log(now.blocks) + _var_log(then.blocks)) / count)
    change = float(np.mean(logs[0] - logs[1])) - bias
    reach = -float(special.ndtri(error / 2.0)) * std
    return NoiseChange(
        ratio_db=_DB_PER_NEPER * change,
        ci_db=(_DB_PER_NEPER * (change - reach), _DB_PER_NEPER * (change + reach)),
        p_value=float(2.0 * special.ndtr(-abs(change) / std)),
    )


def _mean_log(blocks: int) -> float:
    """E ln of the mean of so many exponentials of mean 1."""
    return float(special.digamma(blocks)) - math.log(blocks)


def _var_log(blocks: int) -> float:
    return float(special.polygamma(1, blocks))
