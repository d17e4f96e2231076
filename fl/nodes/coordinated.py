"""What an uplink over radios has wherever its nodes are: the server's radio, a coordinator, one plan at a time."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.nodes.air_format import AirFormat
from fl.nodes.coordinator import VIEW, Cast, Coordinator, Round
from fl.nodes.link import Link
from fl.nodes.noise.sizing import NoiseSizing
from fl.nodes.server import ServerNode
from fl.nodes.soundings.conversation import NoiseCheck
from fl.nodes.stage import Stage
from fl.privacy.clipping import checked_clip_norm
from fl.privacy.conditions import View
from fl.uplink.alpha_u import PowerSettings
from fl.uplink.contract import UplinkPlan
from fl.uplink.jammer import JammerRole, JammerSettings
from fl.uplink.modes import Rescale
from hardware.lab.clock import ClockMode
from hardware.lab.model import Lab
from hardware.lab.opened import OpenLab


@dataclass(frozen=True)
class RadioRules:
    """How an uplink over radios goes. max_phase_error_rad: coherence gate. attempts: that an uplink may take.

    diagnosis: whether each sum is compared with the exact one, which a process that has all updates can know.
    max_gain_rise_db: of a client from one sounding to the next, where nodes are apart; 0 where it is not looked at.
    """

    power: PowerSettings
    jammer: JammerSettings
    max_phase_error_rad: float
    attempts: int
    diagnosis: bool = True
    max_gain_rise_db: float = 0.0


class CoordinatedUplink:
    """lab: open, with the server's radio at least. sizes: n_i of the clients (K,), in the order of the lab's clients.

    Whoever derives from it calls `_coordinate` when it knows how nodes are reached.
    """

    coordinator: Coordinator

    def __init__(
        self, lab: OpenLab, air: AirFormat, sizes: NDArray[np.int64], clip_norm: float, rules: RadioRules
    ) -> None:
        self.lab, self.air, self.sizes, self.rules = lab, air, sizes, rules
        self.clip_norm, self.weights = checked_clip_norm(clip_norm), sizes / sizes.sum()
        self.cast = cast_of(lab.lab, rules.jammer.role)
        self.server = self._make_server()
        self._round: Round | None = None

    def _make_server(self) -> ServerNode:
        shared = self.lab.lab.clock_mode is ClockMode.SHARED
        # Where time is simulated an uplink depends on nothing before it, so that a resumed run repeats bit for bit.
        simulated = self.lab.time is not None
        server = ServerNode(self.lab.ps, self.air, shared, self.cast.transmitters, remembers=not simulated)
        if simulated:
            server.listener.listen_ahead(self.lab.ps.now())
        return server

    def kept_in(self, folder: Path) -> None:
        """`folder` is the run's, and may not be there yet; what must outlive this process is kept in it."""

    def _coordinate(self, link: Link, stage: Stage, *, record_bounded: bool, check_noise: NoiseCheck) -> None:
        self.coordinator = Coordinator(
            link=link,
            stage=stage,
            cast=self.cast,
            air=self.air,
            weights=self.weights,
            clip_norm=self.clip_norm,
            sizing=NoiseSizing(self.air, self.weights, self.rules.power, self.rules.jammer),
            max_phase_error_rad=self.rules.max_phase_error_rad,
            record_bounded=record_bounded,
            check_noise=check_noise,
        )

    @property
    def view(self) -> View:
        """The adversary against whom its mechanisms hold."""
        return VIEW

    @property
    def scale(self) -> np.float32:
        """Of a sum in units of tau, as it goes into the model."""
        return np.float32(self.clip_norm if self.rules.power.rescale is Rescale.RESCALED else 1.0)

    def released(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """The sum as it goes into the model, of `values` (d,) in units of tau."""
        return values * self.scale

    def _planned(self, uplink: int, attempt: int) -> Round:
        """SOUND and PLAN; what was planned before is void."""
        self._round = None
        self._round = self.coordinator.plan(uplink, attempt)
        return self._round

    def _once(self, plan: UplinkPlan) -> Round:
        """The round that was planned last, where `plan` is its; an uplink is carried once."""
        current = self._round
        if current is None or current.plan is not plan:
            raise PrivacyError("an uplink is exchanged once, after it was planned")
        self._round = None
        return current


def cast_of(lab: Lab, jammer_role: JammerRole) -> Cast:
    """Who takes part."""
    own = jammer_role in (JammerRole.DEDICATED, JammerRole.EXTERNAL)
    jammer = lab.jammer.name if own and lab.jammer is not None else None
    return Cast(lab.ps.name, tuple(radio.name for radio in lab.clients), jammer)
