"""A client: decides its power from its own channel, holds its own update, sends when told."""

import math
from dataclasses import dataclass

import numpy as np

from fl.errors import PrivacyError
from fl.nodes.messages import Announcement, Decision, Sent, Transmit
from fl.nodes.transmitter import Transmitter, relative_gain_upper
from fl.privacy.clipping import BoundedUpdate
from fl.uplink.modes import Backoff
from fl.uplink.power_control import control_power


@dataclass
class ClientNode:
    """weight: p_i. clip_norm: tau. The update is this node's own and leaves it through the radio only."""

    transmitter: Transmitter
    weight: float
    clip_norm: float
    backoff: Backoff = Backoff.WORST_CASE
    _announcement: Announcement | None = None

    def decide(self, announcement: Announcement) -> Decision:
        """alpha_i[k] = alpha_u p_i / (H_i[k] tau s_i), with s_i for the subcarrier that needs the most power.

        gain_upper is s_i^-1 max_k |H|/|H^| at the agreed confidence, for all k at once. The l2 norm of what arrives is
        at most that factor times p_i alpha_u, whatever the update.
        """
        state = announcement.state
        self._announcement = announcement
        power = control_power(
            alpha_u=announcement.alpha_u,
            weight=self.weight,
            gain=complex(state.weakest_gain),
            clip_norm=self.clip_norm,
            limit=self.transmitter.air.energy_limit,
        )
        csi_error = float(np.mean(state.relative_std**2))
        elapsed = announcement.payload_start_sample + announcement.payload_samples - state.reference_sample
        # Half of the channel's relative error is phase; that of the frequency offset grows since the sounding.
        drift = 2.0 * math.pi * state.cfo_std_cycles_per_sample * elapsed
        return Decision(
            backoff=power.backoff,
            gain_upper=relative_gain_upper(state, self.transmitter.air) / power.backoff,
            csi_error=csi_error,
            phase_error_rad=math.hypot(math.sqrt(csi_error / 2.0), drift),
            timing_error=self._timing_error(drift),
        )

    def _timing_error(self, drift_rad: float) -> float:
        """A clock is off by as many parts as its carrier is: the phase's drift, scaled from carrier to subcarrier."""
        if drift_rad == 0.0:
            return 0.0
        radio, numerology = self.transmitter.radio, self.transmitter.air.numerology
        subcarriers_hz = numerology.used_frequencies * numerology.sample_rate_hz
        return float(np.mean((drift_rad * subcarriers_hz / radio.settings.tx_center_hz) ** 2))

    def backoff_for(self, update: BoundedUpdate) -> float:
        """s_i with which this update will be sent: public, unless `actual` looks at the update."""
        announcement = self._decided()
        norm = float(np.linalg.norm(update.values.astype(np.float64))) if self.backoff is Backoff.ACTUAL else None
        return control_power(
            alpha_u=announcement.alpha_u,
            weight=self.weight,
            gain=complex(announcement.state.weakest_gain),
            clip_norm=self.clip_norm,
            limit=self.transmitter.air.energy_limit,
            update_norm=norm,
        ).backoff

    def _decided(self) -> Announcement:
        if self._announcement is None:
            raise PrivacyError("a client gets its update after it has decided on its power")
        return self._announcement

    def transmit(self, update: BoundedUpdate, order: Transmit) -> Sent:
        """Send the update divided by the channel: x[k] = alpha_u p_i / (tau s_i H[k]) u."""
        announcement = self._decided()
        scale = announcement.alpha_u * self.weight / (self.clip_norm * self.backoff_for(update))
        cells = self.transmitter.air.grid.to_cells(update.values, out=self.transmitter.workspace.cells)
        gains = (scale * announcement.state.inverse).astype(np.complex64)
        return self.transmitter.send(cells, gains, announcement.state, order.start_sample, allow_clipping=True)

    def energy_of(self, update: BoundedUpdate) -> float:
        """||x||^2 over the cells with which `transmit` would send this update."""
        announcement = self._decided()
        scale = announcement.alpha_u * self.weight / (self.clip_norm * self.backoff_for(update))
        power = np.square(np.abs(self.transmitter.air.grid.to_cells(update.values)), dtype=np.float64).sum(axis=0)
        return float(power @ np.abs(scale * announcement.state.inverse) ** 2)
