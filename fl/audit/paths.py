"""The way from an antenna to a receiver, as linear as it is.

`SimulatedPath` is the simulated air of this process itself, with two radios and no noise. What is random or rounds is
left out: thermal noise, converters, carrier leakage. Fading, delay, clocks, gains, the mixers' images and phase noise
are those of the lab, because they are drawn from the same seed by name.

`FilteredPath` is for every other air, on a shared clock: a filter of `TAPS` taps, which the attacker learns from
uplinks of which it is told what was sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fl.audit.watch import Burst
from hardware.air.front_end import FrontEnd
from hardware.air.medium import Medium
from hardware.air.noise import Randomness
from hardware.air.settings import medium_of
from hardware.lab.opened import OpenLab

TAPS = 160
EARLIEST = -48
"""First delay of a learnt filter, in samples: counters may not be quite alike, and fractional delays spread."""


@dataclass(frozen=True)
class Window:
    """Samples of a receiver."""

    start_sample: int
    count: int


@dataclass(frozen=True)
class SimulatedPath:
    """From `sender` to `receiver` of an open lab whose air is simulated from `seed`, in fading block `block`."""

    lab: OpenLab
    seed: int
    block: int
    sender: str
    receiver: str

    def heard(self, burst: Burst, window: Window) -> NDArray[np.complex64]:
        """What the receiver gets of a burst in `window` (count,), without noise."""
        medium = self._pair()
        medium.send(self.sender, burst.samples, burst.start_sample)
        samples, _ = medium.listen(self.receiver, window.count, window.start_sample)
        return samples

    def _pair(self) -> Medium:
        lab, settings, randomness = self.lab.lab, medium_of(self.lab.lab), Randomness(self.seed)
        medium = Medium(lab.sample_rate_hz, self.seed, clock_mode=lab.clock_mode)
        for name in (self.sender, self.receiver):
            front_end = linear(settings.front_end_of(name, randomness))
            medium.add_radio(name, front_end, receives=name == self.receiver)
        medium.set_link(self.sender, self.receiver, settings.link_of(self.sender, randomness, self.receiver))
        for name in (self.sender, self.receiver):
            medium.tune(name, self.lab.radios[name].settings)
        medium.new_block(self.block)
        return medium


def linear(front_end: FrontEnd) -> FrontEnd:
    """Without what is not linear in the samples, and without noise."""
    return replace(
        front_end, dac_bits=None, adc_bits=None, dc_offset_dbfs=None, pa_saturation=None, noise_var_complex=0.0
    )


@dataclass(frozen=True)
class FilteredPath:
    """taps: complex128 (TAPS,), of the delays EARLIEST, EARLIEST + 1, …"""

    taps: NDArray[np.complex128]

    def heard(self, burst: Burst, window: Window) -> NDArray[np.complex64]:
        """See `SimulatedPath.heard`."""
        filtered = np.convolve(burst.samples, self.taps)
        first = burst.start_sample - burst.offset_samples + EARLIEST
        return _placed(filtered, first, window).astype(np.complex64)


def learn_paths(
    lessons: Sequence[tuple[Sequence[Burst], NDArray[np.complex64]]], start_samples: Sequence[int]
) -> tuple[FilteredPath, ...]:
    """Least squares: from what several senders sent in each lesson, and what was received, to a filter of each.

    start_samples: of each capture, in the server's count. Captures have no mean: carrier leakage is not the senders'.
    """
    senders = len(lessons[0][0])
    size = senders * TAPS
    gram, right = np.zeros((size, size), np.complex128), np.zeros(size, np.complex128)
    for (bursts, received), start in zip(lessons, start_samples, strict=True):
        window = Window(start, received.size)
        columns = np.concatenate([_shifts(burst, window) for burst in bursts], axis=1)
        gram += columns.conj().T @ columns
        right += columns.conj().T @ (received - received.mean())
    ridge = 1e-9 * float(np.trace(gram).real) / size
    taps = np.linalg.solve(gram + ridge * np.eye(size), right)
    return tuple(FilteredPath(part) for part in taps.reshape(senders, TAPS))


def _shifts(burst: Burst, window: Window) -> NDArray[np.complex128]:
    """What each tap alone would let through: (count, TAPS)."""
    first = burst.start_sample - burst.offset_samples + EARLIEST
    return np.stack([_placed(burst.samples, first + tap, window) for tap in range(TAPS)], axis=1)


def _placed(samples: NDArray[np.generic], first_sample: int, window: Window) -> NDArray[np.complex128]:
    """Samples that begin at `first_sample`, as far as they are in the window."""
    out = np.zeros(window.count, np.complex128)
    offset = first_sample - window.start_sample
    low, high = max(0, offset), min(window.count, offset + samples.size)
    if low < high:
        out[low:high] = samples[low - offset : high - offset]
    return out
