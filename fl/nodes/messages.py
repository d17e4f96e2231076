"""What is said to nodes, and what they answer: frozen, and small enough for any link, but for what the server received.

All of it is public. What depends on a client's data stays in its node: see `fl.nodes.client.Departure`.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar, cast, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from calibration.diagnostics import NoiseDiagnostics
from calibration.noise import NoiseMeasurement, SigmaBound
from fl.errors import PrivacyError
from phy.inversion import FINE, ChannelInverse, band_numerology, fine_response, invert
from phy.numerology import Numerology

Answer = TypeVar("Answer")


class Message(Generic[Answer]):
    """Something that is said to a node, which answers with an `Answer`."""


def answer_type(message: Message[Any]) -> type:
    """The class of what a message is answered with; that of None where with nothing."""
    bases: tuple[Any, ...] = getattr(type(message), "__orig_bases__", ())
    (answer,) = next(get_args(base) for base in bases if get_origin(base) is Message)
    return cast(type, answer)


@dataclass(frozen=True)
class Sent:
    """Transmitter to server: a burst of so many samples is on its way."""

    samples: int


@dataclass(frozen=True)
class CountOffset(Message[None]):
    """Server to transmitter: add this to the server's sample numbers to get those of your own counter."""

    offset_samples: int


@dataclass(frozen=True)
class Sound(Message[Sent]):
    """Server to transmitter: send the sounding frame so that it starts at `start_sample`."""

    start_sample: int


@dataclass(frozen=True)
class FlatChannel:
    """A channel that cannot be told from a single path with a whole delay: one factor undoes it.

    deviation: largest |H^ - gain exp(-j 2 pi f delay)| over all subcarriers, relative to |gain|. std: standard
    deviation of the estimate at a single subcarrier, relative to |gain|.
    """

    gain: complex
    delay_samples: int
    deviation: float
    std: float


@dataclass(frozen=True)
class Unexplained:
    """What a sounding shows that is not in the estimated channel: see `fl.nodes.soundings.errors`.

    energy: X, over what noise makes of one entry. degrees: nu, entries that noise alone would fill. noise_degrees: D,
    complex degrees of freedom of the noise that this is measured in. entry_std: standard deviation of a raw entry.
    late_path: amplitude of a path that is later than a symbol, 0 where none is seen.
    """

    energy: float
    degrees: float
    noise_degrees: float
    entry_std: float
    late_path: float = 0.0


# Compared by identity, as all that has arrays.
@dataclass(frozen=True, eq=False)
class MirrorImage:
    """The mirror image of a transmitter, as its sounding shows it: see `fl.nodes.soundings.image`.

    taps: complex128, of the filter with which the conjugated signal is sent beside the signal; the middle one has no
    delay. std: standard deviation of the image's response at the band's subcarriers (U',). unexplained: of the fit.
    """

    taps: NDArray[np.complex128]
    std: NDArray[np.float64]
    unexplained: Unexplained


@dataclass(frozen=True)
class LevelChange:
    """Gain of a transmitter at a payload's level over that at full scale, and the estimate's standard deviation.

    level: amplitude of the one over that of the other.
    """

    gain: float
    std: float
    level: float


@lru_cache(maxsize=16)
def _used_places(numerology: Numerology) -> NDArray[np.intp]:
    """The same for all transmitters, so that it is kept once."""
    band = band_numerology(numerology).used_subcarriers
    return np.asarray(np.isin(band, numerology.used_subcarriers)).nonzero()[0]


