"""ACCOUNT: what an uplink was, from what was planned and from what was heard beside its payload.

Noise is never counted for more than was planned. Three things are looked at. The guards, before and after everybody
sent: has the receiver's noise fallen since the silence, or in a part of the band? The margins, where a jammer is alone:
is the sum of both what it should be? And the empty cells of every symbol: was the jammer there all the time? Where it
was not, none of its noise counts.

What rounding is charged with rests on the receiver's noise (`fl.privacy.converters`, `fl.privacy.coarse_noise`): where
there is less of that than was planned for it is charged anew.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from calibration.converter import rounding_var_real
from calibration.noise import NoiseMeasurement
from calibration.pooling.presence import faltered, proven_var
from fl.nodes.messages import Received
from fl.privacy.mechanism import RoundMechanism


def accounted(
    planned: RoundMechanism,
    before: NoiseMeasurement,
    received: Received,
    *,
    jammed: bool,
    rounded_anew: Callable[[RoundMechanism], RoundMechanism],
) -> RoundMechanism:
    """The mechanism as it was.

    before: noise in the silence. rounded_anew: a mechanism with less of the receiver's noise than was planned, to the
    same with what rounding is charged with there.
    """
    # The converter's part of what is heard stays as it was, and does not count.
    rounding = rounding_var_real(before.converter_step)
    mechanism = _with_noise_of(received.guards, before, planned, rounding)
    if mechanism.noise_std_real < planned.noise_std_real:
        mechanism = rounded_anew(mechanism)
    if not jammed or 0.0 in (mechanism.alpha_cj, mechanism.sigma):
        return mechanism
    planned_var = (mechanism.sigma * mechanism.alpha_u) ** 2
    heard_var = planned_var + rounding
    if received.margins is None or faltered(received.empty_var_real, received.empty_cells, heard_var):
        return mechanism.without_jammer()
    proven = proven_var(received.margins, heard_var)
    if proven < heard_var:
        share = max(proven - rounding, 0.0) / planned_var
        return _resting_on(replace(mechanism, sigma=mechanism.sigma * math.sqrt(share)), received.margins)
    return mechanism


def _resting_on(mechanism: RoundMechanism, heard: NoiseMeasurement) -> RoundMechanism:
    """The mechanism, whose sigma is a bound on noise beside the payload now: one more that may fail."""
    failure = ("noise beside the payload", 1.0 - heard.bound_confidence)
    return replace(mechanism, bounds=(*(mechanism.bounds or ()), failure))


def _with_noise_of(
    guards: NoiseMeasurement, before: NoiseMeasurement, mechanism: RoundMechanism, rounding: float
) -> RoundMechanism:
    """With less of the receiver's noise where the guards have less than the silence before, or a part of their band
    less than is counted on."""
    if guards.ci[1] < before.ci[0]:
        share = max(guards.pooled_lower - rounding, 0.0) / (before.noise_var_real - rounding)
        mechanism = _resting_on(_with_noise(mechanism, mechanism.noise_std_real * math.sqrt(share)), guards)
    own_var = mechanism.noise_std_real**2 + rounding
    proven = proven_var(guards, own_var)
    if proven < own_var:
        mechanism = _resting_on(_with_noise(mechanism, math.sqrt(max(proven - rounding, 0.0))), guards)
    return mechanism


def _with_noise(mechanism: RoundMechanism, noise_std_real: float) -> RoundMechanism:
    sigma = math.hypot(mechanism.jammer_gain * mechanism.alpha_cj, noise_std_real) / mechanism.alpha_u
    return replace(mechanism, sigma=sigma, noise_std_real=noise_std_real)
