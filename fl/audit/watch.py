"""Looking over the coordinator's shoulder: what was ordered, by whom it was carried out, and what was received.

Nothing is changed by it. A node is copied at the moment in which it is told to transmit, with all that it has decided
until then, so that the same code can be asked afterwards what it would have sent of something else.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.converter import rounding_var_real
from calibration.noise import NoiseMeasurement, measure_noise
from fl.errors import PrivacyError
from fl.nodes.client import ClientNode
from fl.nodes.jammer import JammerNode, Jamming
from fl.nodes.link import Link
from fl.nodes.messages import Answer, MeasureSilence, Message, Receive, Received, Silence, Transmit
from fl.nodes.radio_uplink import RadioUplink
from fl.nodes.transmitter import Transmitter
from fl.privacy.clipping import clip_update
from hardware.radio.contract import Radio
from hardware.radio.samples import TransmitReport
from phy.numerology import Numerology
from phy.units import noise_var_complex_from_real

OBSERVED_SILENCE = 16384
"""Samples of silence in which an observer's noise is measured."""
Draws = Callable[[int], NDArray[np.complex64]]
"""Number of draws to circular complex noise with unit variance on each of I and Q."""


@dataclass(frozen=True)
class Burst:
    """What a node gave to its radio. start_sample: in its count, `offset_samples` ahead of the server's."""

    samples: NDArray[np.complex64]
    start_sample: int
    offset_samples: int = 0


class _Recorder:
    """A radio as its node sees it, which keeps what it is given instead of sending it.

    Its converter has no steps: what a node makes of an update is then linear, and rounding is charged for itself.
    """

    tx_step: float | None = None

    def __init__(self, radio: Radio, offset_samples: int) -> None:
        self._radio, self._offset = radio, offset_samples
        self.bursts: list[Burst] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._radio, name)

    def transmit(
        self, samples: NDArray[np.complex64], start_sample: int, *, allow_clipping: bool = False
    ) -> TransmitReport:
        """Keep a copy: the caller uses its array again."""
        del allow_clipping
        self.bursts.append(Burst(samples.copy(), start_sample, self._offset))
        return TransmitReport(start_sample, samples.size, 0)


def _recorded(transmitter: Transmitter) -> tuple[Transmitter, _Recorder]:
    recorder = _Recorder(transmitter.radio, transmitter.offset_samples)
    radio: Any = recorder
    return replace(transmitter, radio=radio), recorder


@dataclass(frozen=True)
class ClientMoment:
    """A client that is about to send. name: of its radio."""

    name: str
    node: ClientNode
    order: Transmit

    def sends(self, update: NDArray[np.float32]) -> Burst:
        """What leaves for an update (d,), by the client's own code: clipping to tau, power, modulation."""
        node = copy.copy(self.node)
        node.transmitter, recorder = _recorded(node.transmitter)
        bounded = clip_update(update, node.clip_norm)
        node.fetch = lambda: bounded
        node.transmit(self.order)
        return _only(recorder)


@dataclass(frozen=True)
class JammerMoment:
    """A jammer that is about to send. drawn: the noise that it takes, once it has."""

    name: str
    jamming: Jamming
    order: Transmit
    drawn: list[NDArray[np.complex64]]

    def sent(self) -> Burst:
        """What it did send."""
        drawn = iter(self.drawn)
        return self.sends(lambda count: next(drawn).copy())

    def sends(self, noise: Draws) -> Burst:
        """What leaves for these draws, circular and of unit variance on each of I and Q where they are noise."""
        jamming = copy.copy(self.jamming)
        jamming.transmitter, recorder = _recorded(jamming.transmitter)
        jamming.noise_for = lambda block: noise
        jamming.transmit(self.order)
        return _only(recorder)

    def draws(self) -> int:
        """How many draws a burst takes."""
        counts: list[int] = []

        def counted(count: int) -> NDArray[np.complex64]:
            counts.append(count)
            return np.zeros(count, np.complex64)

        self.sends(counted)
        return sum(counts)

    def basis(self, number: int, value: complex = 1.0) -> Burst:
        """What leaves where only the draw `number` is `value` and all others are 0."""
        taken = [0]

        def one(count: int) -> NDArray[np.complex64]:
            values = np.zeros(count, np.complex64)
            if 0 <= number - taken[0] < count:
                values[number - taken[0]] = value
            taken[0] += count
            return values

        return self.sends(one)


