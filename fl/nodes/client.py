"""A client: decides its power from its own channel, holds its own update, sends when told."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fl.errors import PrivacyError
from fl.nodes.circuits import charged_gain_upper, rounding_of
from fl.nodes.jammer import Jamming
from fl.nodes.messages import Announcement, Decision, JammingOrder, Message, Sent, Transmit
from fl.nodes.transmitter import Burst, Transmitter, TransmitterNode
from fl.privacy.clipping import BoundedUpdate
from fl.uplink.modes import Backoff
from fl.uplink.power_control import control_power


@dataclass(frozen=True)
class Departure:
    """How an update left. It depends on the update, and is for whoever runs the experiment, not for a link.

    backoff: s_i as used. relative_norm: of the update, in units of tau. shortened: whether it had to be clipped to tau.
    """

    backoff: float
    relative_norm: float
    shortened: bool
    burst: Burst


class ClientNode(TransmitterNode):
    """weight: p_i. clip_norm: tau. fetch: this client's update for the uplink that it is told to send.

    The update is this node's own and leaves it through the radio only. jamming: what the node does where it is its
    turn to jam. departure: of what was sent last.
    """

    def __init__(
        self,
        transmitter: Transmitter,
        weight: float,
        clip_norm: float,
        fetch: Callable[[], BoundedUpdate],
        backoff: Backoff = Backoff.WORST_CASE,
        jamming: Jamming | None = None,
    ) -> None:
        super().__init__(transmitter)
        self.weight, self.clip_norm, self.backoff = weight, clip_norm, backoff
        self.departure: Departure | None = None
        self.fetch, self.jamming = fetch, jamming or Jamming(transmitter)
        self._announcement: Announcement | None = None
        self._worst_backoff = math.inf

    def answer(self, message: Message[Any]) -> Any:
        """See `Node.answer`."""
        match message:
            case Announcement():
                return self.decide(message)
            case JammingOrder():
                return self.jamming.decide(message)
            case Transmit():
                return self.jamming.transmit(message) if self.jamming.ordered else self.transmit(message)
        return super().answer(message)

    def decide(self, announcement: Announcement) -> Decision:
        """alpha_i(f) = alpha_u p_i G_i(f) / (tau s_i), with s_i for the frequency that needs the most power.

        gain_upper is s_i^-1 sup_f |H G| at the agreed confidence. The l2 norm of what arrives, over all samples, is at
        most that factor times p_i alpha_u, whatever the update; what circuits add is in it.
        """
        state = announcement.state
        # What was announced before is void, also where nothing can be decided now: it was decided on for another.
        self._announcement, self.departure = None, None
        self.jamming.forget()
        power = control_power(
            alpha_u=announcement.alpha_u,
            weight=self.weight,
            gain=complex(state.weakest_gain),
            clip_norm=self.clip_norm,
            limit=self.transmitter.air.energy_limit,
        )
        scene = (state, self.transmitter.air, self.transmitter.circuits)
        csi_error = float(np.mean(state.relative_std**2))
        elapsed = announcement.payload_start_sample + announcement.payload_samples - state.reference_sample
        # Half of the channel's relative error is phase; that of the frequency offset grows since the sounding.
        drift = 2.0 * math.pi * state.cfo_std_cycles_per_sample * elapsed
        decision = Decision(
            backoff=power.backoff,
            gain_upper=charged_gain_upper(*scene, announcement.noise_std_real) / power.backoff,
            csi_error=csi_error,
            phase_error_rad=math.hypot(math.sqrt(csi_error / 2.0), drift),
            timing_error=self._timing_error(drift),
            rounding=rounding_of(*scene, announcement.alpha_u),
        )
        self._announcement, self._worst_backoff = announcement, power.backoff
        return decision

    def arrives_with(self, decision: Decision) -> float:
        """The largest gain with which what it sends may arrive: where it looks at its update, that of s_i = 1."""
        return decision.gain_upper * (decision.backoff if self.backoff is Backoff.ACTUAL else 1.0)

    def _timing_error(self, drift_rad: float) -> float:
        """A clock is off by as many parts as its carrier is: the phase's drift, scaled from carrier to subcarrier."""
        if drift_rad == 0.0:
            return 0.0
        radio, numerology = self.transmitter.radio, self.transmitter.air.numerology
        subcarriers_hz = numerology.used_frequencies * numerology.sample_rate_hz
        return float(np.mean((drift_rad * subcarriers_hz / radio.settings.tx_center_hz) ** 2))

    def transmit(self, order: Transmit) -> Sent:
        """Send the update through the inverse of the channel, once: x = alpha_u p_i / (tau s_i) g * (M u)."""
        if self._announcement is None:
            raise PrivacyError("a client sends its update after it has decided on its power, and once")
        announcement, self._announcement = self._announcement, None
        update = self.fetch()
        backoff = self._backoff_for(update, announcement)
        scale = announcement.alpha_u * self.weight / (self.clip_norm * backoff)
        burst = self.transmitter.send(update.values, scale, announcement, order.start_sample)
        self.departure = Departure(
            backoff=backoff,
            relative_norm=min(1.0, update.norm_before / self.clip_norm),
            shortened=update.norm_before > update.clip_norm,
            burst=burst,
        )
        return Sent(burst.samples)

    def _backoff_for(self, update: BoundedUpdate, announcement: Announcement) -> float:
        """s_i with which this update is sent: the announced one, unless `actual` looks at the update."""
        if self.backoff is Backoff.WORST_CASE:
            return self._worst_backoff
        return control_power(
            alpha_u=announcement.alpha_u,
            weight=self.weight,
            gain=complex(announcement.state.weakest_gain),
            clip_norm=self.clip_norm,
            limit=self.transmitter.air.energy_limit,
            update_norm=float(np.linalg.norm(update.values.astype(np.float64))),
        ).backoff
