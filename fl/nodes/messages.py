"""What nodes say to each other: frozen and small enough for any link.

All of it is public, except `Sent`: see there.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

SMALLEST_CHANNEL = 1e-12


@dataclass(frozen=True)
class Sound:
    """Server to transmitter: send the sounding frame so that it starts at `start_sample`."""

    start_sample: int


@dataclass(frozen=True)
class SoundedChannel:
    """Server to transmitter: what its sounding showed.

    channel: complex64 (U,), received over sent cell at each used subcarrier. channel_var: E|error|^2 of each entry
        (U,).
    cfo_cycles_per_sample, cfo_std_cycles_per_sample: transmitter minus receiver. reference_sample: the moment at which
        `channel` holds; later its phase has turned by the frequency offset. offset_samples: by how much the
        transmitter's frames come later than the server's counter says.
    """

    channel: NDArray[np.complex64]
    channel_var: NDArray[np.float64]
    cfo_cycles_per_sample: float
    cfo_std_cycles_per_sample: float
    reference_sample: int
    offset_samples: int

    @cached_property
    def inverse(self) -> NDArray[np.complex128]:
        """1/H (U,), with magnitudes below what any radio resolves held back from infinity."""
        channel = self.channel.astype(np.complex128)
        return np.asarray(1.0 / np.where(np.abs(channel) < SMALLEST_CHANNEL, SMALLEST_CHANNEL, channel))

    @cached_property
    def relative_std(self) -> NDArray[np.float64]:
        """Standard deviation of the channel's error relative to the channel (U,)."""
        return np.asarray(np.sqrt(self.channel_var) * np.abs(self.inverse))

    @property
    def weakest_gain(self) -> float:
        """min_k |H[k]|: the gain that decides on the power of channel inversion."""
        return float(1.0 / np.abs(self.inverse).max())


@dataclass(frozen=True)
class Announcement:
    """Server to client: the common factor, this client's channel, and when the payload will start and end."""

    alpha_u: float
    state: SoundedChannel
    payload_start_sample: int
    payload_samples: int


@dataclass(frozen=True)
class Decision:
    """Client to server: what it decided from its own channel. Nothing in it depends on data.

    backoff: s_i. gain_upper: upper bound on the factor with which its weight arrives, at the agreed confidence.
    csi_error: mean of |channel error / channel|^2 over the subcarriers. phase_error_rad: predicted rms at the payload's
    end. timing_error: mean square of the phase slope that an uncorrected clock drift leaves there, in rad^2.
    """

    backoff: float
    gain_upper: float
    csi_error: float
    phase_error_rad: float
    timing_error: float


@dataclass(frozen=True)
class JammingOrder:
    """Server to jammer: the noise that must arrive, as a standard deviation per real coordinate."""

    received_std_real: float
    state: SoundedChannel


@dataclass(frozen=True)
class JammingDecision:
    """Jammer to server. alpha: amplitude at its weakest subcarrier. gain_lower: lower bound on the gain there."""

    alpha: float
    gain_lower: float


@dataclass(frozen=True)
class Transmit:
    """Server to all: send the payload so that it starts at `start_sample`."""

    start_sample: int


@dataclass(frozen=True)
class Sent:
    """Transmitter to whoever runs the simulation: what left. clipped_energy: of what clipping took away, as it arrives.

    What clips depends on the update, so on machines of their own nodes must keep the two clipped values to themselves.
    """

    samples: int
    clipped_samples: int
    clipped_energy: float
