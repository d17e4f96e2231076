"""A client: decides its power from its own channel, holds its own update, sends when told."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.nodes.messages import Announcement, Decision, Sent, Transmit
from fl.nodes.transmitter import Transmitter, inverse_channel, relative_gain_upper, weakest_gain
from fl.privacy.clipping import BoundedUpdate
from fl.uplink.modes import Backoff
from fl.uplink.power_control import control_power


@dataclass
class ClientNode:
    """weight: p_i. clip_norm: tau. The update stays here until `transmit`."""

    transmitter: Transmitter
    weight: float
    clip_norm: float
    backoff: Backoff = Backoff.WORST_CASE
    _announcement: Announcement | None = None
    _inverse: NDArray[np.complex128] = field(default_factory=lambda: np.zeros(0, np.complex128))
    _cells: NDArray[np.complex64] | None = None

    def decide(self, announcement: Announcement) -> Decision:
        """alpha_i[k] = alpha_u p_i / (H_i[k] tau s_i), with s_i for the subcarrier that needs the most power.

        gain_upper is s_i^-1 max_k |H|/|H^| at the agreed confidence: |H| <= |H^| + q std for all k at once. The l2 norm
        of what arrives is at most that factor times p_i alpha_u, whatever the update.
        """
        state = announcement.state
        self._announcement = announcement
        self._inverse = inverse_channel(state)
        power = control_power(
            alpha_u=announcement.alpha_u,
            weight=self.weight,
            gain=complex(weakest_gain(state)),
            clip_norm=self.clip_norm,
            limit=self.transmitter.air.energy_limit,
        )
        relative_var = state.channel_var * np.abs(self._inverse) ** 2
        elapsed = announcement.payload_start_sample + announcement.payload_samples - state.reference_sample
        # Half of the channel's relative error is phase; that of the frequency offset grows since the sounding.
        drift = 2.0 * math.pi * state.cfo_std_cycles_per_sample * elapsed
        return Decision(
            backoff=power.backoff,
            gain_upper=relative_gain_upper(state, self.transmitter.air) / power.backoff,
            csi_error=float(relative_var.mean()),
            phase_error_rad=math.hypot(math.sqrt(float(relative_var.mean()) / 2.0), drift),
            timing_error=self._timing_error(drift),
        )

    def _timing_error(self, drift_rad: float) -> float:
        """A clock is off by as many parts as its carrier is: the phase's drift, scaled from carrier to subcarrier."""
        radio, numerology = self.transmitter.radio, self.transmitter.air.numerology
        subcarriers_hz = numerology.used_frequencies * numerology.sample_rate_hz
        return float(np.mean((drift_rad * subcarriers_hz / radio.settings.tx_center_hz) ** 2))

    def load(self, update: BoundedUpdate) -> tuple[float, float]:
        """Make the update's cells, divided by the channel. Returns the back-off used and the energy ||x||^2."""
        if self._announcement is None:
            raise PrivacyError("a client gets its update after it has decided on its power")
        air = self.transmitter.air
        norm = float(np.linalg.norm(update.values.astype(np.float64))) if self.backoff is Backoff.ACTUAL else None
        power = control_power(
            alpha_u=self._announcement.alpha_u,
            weight=self.weight,
            gain=complex(weakest_gain(self._announcement.state)),
            clip_norm=self.clip_norm,
            limit=air.energy_limit,
            update_norm=norm,
        )
        scale = self._announcement.alpha_u * self.weight / (self.clip_norm * power.backoff)
        cells = air.grid.to_cells(update.values)
        cells *= (scale * self._inverse).astype(np.complex64)
        self._cells = cells
        return power.backoff, float(np.vdot(cells, cells).real)

    def transmit(self, order: Transmit) -> Sent:
        """Send what was loaded, once."""
        if self._cells is None or self._announcement is None:
            raise PrivacyError("a client is told to transmit without an update")
        cells, self._cells = self._cells, None
        return self.transmitter.send(cells, self._announcement.state, order.start_sample)
