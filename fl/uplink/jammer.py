"""The cooperative jammer: how much noise it must add, and whether it must speak at all (Theorems 2 and 4).

The theorem's sigma^2 = M log(1/delta) / (2 n^2 a^2) is `PrivacyTarget.sigma_required` squared. The jammer's signal is
circular complex Gaussian with unit variance on each of I and Q times alpha_CJ, so that every real coordinate gets the
noise.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from fl.errors import PrivacyError


class JammerRole(StrEnum):
    """Who jams. A rotating client skips learning in the round in which it jams."""

    NONE = "none"
    DEDICATED = "dedicated"
    EXTERNAL = "external"
    ROTATING = "rotating"


class FactorOn(StrEnum):
    """What the extra factor multiplies: alpha_CJ itself, or its square."""

    AMPLITUDE = "amplitude"
    VARIANCE = "variance"


@dataclass(frozen=True)
class JammerSettings:
    """Who jams, and how much. sigma_required: noise per coordinate that the privacy target needs.

    factor, factor_on: what is added beyond that. availability: probability that an external node is there.
    amplitude_limit: of a simulated node that is not a client; clients keep their own, and radios know theirs.
    """

    role: JammerRole = JammerRole.NONE
    sigma_required: float = 0.0
    factor: float = 1.0
    factor_on: FactorOn = FactorOn.AMPLITUDE
    availability: float = 1.0
    amplitude_limit: float = math.inf


@dataclass(frozen=True)
class JammerPlan:
    """alpha: amplitude alpha_CJ, 0 where silent. gain: |h_CJ|. sigma_required: noise that the target needs."""

    alpha: float
    gain: float
    sigma_required: float

    @property
    def needed(self) -> bool:
        """Whether channel noise alone is too little."""
        return self.alpha > 0.0


SILENT = JammerPlan(alpha=0.0, gain=0.0, sigma_required=0.0)


def size_jammer(
    *,
    sigma_required: float,
    alpha_u: float,
    gain: float,
    noise_std_real: float,
    factor: float = 1.0,
    factor_on: FactorOn = FactorOn.AMPLITUDE,
    amplitude_limit: float = math.inf,
) -> JammerPlan:
    """alpha_CJ = (alpha_u/|h_CJ|) sqrt(sigma_required^2 - sigma_c^2/alpha_u^2), times the factor; 0 where not needed.

    The factor only adds noise (>= 1), and `amplitude_limit` cuts only what the factor added: where the bound itself is
    out of reach this raises `PrivacyError`, because clients must not send without it. `reachable_alpha_u` avoids that.
    """
    for name, value in (("sigma_required", sigma_required), ("alpha_u", alpha_u), ("noise_std_real", noise_std_real)):
        if not (math.isfinite(value) and value > 0):
            raise PrivacyError(f"{name} is {value}: expected a finite number above 0")
    if not (math.isfinite(factor) and factor >= 1):
        raise PrivacyError(f"jammer factor is {factor}: expected 1 or more; less would break the privacy bound")
    # Computed as a product: exactly 0 when the channel's noise equals the requirement.
    channel_sigma = noise_std_real / alpha_u
    missing = (sigma_required - channel_sigma) * (sigma_required + channel_sigma)
    if missing <= sigma_required**2 * 1e-12:
        return JammerPlan(alpha=0.0, gain=gain, sigma_required=sigma_required)
    if not (math.isfinite(gain) and gain > 0):
        raise PrivacyError(f"jammer gain is {gain}: the jammer is needed and cannot be heard, so no client may send")
    bound = alpha_u / gain * math.sqrt(missing)
    if not math.isfinite(bound):
        raise PrivacyError(
            f"the jammer would need an infinite amplitude: its gain is {gain:g}, and sigma_required {sigma_required:g}"
        )
    if not bound <= amplitude_limit:
        # `bound` has lost digits where the channel's noise is nearly enough; what the limit reaches has not.
        reached = math.hypot(gain * max(amplitude_limit, 0.0), noise_std_real) / alpha_u
        if not reached >= sigma_required * (1 - 1e-12):
            raise PrivacyError(
                f"the jammer needs amplitude {bound:.4g} and may use {amplitude_limit:.4g}: no client may send"
            )
        bound = max(amplitude_limit, 0.0)
    wanted = bound * (factor if factor_on is FactorOn.AMPLITUDE else math.sqrt(factor))
    return JammerPlan(alpha=max(bound, min(wanted, amplitude_limit)), gain=gain, sigma_required=sigma_required)


def reachable_alpha_u(
    alpha_u: float, *, sigma_required: float, gain: float, noise_std_real: float, amplitude_limit: float
) -> float:
    """`alpha_u`, lowered where the jammer at its limit could not reach `sigma_required`: every client is then received
    more quietly.

    sigma^2 alpha_u^2 = |h_CJ|^2 alpha_CJ^2 + sigma_c^2 at the limit gives the largest alpha_u that keeps the bound.
    """
    return min(alpha_u, math.hypot(gain * amplitude_limit, noise_std_real) / sigma_required)
