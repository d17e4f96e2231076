"""What is attacked: one client of a lab that has nearly all of the weight, and noise that leaves it far from hidden."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl.nodes.air_format import AirFormat
from fl.nodes.coordinated import RadioRules
from fl.uplink.alpha_u import ForNoise, PowerSettings
from fl.uplink.jammer import JammerRole, JammerSettings

WEIGHT = 0.96
"""p_i of the client under attack."""
CLIP_NORM = 1.0
SYMBOLS = 3
"""Of the sounding's numerology: coordinates that they could hold make a payload that is small enough to attack."""


@dataclass(frozen=True)
class Attack:
    """What is attacked, and how. client: its number in the lab. air: a run's format, with a short payload.

    mu: separation that noise is sized for, roughly. jamming: noise of the jammer over that of the receiver, as standard
    deviations. observer: radio whose captures are attacked instead of the server's.
    """

    client: int
    uplinks: int
    air: AirFormat
    seed: int = 1
    mu: float = 40.0
    jammer: JammerRole = JammerRole.NONE
    jamming: float = 1.2
    observer: str | None = None

    def sizes(self, clients: int) -> NDArray[np.int64]:
        """n_i (K,) with which the client has the weight `WEIGHT`, or all of it where it is alone."""
        sizes = np.ones(clients, np.int64)
        sizes[self.client] = max(1, round(WEIGHT / (1.0 - WEIGHT) * (clients - 1)))
        return sizes

    def rules(self, weight: float) -> RadioRules:
        """Noise for the separation `mu`, of which the jammer has its part."""
        sigma = weight / self.mu
        jammed = self.jammer is not JammerRole.NONE
        own = sigma / math.hypot(1.0, self.jamming) if jammed else sigma
        return RadioRules(
            power=PowerSettings(ForNoise(own)),
            jammer=JammerSettings(self.jammer, sigma) if jammed else JammerSettings(),
            max_phase_error_rad=0.3,
            attempts=3,
            diagnosis=False,
        )