# Compared by identity: it has arrays, and what is derived from it is kept for a while.
@dataclass(frozen=True, eq=False)
class SoundedChannel:
    """Server to transmitter: what its sounding showed.

    channel: complex64 (U',), received over sent cell at each subcarrier of the band, transitions included (see
        `phy.inversion`). channel_var: E|error|^2 of each entry (U',). numerology: whose band it is.
    cfo_cycles_per_sample, cfo_std_cycles_per_sample: transmitter minus receiver. reference_sample: the moment at which
        `channel` holds; later its phase has turned by the frequency offset. offset_samples: by how much the
        transmitter's frames come later than the server's counter says.
    beyond, beyond_std: largest |H^| at the sounded subcarriers beyond the band, and the standard deviation of one;
        None where it was not sounded there, and no path is taken to be stronger than within it.
    flat: where one factor will do.
    unexplained: what else was in the sounding; None where that is known to be nothing. image: of the transmitter's
        mixer, None where it was not measured. level: how its gain changes towards a payload's level; None where that
        was not measured, because a calibration says it.
    """

    channel: NDArray[np.complex64]
    channel_var: NDArray[np.float64]
    numerology: Numerology
    cfo_cycles_per_sample: float
    cfo_std_cycles_per_sample: float
    reference_sample: int
    offset_samples: int
    flat: FlatChannel | None = None
    beyond: float | None = None
    beyond_std: float = 0.0
    unexplained: Unexplained | None = None
    image: MirrorImage | None = None
    level: LevelChange | None = None

    @property
    def response(self) -> NDArray[np.complex128]:
        """H(f) on the fine grid of `phy.inversion`."""
        return _response(self)

    @property
    def inverse(self) -> ChannelInverse:
        """The filter that undoes the channel for a payload."""
        return _inverse(self)

    @property
    def used(self) -> NDArray[np.intp]:
        """Places of the used subcarriers among those of the band (U,)."""
        return _used_places(self.numerology)

    @property
    def relative_std(self) -> NDArray[np.float64]:
        """Standard deviation of what arrives at each used subcarrier, relative to what should (U,)."""
        if self.flat is not None:
            # One factor from all subcarriers of the sounding.
            return np.broadcast_to(self.flat.std / math.sqrt(self.numerology.fft_size - 2), self.used.shape)
        return np.asarray(np.sqrt(self.channel_var[self.used]) * self.inverse.gains[FINE * self.numerology.used_bins])

    @cached_property
    def numbers(self) -> dict[Hashable, float]:
        """What was found to follow from it, kept for as long as it is: server and transmitter ask for the same."""
        return {}

    @cached_property
    def weakest_gain(self) -> float:
        """1 / sup_f |G(f)|: the gain that decides on the power that undoing the channel takes; 0 without a channel."""
        if self.flat is not None:
            return abs(self.flat.gain)
        return 1.0 / self.inverse.largest_gain if self.inverse.largest_gain > 0.0 else 0.0


# Of so many at a time: both are 130 times the size of a channel.
@lru_cache(maxsize=64)
def _response(state: SoundedChannel) -> NDArray[np.complex128]:
    return fine_response(state.channel, state.numerology)


@lru_cache(maxsize=64)
def _inverse(state: SoundedChannel) -> ChannelInverse:
    return invert(_response(state), state.numerology)


@dataclass(frozen=True)
class Circuits:
    """Transmitter to server: what its radio's circuits do to a signal.

    step: of its converter as it is set, full scale 1, None where nothing is rounded. image: amplitude of the mirror
    image relative to the signal, at most, as the lab file says it; None where it does not.
    """

    step: float | None = None
    image: float | None = 0.0

    def __post_init__(self) -> None:
        """Refuse what no circuits have."""
        if not ((self.step is None or 0.0 < self.step <= 1.0) and (self.image is None or self.image >= 0.0)):
            raise PrivacyError(f"no transmitter has {self}: expected a step from 0 to 1 and an image of 0 or more")


@dataclass(frozen=True)
class DescribeCircuits(Message[Circuits]):
    """Server to transmitter: what must noise be sized for besides your channel?"""