def _only(recorder: _Recorder) -> Burst:
    if len(recorder.bursts) != 1:
        raise PrivacyError(f"a payload was sent in {len(recorder.bursts)} bursts: expected one")
    return recorder.bursts[0]


@dataclass(frozen=True)
class Watched:
    """What one exchange showed. samples: complex64, from the receiver's sample `start_sample` on.

    noise_var_complex: of the receiver, E|n|^2 per sample, as the silence before it showed, less what its converter adds
    by rounding: converter_var_complex.
    """

    clients: dict[str, ClientMoment]
    jammer: JammerMoment | None
    samples: NDArray[np.complex64]
    start_sample: int
    noise_var_complex: float
    converter_var_complex: float = 0.0


@dataclass
class Watch:
    """A link that remembers; `watching` puts it into an uplink. observer: heard instead of the server."""

    link: Link
    nodes: dict[str, Any]
    numerology: Numerology
    observer: Radio | None = None
    _clients: dict[str, ClientMoment] = field(default_factory=dict)
    _jammer: JammerMoment | None = None
    _received: tuple[int, NDArray[np.complex64]] | None = None
    _noise: NoiseMeasurement | None = None
    _sources: dict[str, Callable[[int], Draws]] = field(init=False)

    def __post_init__(self) -> None:
        """Know where each node's noise comes from."""
        self._sources = {
            name: node.jamming.noise_for
            for name, node in self.nodes.items()
            if isinstance(node, JammerNode | ClientNode)
        }

    def ask(self, node: str, message: Message[Answer]) -> Answer:
        """See `Link.ask`."""
        if isinstance(message, Transmit):
            self._remember(node, message)
        answer = self.link.ask(node, message)
        if isinstance(message, Receive) and isinstance(answer, Received):
            self._received = (message.start_sample, self._capture(message, answer))
        if isinstance(message, MeasureSilence) and isinstance(answer, Silence):
            self._noise = self._noise_in(answer)
        return answer

    concurrent = False

    def ask_all(self, asked: Sequence[tuple[str, Message[Answer]]]) -> list[Answer]:
        """See `Link.ask_all`."""
        return [self.ask(node, message) for node, message in asked]

    def _noise_in(self, silence: Silence) -> NoiseMeasurement:
        """Of the receiver: the server's own measurement, or an observer's in the same silence."""
        if self.observer is None:
            return silence.noise
        samples = self.observer.receive(OBSERVED_SILENCE, silence.start_sample).checked(OBSERVED_SILENCE).samples
        return measure_noise(samples, self.numerology)

    def _capture(self, order: Receive, received: Received) -> NDArray[np.complex64]:
        if self.observer is None:
            return received.samples
        count = received.samples.size
        return self.observer.receive(count, order.start_sample).checked(count).samples

    def _remember(self, name: str, order: Transmit) -> None:
        node = self.nodes[name]
        jamming = node.jamming if isinstance(node, JammerNode | ClientNode) else None
        if jamming is not None and jamming.ordered:
            drawn: list[NDArray[np.complex64]] = []
            self._jammer = JammerMoment(name, copy.copy(jamming), order, drawn)
            jamming.noise_for = _remembering(self._sources[name], drawn)
        elif isinstance(node, ClientNode):
            self._clients[name] = ClientMoment(name, copy.copy(node), order)

    def take(self) -> Watched:
        """What was seen since the last call."""
        if self._received is None or self._noise is None:
            raise PrivacyError("no payload was received since the last look")
        (start_sample, samples), rounding = self._received, rounding_var_real(self._noise.converter_step)
        own, added = (noise_var_complex_from_real(var) for var in (self._noise.noise_var_real - rounding, rounding))
        seen = Watched(self._clients, self._jammer, samples, start_sample, own, added)
        self._clients, self._jammer, self._received = {}, None, None
        return seen


def _remembering(source: Callable[[int], Draws], drawn: list[NDArray[np.complex64]]) -> Callable[[int], Draws]:
    """The same noise, of which a copy is kept."""

    def for_block(block: int) -> Draws:
        draw = source(block)

        def kept(count: int) -> NDArray[np.complex64]:
            noise = draw(count)
            drawn.append(noise.copy())
            return noise

        return kept

    return for_block


def watching(uplink: RadioUplink, observer: Radio | None = None) -> Watch:
    """Watch an uplink from now on, through the server's receiver or through an observer's."""
    watch = Watch(uplink.coordinator.link, dict(uplink.nodes), uplink.air.numerology, observer)
    uplink.coordinator.link = watch
    return watch
