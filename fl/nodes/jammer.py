"""The jammer: circular Gaussian cells that arrive with the same power on every subcarrier."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.nodes.messages import JammingDecision, JammingOrder, Sent, Transmit
from fl.nodes.transmitter import Transmitter, gains_lower

CellNoise = Callable[[int], NDArray[np.complex64]]
"""Number of cells to circular complex noise with unit variance on each of I and Q."""


def system_noise(cells: int) -> NDArray[np.complex64]:
    """Noise from the operating system's CSPRNG, by Box and Muller: what privacy rests on must not come from a seed.

    32 bits for the radius reach 6.7 standard deviations; the tail beyond has probability 2e-10.
    """
    words = np.frombuffer(os.urandom(8 * cells), dtype=np.uint32).astype(np.float64)
    uniform = (words + 0.5) / 2.0**32
    radius = np.sqrt(-2.0 * np.log(uniform[:cells]))
    return np.asarray(radius * np.exp(2j * np.pi * uniform[cells:]), dtype=np.complex64)


@dataclass
class JammerNode:
    """noise: `system_noise` on a real radio; a seeded source in simulation, so that runs repeat."""

    transmitter: Transmitter
    noise: CellNoise = system_noise
    _order: JammingOrder | None = None
    _amplitudes: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def decide(self, order: JammingOrder) -> JammingDecision:
        """Amplitudes a[k] = r / (lower bound on |H[k]|), so that r arrives everywhere at the agreed confidence."""
        lower = gains_lower(order.state, self.transmitter.air)
        if not lower.min() > 0.0:
            raise PrivacyError("the jammer's channel cannot be told from noise: it is needed, so no client may send")
        self._order = order
        self._amplitudes = order.received_std_real / lower
        return JammingDecision(alpha=float(self._amplitudes.max()), gain_lower=float(lower.min()))

    def transmit(self, order: Transmit) -> Sent:
        """Send fresh noise, once. Noise that would clip is not sent: it would be less than what was promised."""
        if self._order is None:
            raise PrivacyError("the jammer is told to transmit without an order")
        jamming, self._order = self._order, None
        air = self.transmitter.air
        cells = self.noise(air.grid.cells).reshape(air.grid.symbols, -1)
        gains = self._amplitudes.astype(np.complex64)
        return self.transmitter.send(cells, gains, jamming.state, order.start_sample, allow_clipping=False)
