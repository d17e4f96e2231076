"""Lower bounds of mu and epsilon from statistics with and without a canary.

All hold with probability 1 - alpha over the trials, whatever mu is: where nothing can be told apart they are 0 in at
least that share of trials. A test fails towards 0, never towards a loss that is not there.

| bound         | assumes                                     | from                                                 |
|---------------|---------------------------------------------|------------------------------------------------------|
| `mu_mean`     | Gaussian statistics                         | their means and variance                             |
| `mu_guesses`  | the mechanism is Gaussian (GDP)             | rates of errors by Clopper and Pearson; Nasr 2023    |
| `eps_guesses` | nothing                                     | the same rates                                       |
| `eps_one_run` | nothing but independent inclusion           | right guesses in one run; Steinke, Nasr, Jagielski   |
| `mu_one_run`  | the mechanism is Gaussian, inclusion as above | the same; Mahloujifar, Melis, Chaudhuri 2024       |
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom, norm

from fl.errors import PrivacyError
from fl.privacy.accountant import checked_delta, epsilon_exact

LEVEL = 0.05
"""alpha: probability that a bound is above the truth."""
_LARGEST_EPSILON = 100.0
_LARGEST_MU = 50.0
_STEPS = 50


@dataclass(frozen=True)
class Guesses:
    """Outcome of guessing for every canary whether it is there."""

    inside: int
    outside: int
    missed: int
    false_alarms: int

    def __post_init__(self) -> None:
        """Refuse what no trial gives."""
        if not (0 <= self.missed <= self.inside and 0 <= self.false_alarms <= self.outside):
            raise PrivacyError(f"{self} is no outcome of guessing: more errors than canaries")

    @classmethod
    def at(cls, threshold: float, inside: NDArray[np.float64], outside: NDArray[np.float64]) -> "Guesses":
        """Guess "there" above a threshold that was fixed before the statistics were seen."""
        return cls(
            inside.size,
            outside.size,
            int(np.count_nonzero(inside <= threshold)),
            int(np.count_nonzero(outside > threshold)),
        )


def rate_upper(errors: int, trials: int, alpha: float) -> float:
    """Clopper's and Pearson's upper bound of a rate; 1 where there was no trial or every one was an error."""
    return 1.0 if errors >= trials else float(beta.ppf(1.0 - alpha, errors + 1, trials - errors))


def mu_mean(inside: NDArray[np.float64], outside: NDArray[np.float64], alpha: float = LEVEL) -> float:
    """Difference of means less its error, in units of the deviation that the statistics themselves show.

    That one is measured too, with a relative error of 1/sqrt(2 n), which is in the bound.
    """
    count = inside.size + outside.size
    if min(inside.size, outside.size) < 2:
        return 0.0
    squares = float(((inside - inside.mean()) ** 2).sum() + ((outside - outside.mean()) ** 2).sum())
    if squares <= 0.0:
        return 0.0
    mu = float(inside.mean() - outside.mean()) / math.sqrt(squares / (count - 2))
    error = math.sqrt(1.0 / inside.size + 1.0 / outside.size + mu * mu / (2.0 * count))
    return max(0.0, mu - float(norm.ppf(1.0 - alpha)) * error)


def mu_guesses(guesses: Guesses, alpha: float = LEVEL) -> float:
    """mu >= Phi^-1(1 - FPR) - Phi^-1(FNR) with upper bounds of both rates; 0, never |mu|, where that is negative."""
    false_positive = rate_upper(guesses.false_alarms, guesses.outside, alpha / 2)
    false_negative = rate_upper(guesses.missed, guesses.inside, alpha / 2)
    if false_positive >= 1.0 or false_negative >= 1.0:
        return 0.0
    return max(0.0, float(norm.isf(false_positive) - norm.ppf(false_negative)))


def eps_guesses(guesses: Guesses, delta: float, alpha: float = LEVEL) -> float:
    """epsilon >= ln((TPR - delta)/FPR) and, with the roles exchanged, ln((TNR - delta)/FNR): the larger of the two."""
    checked_delta(delta)
    false_positive = rate_upper(guesses.false_alarms, guesses.outside, alpha / 2)
    false_negative = rate_upper(guesses.missed, guesses.inside, alpha / 2)
    ratios = ((1.0 - false_negative - delta) / false_positive, (1.0 - false_positive - delta) / false_negative)
    return max([0.0, *(math.log(ratio) for ratio in ratios if ratio > 0.0)])


def p_one_run(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Largest probability of `right` or more right guesses of `guesses` under (epsilon, delta)-DP (their Theorem 5.2).

    beta = P[Bin(r, 1/(1 + e^-eps)) >= v]; p = beta + 2 m delta max_{i=1..v} (P[Bin >= v - i] - beta)/i.
    """
    if right == 0:
        return 1.0
    success = 1.0 / (1.0 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, success))
    steps = np.arange(1, right + 1)
    more = float(np.max((binom.sf(right - steps - 1, guesses, success) - tail) / steps))
    return min(1.0, tail + 2.0 * canaries * delta * more)


