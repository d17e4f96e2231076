"""Random processes of the simulated air, addressed by what and when instead of by order of use.

The noise of a receiver's sample depends on (seed, receiver, sample index) only: it is the same however captures are
cut, whoever captures first, and however many radios there are. Noise that protects data on a real radio must not
come from a seed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from hardware.foundation.random_streams import keyed_generator
from hardware.radio.errors import HardwareError
from phy.fading import circular_noise
from phy.impairments import phase_noise
from phy.units import noise_var_real_from_complex

# Samples per generator. Long enough that seeding (20 us) is small, short enough that little is drawn in vain.
_BLOCK = 16384


class Purpose(IntEnum):
    """What is drawn. The numbers are part of what makes a run reproducible: append, never renumber."""

    NOISE = 0
    FADING = 1
    PHASE_NOISE = 2
    DELAY = 3
    CRYSTAL = 4


@dataclass(frozen=True)
class Randomness:
    """All randomness of one simulated lab."""

    seed: int

    def __post_init__(self) -> None:
        """Refuse what cannot be a seed."""
        if self.seed < 0:
            raise HardwareError(f"the seed is {self.seed}: expected a whole number >= 0")

    def generator(self, purpose: Purpose, *keys: str | int) -> np.random.Generator:
        """Generator for radios (by name) and numbers (of blocks)."""
        return keyed_generator(self.seed, purpose, *keys)


class ThermalNoise:
    """Noise of one receiver as a function of the sample index; cheapest to ask for in order.

    noise_var_complex: its variance E|z|^2.
    """

    def __init__(self, randomness: Randomness, receiver: str, noise_var_complex: float) -> None:
        self._randomness = randomness
        self._receiver = receiver
        self._noise_var_real = noise_var_real_from_complex(noise_var_complex)
        self._block = -1
        self._drawn = 0
        # Made with the first block: most radios of a large lab never listen.
        self._rng: np.random.Generator | None = None

    def add(self, samples: NDArray[np.complex64], start_sample: int) -> None:
        """Add it to samples (n,), in place."""
        for block, inside, place in _pieces(start_sample, samples.size):
            if self._rng is None or block != self._block or inside.start < self._drawn:
                self._rng = self._randomness.generator(Purpose.NOISE, self._receiver, block)
                self._block, self._drawn = block, 0
            # A generator gives the same values however they are divided among calls.
            noise = circular_noise(inside.stop - self._drawn, self._noise_var_real, self._rng)
            samples[place] += noise[inside.start - self._drawn :]
            self._drawn = inside.stop


class Oscillator:
    """Phase noise of one radio's oscillator as a function of the sample index: a Wiener process that starts at zero."""

    def __init__(self, randomness: Randomness, radio: str, std_rad_per_sqrt_sample: float) -> None:
        self._randomness = randomness
        self._radio = radio
        self._std = std_rad_per_sqrt_sample
        # Phasor just before each block; one entry in _BLOCK samples.
        self._before = [1.0 + 0.0j]

    def phasors(self, start_sample: int, count: int) -> NDArray[np.complex64]:
        """exp(j theta[n]) for n = start_sample … start_sample + count - 1. Takes time linear in the last sample."""
        phasors = np.empty(count, np.complex64)
        for block, inside, place in _pieces(start_sample, count):
            while len(self._before) <= block:
                last = complex(self._walk(len(self._before) - 1)[-1]) * self._before[-1]
                self._before.append(last / abs(last))
            phasors[place] = self._walk(block)[inside] * np.complex64(self._before[block])
        return phasors

    def _walk(self, block: int) -> NDArray[np.complex64]:
        return phase_noise(_BLOCK, self._std, self._randomness.generator(Purpose.PHASE_NOISE, self._radio, block))


def _pieces(start_sample: int, count: int) -> Iterator[tuple[int, slice, slice]]:
    """(block, slice within the block, slice within the samples) of each block that the samples touch."""
    first = start_sample
    end = start_sample + count
    while first < end:
        block, inside = divmod(first, _BLOCK)
        length = min(_BLOCK - inside, end - first)
        place = first - start_sample
        yield block, slice(inside, inside + length), slice(place, place + length)
        first += length