@dataclass(frozen=True)
class Rounding:
    """Of one burst, see `fl.privacy.converters`. distance: as it arrives, over alpha_u. delta: that its tails take."""

    distance: float = 0.0
    delta: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no converter does."""
        if not (0.0 <= self.distance < math.inf and 0.0 <= self.delta <= 1.0):
            raise PrivacyError(f"no converter leads to {self}: expected a distance and a probability")


@dataclass(frozen=True)
class Decision:
    """Client to server: what it decided from its own channel. Nothing in it depends on data.

    backoff: s_i. gain_upper: upper bound on the factor with which its weight arrives, at the agreed confidence.
    csi_error: mean of |channel error / channel|^2 over the subcarriers. phase_error_rad: predicted rms at the payload's
    end. timing_error: mean square of the phase slope that an uncorrected clock drift leaves there, in rad^2. rounding:
    what its converter is charged with besides, both 0 where nothing is rounded.
    """

    backoff: float
    gain_upper: float
    csi_error: float
    phase_error_rad: float
    timing_error: float
    rounding: Rounding = Rounding()

    def __post_init__(self) -> None:
        """Refuse what follows from no channel: it comes from another machine, and ledgers rest on it."""
        errors = (self.csi_error, self.phase_error_rad, self.timing_error)
        if not (self.backoff >= 1.0 and 0.0 <= self.gain_upper < math.inf and all(error >= 0.0 for error in errors)):
            raise PrivacyError(f"no channel leads to {self}: expected a back-off of 1 or more and no negative numbers")


@dataclass(frozen=True)
class Announcement(Message[Decision]):
    """Server to client: the common factor, this client's channel, and when the payload will start and end.

    noise_std_real: lower bound on the receiver's own noise. block: number of the sounding, as in a `JammingOrder`.
    """

    alpha_u: float
    state: SoundedChannel
    payload_start_sample: int
    payload_samples: int
    noise_std_real: float
    block: int


@dataclass(frozen=True)
class JammingDecision:
    """Jammer to server. alpha: amplitude at its weakest subcarrier. gain_lower: lower bound on the gain there."""

    alpha: float
    gain_lower: float

    def __post_init__(self) -> None:
        """Refuse what is no amplitude."""
        if not (0.0 <= self.alpha < math.inf and 0.0 < self.gain_lower < math.inf):
            raise PrivacyError(f"no channel leads to {self}: expected finite numbers above 0")


@dataclass(frozen=True)
class JammingOrder(Message[JammingDecision]):
    """Server to jammer: the noise that must arrive, as a standard deviation per real coordinate.

    block: number of the sounding. In simulation noise is drawn for it, so that runs repeat.
    """

    received_std_real: float
    state: SoundedChannel
    block: int


@dataclass(frozen=True)
class Transmit(Message[Sent]):
    """Server to all: send the payload so that it starts at `start_sample`. It is said after the ledger was written."""

    start_sample: int


@dataclass(frozen=True)
class Withdraw(Message[int]):
    """Server to transmitter: forget what has not left yet. Answered with the number of bursts that were forgotten."""


@dataclass(frozen=True)
class Check(Message[None]):
    """Server to transmitter: was anything lost of what you sent? A `HardwareError` is the answer where it was."""


@dataclass(frozen=True)
class Silence:
    """What the server heard while nobody sent. power: see `block_power`.

    sigma, sigma_everywhere: lower bounds on its noise at all frequencies of the band, transitions included, and at all
    frequencies that are sounded, for payloads that are not filtered.
    start_sample: of the uplink's own silence: later than was asked for where the server had to listen for longer.
    diagnostics: whether it is noise that a bound may rest on.
    """

    noise: NoiseMeasurement
    sigma: SigmaBound
    sigma_everywhere: SigmaBound
    power: NDArray[np.float32]
    start_sample: int
    diagnostics: NoiseDiagnostics


@dataclass(frozen=True)
class MeasureSilence(Message[Silence]):
    """To the server's radio: measure noise from `start_sample` on."""

    start_sample: int


@dataclass(frozen=True)
class Heard:
    """The channels of the transmitters that sounded, in the order of their slots, and the power in the meantime."""

    states: tuple[SoundedChannel, ...]
    power: NDArray[np.float32]


@dataclass(frozen=True)
class HearSoundings(Message[Heard]):
    """To the server's radio: receive `slots` slots, of which the first has the number `first_slot`."""

    first_slot: int
    slots: int
    start_sample: int


@dataclass(frozen=True)
class Received:
    """The payload at the server. cells: (symbols, U). samples: the whole frame, guards and margins included.

    guards: noise before and after everybody sent. margins: noise where a jammer is alone, None where nobody jams.
    empty_var_real: variance per real coordinate of each symbol's empty cells (symbols,), beside the used band.
    empty_cells: of each symbol.
    """

    cells: NDArray[np.complex64]
    samples: NDArray[np.complex64]
    guards: NoiseMeasurement
    margins: NoiseMeasurement | None
    empty_var_real: NDArray[np.float64]
    empty_cells: int


@dataclass(frozen=True)
class Receive(Message[Received]):
    """To the server's radio: receive the payload's frame, whose leading guard begins at `start_sample`.

    jammed: whether somebody jams in it, so that the margins are looked at.
    """

    start_sample: int
    jammed: bool
