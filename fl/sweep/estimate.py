"""A mean over trials with its uncertainty.

Every interval is Student's t interval of a mean at 95 %: it says how well the mean is known, not how far trials
scatter. One trial has no interval; that of two is nine times as wide as they differ and says nothing, so it is not
stated either.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

CONFIDENCE = 0.95
LEAST_TRIALS = 3
"""For an interval."""


@dataclass(frozen=True)
class Estimate:
    """A mean of `count` values; half: half the width of its interval, None for fewer than three values or where one is
    infinite."""

    mean: float
    half: float | None
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float] | NDArray[np.float64]) -> "Estimate":
        """From at least one value; low and high: the smallest and the largest of them."""
        data = np.asarray(values, dtype=np.float64)
        half = half_width(data[:, None])[0]
        return cls(
            mean=float(data.mean()) if np.isfinite(data).all() else float(data.max()),
            half=float(half) if np.isfinite(half) else None,
            low=float(data.min()),
            high=float(data.max()),
            count=data.size,
        )


def half_width(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half the width of the interval of each column's mean, for `values` (trials, columns); NaN where there is none."""
    count = len(values)
    if count < LEAST_TRIALS:
        return np.full(values.shape[1], np.nan)
    finite = np.isfinite(values).all(axis=0)
    spread = np.where(finite, values, 0.0).std(axis=0, ddof=1)
    return np.where(finite, float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2)) * spread / np.sqrt(count), np.nan)
