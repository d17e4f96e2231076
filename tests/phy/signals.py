"""What several tests of the signal processing need: noise, and p-values."""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

NEVER = 1e-4
"""A right distribution falls below this p-value once in ten thousand seeds; the seeds are fixed."""
WRONG = 1e-9


def circular(shape: int | tuple[int, ...], var_complex: float, rng: np.random.Generator) -> NDArray[np.complex64]:
    """Circular Gaussian numbers with E|z|^2 = `var_complex`."""
    parts = rng.standard_normal((*np.atleast_1d(shape), 2), dtype=np.float32) * np.float32(np.sqrt(var_complex / 2.0))
    return parts.view(np.complex64)[..., 0]


def tone(count: int, cycles_per_sample: float, first: int = 0) -> NDArray[np.complex64]:
    """exp(j 2 pi f n), n from `first` on."""
    return np.exp(2j * np.pi * cycles_per_sample * (np.arange(count) + first)).astype(np.complex64)


def chi_square_p_value(statistic: float, degrees: float) -> float:
    """Two-sided p-value of a chi-square statistic."""
    return float(2.0 * min(stats.chi2.cdf(statistic, degrees), stats.chi2.sf(statistic, degrees)))


def rate_upper_bound(events: int, trials: int, confidence: float = 0.95) -> float:
    """Clopper and Pearson's upper bound of a probability; 3 / trials for no event."""
    return float(stats.beta.ppf(confidence, events + 1, trials - events))
