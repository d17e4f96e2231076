"""From losses to epsilon: five accountants, and the inverse that sizes noise for a target.

All take S = 1/2 sum (Delta_m/sigma_m)^2 or the ratios Delta_m/sigma_m it is made of; none knows about labels.
Logarithms are natural. `exact` is the tightest possible for composed Gaussians (Balle and Wang 2018, analytic Gaussian
mechanism); `paper` is Theorem 1/3; `liu-simeone` is what the baseline of that name was published with (the claim is
in `fl.privacy.liu_simeone`); `rdp` and `pld` come from google dp-accounting and serve as independent second opinions.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum

from scipy.special import erfcx, erfinv, log_ndtr, wrightomega

from fl.errors import PrivacyError
from fl.privacy.root import root_between

_SMALL_MU = 1e-5
"""Below it the exact delta is computed without differences; there both ways agree to about 1e-11."""
_FAR_TAIL = 1e3


class Accountant(StrEnum):
    """How S becomes epsilon."""

    PAPER = "paper"
    EXACT = "exact"
    LIU_SIMEONE = "liu-simeone"
    RDP = "rdp"
    PLD = "pld"


def checked_delta(delta: float) -> float:
    """`delta` if it lies in (0, 1), else `PrivacyError`."""
    if not 0.0 < delta < 1.0:
        raise PrivacyError(f"delta is {delta}: expected a number strictly between 0 and 1")
    return delta


def checked_epsilon(epsilon: float) -> float:
    """`epsilon` if it is positive and finite, else `PrivacyError`."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise PrivacyError(f"epsilon is {epsilon}: expected a finite number above 0")
    return epsilon


def _checked_loss(total_loss: float) -> float:
    if math.isnan(total_loss) or total_loss < 0:
        raise PrivacyError(f"privacy loss S is {total_loss}: expected a number of at least 0")
    return total_loss


def epsilon_paper(total_loss: float, delta: float) -> float:
    """Theorem 1/3: S + 2 sqrt(S log(1/delta))."""
    loss, log_inverse = _checked_loss(total_loss), -math.log(checked_delta(delta))
    return loss + 2.0 * math.sqrt(loss * log_inverse) if math.isfinite(loss) else math.inf


def liu_simeone_c(delta: float) -> float:
    """C^-1(1/delta) for C(x) = sqrt(pi) x exp(x^2), at any delta in (0, 1).

    Squared, C(x) = 1/delta reads y exp(y) = 2/(pi delta^2) with y = 2 x^2: Lambert's W, here of a logarithm, which no
    delta overflows.
    """
    return math.sqrt(float(wrightomega(math.log(2.0 / math.pi) - 2.0 * math.log(checked_delta(delta)))) / 2.0)


def epsilon_liu_simeone(total_loss: float, delta: float) -> float:
    """Liu and Simeone 2020: S + 2 C sqrt(S), C = C^-1(1/delta).

    The privacy loss is N(S, 2 S), so P(loss > epsilon) = erfc(x)/2 at x = (epsilon - S)/(2 sqrt S). They bound it by
    erfc(x) <= exp(-x^2)/(sqrt(pi) x) = 1/C(x): never below `exact`, and below `paper` for every delta up to 0.72.
    """
    loss = _checked_loss(total_loss)
    return loss + 2.0 * liu_simeone_c(delta) * math.sqrt(loss) if math.isfinite(loss) else math.inf


def log_delta_exact(total_loss: float, epsilon: float) -> float:
    """log of delta(epsilon) = Phi(a) - e^eps Phi(-b), a = mu/2 - eps/mu, b = mu/2 + eps/mu, mu = sqrt(2 S).

    e^eps Phi(-b) = exp(-a^2/2) erfcx(b/sqrt 2)/2, because b^2 - a^2 = 2 eps: so no large numbers cancel.
    """
    mu = math.sqrt(2.0) * math.sqrt(_checked_loss(total_loss))
    if mu == 0.0:
        return -math.inf
    if mu < _SMALL_MU:
        return _log_delta_of_small_mu(mu, epsilon)
    a, b = (total_loss - epsilon) / mu, mu / 2 + epsilon / mu
    log_second = math.log(0.5 * float(erfcx(b / math.sqrt(2.0))))
    if a < 0:
        log_scaled = math.log(0.5 * float(erfcx(-a / math.sqrt(2.0))))
        log_first, log_ratio = log_scaled - a * a / 2, log_second - log_scaled
    else:
        log_first = float(log_ndtr(a))
        log_ratio = log_second - a * a / 2 - log_first
    return log_first + math.log(-math.expm1(log_ratio)) if log_ratio < 0 else -math.inf


def _log_delta_of_small_mu(mu: float, epsilon: float) -> float:
    """An upper bound of the above, above it by a factor of at most exp(mu^2/8); there it would be 1/2 less nearly 1/2.

    d delta/d mu = phi(a) = phi(epsilon/mu) exp(epsilon/2 - mu^2/8), so with t = epsilon/mu and the last term left out
    delta <= exp(epsilon/2) mu (phi(t) - t Phi(-t)).
    """
    t = epsilon / mu
    if t > _FAR_TAIL:
        # phi(t) - t Phi(-t) < phi(t)/t^2: again no difference of two numbers that are nearly the same.
        log_rest = -2.0 * math.log(t)
    else:
        log_rest = math.log1p(-t * math.sqrt(math.pi / 2) * float(erfcx(t / math.sqrt(2.0))))
    return epsilon / 2 + math.log(mu) - t * t / 2 - math.log(2 * math.pi) / 2 + log_rest


