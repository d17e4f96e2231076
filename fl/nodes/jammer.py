"""The jammer: white Gaussian samples, from before the payload to after it, that arrive white."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.nodes.circuits import noise_kept
from fl.nodes.messages import JammingDecision, JammingOrder, Message, Sent, Transmit
from fl.nodes.precoding import noise_gain, noise_gain_lower
from fl.nodes.transmitter import Transmitter, TransmitterNode

WhiteNoise = Callable[[int], NDArray[np.complex64]]
"""Number of samples to circular complex noise with unit variance on each of I and Q."""
_SMALL = np.uint64(1 << 40)
"""Words below it are too coarse for the logarithm's tail; one in 16 million is."""


def system_noise(count: int) -> NDArray[np.complex64]:
    """Noise from the operating system's CSPRNG, by Box and Muller: what privacy rests on must not come from a seed.

    The radius has 64 bits, and 64 more where these are small: it reaches 13.4 standard deviations, beyond which lie
    1.5e-39. With 32 bits, that end at 6.7, a burst of 130,000 samples would differ from Gaussian noise by 1.5e-5 in
    total variation, which is more than a usual delta.
    """
    words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    uniform = (words.astype(np.float64) + 0.5) / 2.0**64
    small = np.flatnonzero(words < _SMALL)
    if small.size:
        rest = np.frombuffer(os.urandom(8 * small.size), dtype=np.uint64).astype(np.float64)
        uniform[small] = (words[small].astype(np.float64) + (rest + 0.5) / 2.0**64) / 2.0**64
    turns = np.frombuffer(os.urandom(4 * count), dtype=np.uint32).astype(np.float64) / 2.0**32
    return np.asarray(np.sqrt(-2.0 * np.log(uniform)) * np.exp(2j * np.pi * turns), dtype=np.complex64)


def always_system_noise(block: int) -> WhiteNoise:
    """For radios: fresh noise, whatever the number of the sounding."""
    del block
    return system_noise


@dataclass
class Jamming:
    """What a node does where it jams. noise_for: number of a sounding to the noise that is sent in it.

    That is the system's on a real radio, and in simulation a seeded source, so that runs repeat. Each sounding has its
    own: of the same noise sent twice, the difference of two uplinks would be free.
    """

    transmitter: Transmitter
    noise_for: Callable[[int], WhiteNoise] = always_system_noise
    _order: JammingOrder | None = None
    _std: float = 0.0

    @property
    def ordered(self) -> bool:
        """Whether it has an order that it has not carried out."""
        return self._order is not None

    def decide(self, order: JammingOrder) -> JammingDecision:
        """The level of the noise before its filter, so that r arrives at every frequency at the agreed confidence, and
        in every direction of a frequency and its opposite."""
        air = self.transmitter.air
        kept = noise_kept(order.state, air, self.transmitter.circuits.image)
        lower = kept * noise_gain_lower(order.state, air)
        if not lower > 0.0:
            raise PrivacyError("the jammer's channel cannot be told from noise: it is needed, so no client may send")
        self._order, self._std = order, order.received_std_real / lower
        gain = kept * noise_gain(order.state, air)
        return JammingDecision(alpha=order.received_std_real / gain, gain_lower=gain)

    def transmit(self, order: Transmit) -> Sent:
        """Send fresh noise, once, from before the payload to after it."""
        if self._order is None:
            raise PrivacyError("the jammer is told to transmit without an order")
        jamming, self._order = self._order, None
        frame = self.transmitter.air.payload
        count = frame.jamming_slice.stop - frame.jamming_slice.start
        noise = self.noise_for(jamming.block)(count)
        noise *= np.float32(self._std)
        first = order.start_sample - frame.margin_samples
        return Sent(self.transmitter.send_noise(noise, jamming.state, first, jamming.block))

    def forget(self) -> None:
        """An order for a sounding that was given up is void."""
        self._order = None


class JammerNode(TransmitterNode):
    """A node that does nothing else."""

    def __init__(self, transmitter: Transmitter, jamming: Jamming | None = None) -> None:
        super().__init__(transmitter)
        self.jamming = jamming or Jamming(transmitter)

    def answer(self, message: Message[Any]) -> Any:
        """See `Node.answer`."""
        match message:
            case JammingOrder():
                return self.jamming.decide(message)
            case Transmit():
                return self.jamming.transmit(message)
        return super().answer(message)