def eps_one_run(canaries: int, guesses: int, right: int, delta: float, alpha: float = LEVEL) -> float:
    """Largest epsilon that this many right guesses refute; 0 where they refute none."""
    checked_delta(delta)
    return _largest_refuted(
        lambda epsilon: p_one_run(canaries, guesses, right, epsilon, delta) <= alpha, _LARGEST_EPSILON
    )


def refutes_mu(canaries: int, guesses: int, right: int, mu: float, alpha: float = LEVEL) -> bool:
    """Whether this many right guesses are too good for mu-GDP in one run."""
    mass, height = alpha * right / canaries, alpha * (guesses - right) / canaries
    for place in range(right - 1, -1, -1):
        if mass >= 1.0:
            return True
        curve = float(ndtr(ndtri(mass) - mu))
        if curve > height:
            mass += place / (guesses - place) * (curve - height)
            height = curve
    return mass + height > guesses / canaries


def mu_one_run(canaries: int, guesses: int, right: int, alpha: float = LEVEL) -> float:
    """Largest mu that this many right guesses refute; 0 where they refute none."""
    if guesses == 0:
        return 0.0
    return _largest_refuted(lambda mu: refutes_mu(canaries, guesses, right, mu, alpha), _LARGEST_MU)


def _largest_refuted(refuted: Callable[[float], bool], largest: float) -> float:
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, largest
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def best_guesses(statistics: NDArray[np.float64], present: NDArray[np.bool_], count: int) -> int:
    """How many of `count` guesses are right: "there" for the largest half of them, "not there" for the smallest."""
    order = np.argsort(statistics, kind="stable")
    half = count // 2
    return int(np.count_nonzero(present[order[order.size - half :]])) + int(
        np.count_nonzero(~present[order[: count - half]])
    )


@dataclass(frozen=True)
class AuditBounds:
    """Lower bounds of epsilon at one delta; `headline` is Clopper and Pearson with GDP."""

    canaries: int
    delta: float
    alpha: float
    mu: float
    headline: float
    mean: float
    guesses: float
    one_run: float
    one_run_gdp: float


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Of a Gaussian mechanism; 0 for mu = 0."""
    return 0.0 if mu <= 0.0 else epsilon_exact(mu * mu / 2.0, delta)


def bound_all(
    statistics: NDArray[np.float64], present: NDArray[np.bool_], *, expected: float, delta: float, alpha: float = LEVEL
) -> AuditBounds:
    """Every bound from statistics (M,) in units of their noise. expected: the claimed mu.

    Thresholds and numbers of guesses follow from it, not from the statistics: they are fixed beforehand.
    """
    inside, outside = statistics[present], statistics[~present]
    mu = mu_guesses(Guesses.at(expected / 2.0, inside, outside), alpha)
    threshold, count = _best_threshold(expected, statistics.size, delta, alpha), _best_count(expected, statistics.size)
    right = best_guesses(statistics, present, count)
    return AuditBounds(
        canaries=statistics.size,
        delta=delta,
        alpha=alpha,
        mu=mu,
        headline=epsilon_of_mu(mu, delta),
        mean=epsilon_of_mu(mu_mean(inside, outside, alpha), delta),
        guesses=eps_guesses(Guesses.at(threshold, inside, outside), delta, alpha),
        one_run=eps_one_run(statistics.size, count, right, delta, alpha),
        one_run_gdp=epsilon_of_mu(mu_one_run(statistics.size, count, right, alpha), delta),
    )


def _best_threshold(mu: float, canaries: int, delta: float, alpha: float) -> float:
    """Where `eps_guesses` is to be expected largest: in the tail, where few alarms are false."""
    half = max(1, canaries // 2)

    def expected_bound(threshold: float) -> float:
        missed, false_alarms = (round(half * float(rate)) for rate in (norm.cdf(threshold - mu), norm.sf(threshold)))
        return eps_guesses(Guesses(half, half, missed, false_alarms), delta, alpha)

    thresholds: list[float] = np.linspace(mu / 2, mu / 2 + 4.0, 33).tolist()
    return max(thresholds, key=expected_bound)


def _best_count(mu: float, canaries: int) -> int:
    """Number of guesses with which `eps_one_run` is to be expected largest: few are nearly all right, many are more.

    Guesses are made for both tails alike; of those beyond Phi^-1 of a share in the mixture of both hypotheses, as many
    are right as the better hypothesis has there. The bound is near ln(p/(1-p)) less the error of p.
    """

    def expected_bound(cut: float) -> float:
        right, wrong = float(norm.sf(cut - mu / 2)), float(norm.sf(cut + mu / 2))
        number = canaries * (right + wrong)
        share = (right * canaries) / number
        low = share - 1.7 * math.sqrt(share * (1.0 - share) / number) - 1.5 / number
        return math.log(low / (1.0 - low)) if low > 0.5 else 0.0

    cuts: list[float] = np.linspace(0.0, mu / 2 + 4.0, 65).tolist()
    cut = max(cuts, key=expected_bound)
    return max(2, min(canaries, round(canaries * float(norm.sf(cut - mu / 2) + norm.sf(cut + mu / 2)))))