def epsilon_exact(total_loss: float, delta: float) -> float:
    """Smallest epsilon with delta(epsilon) <= delta for the composition; 0 where even epsilon = 0 has it."""
    loss, log_delta = _checked_loss(total_loss), math.log(checked_delta(delta))
    if not math.isfinite(loss):
        return math.inf
    if log_delta_exact(loss, 0.0) <= log_delta:
        return 0.0
    # The paper's bound is never below the exact value, so the root lies between 0 and it.
    high = epsilon_paper(loss, delta)
    if log_delta_exact(loss, high) >= log_delta:
        # S is so large (1e31) that the two are the same float64.
        return high
    return root_between(lambda eps: log_delta_exact(loss, eps) - log_delta, 0.0, high, min(1e-12, 1e-13 * high))


def _epsilon_dp_accounting(make: Callable[[], object], ratios: Sequence[float], delta: float) -> float:
    import dp_accounting

    checked_delta(delta)
    if any(math.isnan(ratio) or ratio < 0 for ratio in ratios):
        raise PrivacyError("ratios Delta/sigma must be numbers of at least 0")
    if math.isinf(total_loss_of(ratios)):
        return math.inf
    accountant = make()
    try:
        for ratio, count in Counter(ratios).items():
            if ratio > 0:
                accountant.compose(dp_accounting.GaussianDpEvent(1.0 / ratio), count)  # type: ignore[attr-defined]
        return float(accountant.get_epsilon(delta))  # type: ignore[attr-defined]
    except OverflowError:
        return math.inf


def epsilon_rdp(ratios: Sequence[float], delta: float) -> float:
    """Renyi accountant of dp-accounting over uplinks with the given Delta_m/sigma_m."""

    def make() -> object:
        from dp_accounting import rdp

        return rdp.RdpAccountant()

    return _epsilon_dp_accounting(make, ratios, delta)


def epsilon_pld(ratios: Sequence[float], delta: float) -> float:
    """Privacy-loss-distribution accountant of dp-accounting; takes seconds: an oracle, not a progress bar.

    Its grid of losses has the library's spacing, 1e-4, up to epsilon = 10 and 1e-5 of epsilon above: a fixed spacing
    would take gigabytes for the label `client`. The grid is pessimistic, so epsilon errs on the safe side.
    """

    def make() -> object:
        from dp_accounting import pld

        spacing = 1e-5 * epsilon_paper(total_loss_of(ratios), delta)
        return pld.PLDAccountant(value_discretization_interval=max(1e-4, spacing))

    return _epsilon_dp_accounting(make, ratios, delta)


def total_loss_of(ratios: Sequence[float]) -> float:
    """S = 1/2 sum (Delta_m/sigma_m)^2."""
    return 0.5 * math.fsum(ratio * ratio for ratio in ratios)


def epsilon_of(accountant: Accountant, ratios: Sequence[float], delta: float) -> float:
    """Epsilon of uplinks with the given Delta_m/sigma_m under one accountant."""
    if accountant is Accountant.RDP:
        return epsilon_rdp(ratios, delta)
    if accountant is Accountant.PLD:
        return epsilon_pld(ratios, delta)
    return epsilon_of_loss(accountant, total_loss_of(ratios), delta)


def epsilon_of_loss(accountant: Accountant, total_loss: float, delta: float) -> float:
    """Epsilon from S alone: `paper`, `exact` or `liu-simeone`."""
    if accountant is Accountant.PAPER:
        return epsilon_paper(total_loss, delta)
    if accountant is Accountant.EXACT:
        return epsilon_exact(total_loss, delta)
    if accountant is Accountant.LIU_SIMEONE:
        return epsilon_liu_simeone(total_loss, delta)
    raise PrivacyError(f"accountant {accountant.value} needs the ratio of every uplink: use 'paper' or 'exact' here")


def loss_for_epsilon(accountant: Accountant, epsilon: float, delta: float) -> float:
    """Largest S whose epsilon is at most `epsilon`: the inverse of `epsilon_of_loss`.

    paper: S = (sqrt(L + eps) - sqrt(L))^2 with L = log(1/delta), which is a^2/L with the a of Theorem 2.
    liu-simeone: their R_dp = (sqrt(C^2 + eps) - C)^2, the same with C^2 for L.
    """
    checked_epsilon(epsilon)
    log_inverse = -math.log(checked_delta(delta))
    if accountant is Accountant.LIU_SIMEONE:
        return _positive(_loss_for_epsilon(epsilon, liu_simeone_c(delta) ** 2), epsilon)
    paper = _loss_for_epsilon(epsilon, log_inverse)
    if accountant is Accountant.PAPER:
        return _positive(paper, epsilon)
    if accountant is not Accountant.EXACT:
        raise PrivacyError(f"noise is sized with accountant 'paper' or 'exact', not '{accountant.value}'")
    # Above 0.5 paper, and above what delta alone allows: at epsilon = 0, delta = erf(sqrt(S)/2).
    low = _positive(max(0.5 * paper, 2.0 * float(erfinv(delta / 2)) ** 2), epsilon)
    high = max(low, paper)
    while log_delta_exact(high, epsilon) < -log_inverse:
        high *= 2.0
    return root_between(lambda loss: log_delta_exact(loss, epsilon) + log_inverse, low, high, 1e-15 * low, 1e-14)


def _loss_for_epsilon(epsilon: float, square: float) -> float:
    """The S of S + 2 sqrt(S square) = epsilon, without the difference of two square roots."""
    return (epsilon / (math.sqrt(square + epsilon) + math.sqrt(square))) ** 2


def _positive(loss: float, epsilon: float) -> float:
    """`loss`, unless it is too small for float64, as no noise is enough for it that float64 has."""
    if loss > 0.0:
        return loss
    raise PrivacyError(f"epsilon is {epsilon:g}: too small to size noise for; expected about 1e-150 or more")
