"""alpha_u and the jammer's noise for one uplink, sized by what its soundings showed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl.nodes.air import AirFormat
from fl.nodes.messages import SoundedChannel
from fl.nodes.transmitter import gains_lower, relative_gain_upper
from fl.uplink.jammer import SILENT, FactorOn, JammerPlan, reachable_alpha_u, size_jammer
from fl.uplink.modes import Backoff
from fl.uplink.power_control import alpha_u_for_noise, alpha_u_without_backoff

_PASSES = 3


def weakest_gains(clients: Sequence[SoundedChannel]) -> NDArray[np.complex128]:
    """The gains (K,) that decide on the clients' powers."""
    return np.array([state.weakest_gain for state in clients], dtype=np.complex128)


@dataclass(frozen=True)
class NoiseSizing:
    """What noise is sized for. weights: p_i of each client (K,).

    alpha_u: a number, None for the largest without back-off, or 0 to let measured noise alone give `channel_sigma`.
    jammer_sigma: noise that the privacy target needs. factor, factor_on: what the jammer adds beyond it.
    """

    air: AirFormat
    weights: NDArray[np.float64]
    backoff: Backoff
    alpha_u: float | None
    channel_sigma: float
    jammer_sigma: float
    factor: float
    factor_on: FactorOn

    def choose(
        self, clients: Sequence[SoundedChannel], noise_std_real: float, jammer: SoundedChannel | None
    ) -> tuple[float, JammerPlan]:
        """alpha_u and the jammer's plan, such that the *measured* worst case meets the target.

        clients: their channels, in the order of the weights. noise_std_real: lower bound on the receiver's own noise.
        jammer: the channel of the one who is to jam, None where nobody is. Where it cannot reach the noise that is
        needed, alpha_u is lowered until it can.

        The ledger will charge each client with the upper bound of its gain, so sigma is sized for the largest of these
        bounds. They depend on alpha_u through the back-off, hence the few passes; what is charged is exact in any case.
        """
        margin = 1.0
        for _ in range(_PASSES):
            alpha_u = self._alpha_u(clients, noise_std_real, margin)
            plan = SILENT
            if jammer is not None:
                alpha_u, plan = self._jam(alpha_u, noise_std_real, jammer, margin)
            margin = max(1.0, *self._gain_bounds(clients, alpha_u))
        return alpha_u, plan

    def _alpha_u(self, clients: Sequence[SoundedChannel], noise_std_real: float, margin: float) -> float:
        if self.alpha_u is None:
            limits = np.full(len(self.weights), self.air.energy_limit)
            return alpha_u_without_backoff(self.weights, weakest_gains(clients), limits)
        return self.alpha_u or alpha_u_for_noise(noise_std_real, margin * self.channel_sigma)

    def _jam(
        self, alpha_u: float, noise_std_real: float, jammer: SoundedChannel, margin: float
    ) -> tuple[float, JammerPlan]:
        needed = {"sigma_required": margin * self.jammer_sigma, "noise_std_real": noise_std_real}
        reach = {"gain": float(gains_lower(jammer, self.air).min()), "amplitude_limit": self.air.jamming_limit}
        alpha_u = reachable_alpha_u(alpha_u, **needed, **reach)
        return alpha_u, size_jammer(alpha_u=alpha_u, factor=self.factor, factor_on=self.factor_on, **needed, **reach)

    def _gain_bounds(self, clients: Sequence[SoundedChannel], alpha_u: float) -> list[float]:
        # With `actual` back-off none may be claimed.
        limit = math.inf if self.backoff is Backoff.ACTUAL else math.sqrt(self.air.energy_limit)
        return [
            relative_gain_upper(state, self.air) / max(1.0, alpha_u * weight / (state.weakest_gain * limit))
            for state, weight in zip(clients, self.weights, strict=True)
        ]
