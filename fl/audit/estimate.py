"""How far apart two hypotheses are, from trials of both: an estimate of mu with its error."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from fl.errors import PrivacyError


@dataclass(frozen=True)
class Estimate:
    """mu for a change of norm tau, with its standard error. trials: in each hypothesis."""

    mu: float
    std: float
    trials: int

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Two-sided."""
        reach = float(norm.ppf(0.5 + confidence / 2.0)) * self.std
        return self.mu - reach, self.mu + reach

    def refutes(self, claimed_mu: float, level: float) -> bool:
        """Whether a true mu of at most `claimed_mu` gives such an estimate with a probability below `level`."""
        return self.lower(level) > claimed_mu

    def lower(self, level: float) -> float:
        """Lower bound on mu that is wrong with the probability `level`."""
        return self.mu - float(norm.isf(level)) * self.std


def estimate_mu(statistics: NDArray[np.float64], present: NDArray[np.bool_], share: float) -> Estimate:
    """mu from statistics (n, k) of k changes in n uplinks, each of norm `share` tau, and whether each was there.

    The changes are orthogonal after whitening, so their estimates are independent, and their mean is taken.
    """
    values, variances, fewest = _each(statistics, present)
    return Estimate(
        mu=float(np.mean(values)) / share,
        std=math.sqrt(float(np.sum(variances))) / values.size / share,
        trials=fewest * values.size,
    )


def fitted_mu(
    statistics: NDArray[np.float64], present: NDArray[np.bool_], share: float, predicted: NDArray[np.float64]
) -> Estimate:
    """mu of the worst change from all k of them, of which linear algebra says how they relate: predicted (k,).

    A single change would be known sqrt(k) times worse. What is estimated is by how much all of them differ from the
    prediction: measured_j = c predicted_j, by least squares; then mu is c times the largest prediction.
    """
    values, variances, fewest = _each(statistics, present)
    shape = predicted / predicted.max()
    energy = float(shape @ shape)
    return Estimate(
        mu=float(shape @ values) / energy / share,
        std=math.sqrt(float(shape**2 @ variances)) / energy / share,
        trials=fewest * values.size,
    )


def _each(
    statistics: NDArray[np.float64], present: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Distance of the hypotheses of each change in units of its noise (k,), its variance (k,), and the fewest trials.

    Each change has its own mean, difference and variance; d_j/s_j has the variance 1/n_in + 1/n_out + mu^2/(2 n). It is
    too large by 1 + 3/(4 n) in the mean (Hedges, J. Educ. Stat. 6, 1981), which is taken out.
    """
    trials, changes = statistics.shape
    unbiased = 1.0 - 3.0 / (4.0 * (trials - 2) - 1.0)
    values, variances, fewest = np.empty(changes), np.empty(changes), trials
    for change in range(changes):
        inside, outside = statistics[present[:, change], change], statistics[~present[:, change], change]
        if min(inside.size, outside.size) < 2:
            raise PrivacyError(f"{trials} uplinks are too few: expected two or more under each hypothesis")
        squares = ((inside - inside.mean()) ** 2).sum() + ((outside - outside.mean()) ** 2).sum()
        spread = math.sqrt(float(squares) / (trials - 2))
        mu = unbiased * float(inside.mean() - outside.mean()) / spread if spread > 0 else math.inf
        values[change] = mu
        variances[change] = 1.0 / inside.size + 1.0 / outside.size + mu * mu / (2.0 * trials)
        fewest = min(fewest, inside.size, outside.size)
    return values, variances, fewest


def standardised(
    statistics: NDArray[np.float64], present: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Statistics of all changes under both hypotheses, each in units of its own noise and without its mean outside."""
    inside, outside = [], []
    for change in range(statistics.shape[1]):
        values, there = statistics[:, change], present[:, change]
        centre = float(values[~there].mean())
        spread = math.sqrt((float(values[there].var()) + float(values[~there].var())) / 2.0)
        inside.append((values[there] - centre) / spread)
        outside.append((values[~there] - centre) / spread)
    return np.concatenate(inside), np.concatenate(outside)
