"""The exact weighted sum: a reference for learning, with no radio and no privacy (epsilon is infinite)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl.privacy.conditions import View
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.uplink.contract import Aggregate, Authorise, Contributions, TrainedHere, Updates, UplinkPlan, checked_updates
from fl.uplink.jammer import SILENT
from fl.uplink.power_control import ClientPower


@dataclass(frozen=True)
class IdealUplink(TrainedHere):
    """sizes: samples of each client (K,). coordinates: d. The aggregate is sum_i p_i u_i."""

    sizes: NDArray[np.int64]
    coordinates: int
    clip_norm: float
    record_bounded: bool
    channel_ages: bool = False
    view: View = View.CELLS

    def plan(self, uplink: int, attempt: int = 0) -> UplinkPlan:
        """Every client sends at its weight; the mechanism says that there is no noise."""
        del attempt
        count = len(self.sizes)
        mechanism = RoundMechanism(
            uplink=uplink,
            received_gains=(1.0,) * count,
            sigma=0.0,
            sigma_origin=SigmaOrigin.NONE,
            record_bounded=self.record_bounded,
            clip_norm=self.clip_norm,
            alpha_u=1.0,
            alpha_cj=0.0,
            jammer_gain=0.0,
            noise_std_real=0.0,
        )
        weights = self.sizes / self.sizes.sum()
        powers = tuple(ClientPower(complex(weight), 1.0) for weight in weights)
        return UplinkPlan(uplink, 1.0, np.ones(count, np.complex128), weights, powers, SILENT, None, 0, mechanism)

    def exchange(self, plan: UplinkPlan, updates: Updates, authorise: Authorise) -> Aggregate:
        """Add the weighted updates up as they come, and hand the sum over as it is."""
        total = np.zeros(self.coordinates, np.float32)
        energy = np.zeros(len(self.sizes))
        clipped = 0
        for client, update in checked_updates(plan, updates, coordinates=self.coordinates, sizes=self.sizes):
            signal = update.values * np.float32(plan.weights[client])
            energy[client] = np.vdot(signal, signal)
            clipped += update.norm_before > update.clip_norm
            total += signal
        authorise()
        contributions = Contributions(np.ones(len(self.sizes)), energy, clipped)
        return Aggregate(total, plan.mechanism, contributions, math.sqrt(float(np.vdot(total, total))), 0.0)
