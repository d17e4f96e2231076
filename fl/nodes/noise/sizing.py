"""alpha_u and the jammer's noise for one uplink, sized by what its soundings showed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.nodes.air_format import AirFormat
from fl.nodes.circuits import charged_gain_upper, least_jamming, noise_kept
from fl.nodes.messages import Circuits, SoundedChannel
from fl.nodes.precoding import noise_gain
from fl.uplink.alpha_u import PowerSettings, UplinkState, choose_alpha_u
from fl.uplink.jammer import SILENT, JammerPlan, JammerSettings, reachable_alpha_u, size_jammer
from fl.uplink.modes import Backoff

_PASSES = 20
_ROUNDING = 1e-12
IDEAL = Circuits()
"""Of a transmitter that rounds nothing and makes no image."""


def weakest_gains(clients: Sequence[SoundedChannel]) -> NDArray[np.complex128]:
    """The gains (K,) that decide on the clients' powers."""
    return np.array([state.weakest_gain for state in clients], dtype=np.complex128)


@dataclass(frozen=True)
class NoiseSizing:
    """What noise is sized for. weights: p_i of each client (K,)."""

    air: AirFormat
    weights: NDArray[np.float64]
    power: PowerSettings
    jammer: JammerSettings

    def choose(
        self,
        uplink: int,
        clients: Sequence[SoundedChannel],
        noise_std_real: float,
        jammer: SoundedChannel | None,
        circuits: Sequence[Circuits] | None = None,
        jammer_circuits: Circuits = IDEAL,
    ) -> tuple[float, JammerPlan]:
        """alpha_u and the jammer's plan, such that the *measured* worst case meets the target.

        clients: their channels, in the order of the weights. circuits: theirs too, None where they are ideal.
        noise_std_real: lower bound on the receiver's own noise. jammer: the channel of the one who is to jam, None
        where nobody is; jammer_circuits: its own. Where it cannot reach the noise that is needed, alpha_u is lowered
        until it can; where so little is needed that its converter would make a grid of it, it sends more.

        The ledger will charge each client with the upper bound of its gain, so sigma is sized for the largest of these
        bounds. They depend on alpha_u through the back-off: a lower alpha_u, for more noise over it, lets clients back
        off by less, and takes more noise again. From a margin of 1 up this ends where a plan is enough for its own
        bounds, and at the latest with those of clients that do not back off.
        """
        gain, least = 0.0, 0.0
        if jammer is not None:
            gain = noise_kept(jammer, self.air, jammer_circuits.image) * noise_gain(jammer, self.air)
            least = least_jamming(jammer, self.air, jammer_circuits, noise_std_real)
        bounds = self._gain_bounds(clients, noise_std_real, circuits or [Circuits()] * len(clients))
        margin, enough = 1.0, max(1.0, *bounds)
        for left in reversed(range(_PASSES)):
            limits = np.full(len(self.weights), self.air.energy_limit)
            state = UplinkState(uplink, noise_std_real, self.weights, weakest_gains(clients), limits, margin)
            alpha_u = choose_alpha_u(self.power.alpha_u, state)
            plan = SILENT
            if jammer is not None:
                alpha_u, plan = self._jam(alpha_u, noise_std_real, gain, margin)
                plan = self._above_steps(plan, least)
            needed = max(1.0, *self._backed_off(bounds, clients, alpha_u))
            if needed <= margin * (1.0 + _ROUNDING):
                break
            margin = needed if left > 1 else enough
        return alpha_u, plan

    def _jam(self, alpha_u: float, noise_std_real: float, gain: float, margin: float) -> tuple[float, JammerPlan]:
        needed = {"sigma_required": margin * self.jammer.sigma_required, "noise_std_real": noise_std_real}
        reach = {"gain": gain, "amplitude_limit": self.air.jamming_limit}
        alpha_u = reachable_alpha_u(alpha_u, **needed, **reach)
        factor, factor_on = self.jammer.factor, self.jammer.factor_on
        return alpha_u, size_jammer(alpha_u=alpha_u, factor=factor, factor_on=factor_on, **needed, **reach)

    def _above_steps(self, plan: JammerPlan, least: float) -> JammerPlan:
        """The plan, with so much noise that rounding leaves it what it is."""
        if not plan.needed or plan.alpha >= least:
            return plan
        if least > self.air.jamming_limit:
            raise PrivacyError(
                "a step of the jammer's converter arrives so far above the receiver's noise that its own noise would "
                "be a grid with gaps, and hide nothing: no client may send; lower the jammer's tx_gain_db or the ps's "
                "rx_gain_db, or use more bits"
            )
        return replace(plan, alpha=least)

    def _gain_bounds(
        self, clients: Sequence[SoundedChannel], noise_std_real: float, circuits: Sequence[Circuits]
    ) -> list[float]:
        return [
            charged_gain_upper(state, self.air, own, noise_std_real)
            for state, own in zip(clients, circuits, strict=True)
        ]

    def _backed_off(self, bounds: list[float], clients: Sequence[SoundedChannel], alpha_u: float) -> list[float]:
        # With `actual` back-off none may be claimed.
        limit = math.inf if self.power.backoff is Backoff.ACTUAL else math.sqrt(self.air.energy_limit)
        return [
            bound / max(1.0, alpha_u * weight / (state.weakest_gain * limit))
            for bound, state, weight in zip(bounds, clients, self.weights, strict=True)
        ]
