"""The way from an antenna to a receiver, as linear as it is.

`SimulatedPath` is the simulated air of this process itself, with two radios and no noise. What is random or rounds is
left out: thermal noise, converters, carrier leakage. Fading, delay, clocks, gains, the mixers' images and phase noise
are those of the lab, because they are drawn from the same seed by name. `StillPath` is the same in two impulse
responses, where nothing turns or drifts: thousands of bursts then take a fraction of the time.

`FilteredPath` is for every other air, on a shared clock: a filter of `TAPS` taps, which the attacker learns from
uplinks of which it is told what was sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.fft import fft, ifft, next_fast_len
from scipy.linalg import toeplitz
from scipy.signal import fftconvolve

from fl.audit.watch import Burst
from fl.errors import PrivacyError
from hardware.air.front_end import FrontEnd
from hardware.air.medium import Medium
from hardware.air.noise import Randomness
from hardware.air.settings import medium_of
from hardware.lab.clock import ClockMode
from hardware.lab.opened import OpenLab

TAPS = 160
EARLIEST = -48
"""First delay of a learnt filter, in samples: counters may not be quite alike, and fractional delays spread."""

_PROBE = 0.25
"""An impulse's height: below every full scale."""
_REACH = 512
"""Samples around an impulse in which its response is looked for."""
_NEGLIGIBLE = 1e-7
"""Of the largest tap, below which an impulse response has ended."""


@dataclass(frozen=True)
class Window:
    """Samples of a receiver."""

    start_sample: int
    count: int


class Path(Protocol):
    """The way to a receiver."""

    def heard(self, burst: Burst, window: Window) -> NDArray[np.complex64]:
        """What it gets of a burst in `window`."""
        ...


@dataclass(frozen=True)
class SimulatedPath:
    """From `sender` to `receiver` of an open lab whose air is simulated from `seed`, in fading block `block`.

    image: with the mirror image of the receiver's mixer. It comes after the noise and can be undone, so that it changes
    nothing that can be told apart; where noise is taken for circular it is to be left out.
    """

    lab: OpenLab
    seed: int
    block: int
    sender: str
    receiver: str
    image: bool = True

    def heard(self, burst: Burst, window: Window) -> NDArray[np.complex64]:
        """What the receiver gets of a burst in `window` (count,), without noise."""
        medium = self._pair()
        medium.send(self.sender, burst.samples, burst.start_sample)
        samples, _ = medium.listen(self.receiver, window.count, window.start_sample)
        return samples

    @property
    def still(self) -> bool:
        """Whether what is heard depends on when it was sent by a shift alone: one clock, and no phase noise."""
        lab = self.lab.lab
        ends = (medium_of(lab).front_end_of(name, Randomness(self.seed)) for name in (self.sender, self.receiver))
        return lab.clock_mode is ClockMode.SHARED and not any(end.phase_noise_rad_per_sqrt_sample for end in ends)

    def _pair(self) -> Medium:
        lab, settings, randomness = self.lab.lab, medium_of(self.lab.lab), Randomness(self.seed)
        medium = Medium(lab.sample_rate_hz, self.seed, clock_mode=lab.clock_mode)
        for name in (self.sender, self.receiver):
            front_end = linear(settings.front_end_of(name, randomness))
            if name == self.receiver and not self.image:
                front_end = replace(front_end, iq_image_db=None)
            medium.add_radio(name, front_end, receives=name == self.receiver)
        medium.set_link(self.sender, self.receiver, settings.link_of(self.sender, randomness, self.receiver))
        for name in (self.sender, self.receiver):
            medium.tune(name, self.lab.radios[name].settings)
        medium.new_block(self.block)
        return medium


@dataclass(frozen=True)
class StillPath:
    """taps, mirrored: complex128 (n,), responses to x and to x*, from the delay `earliest` on."""

    taps: NDArray[np.complex128]
    mirrored: NDArray[np.complex128]
    earliest: int

    @classmethod
    def of(cls, path: SimulatedPath) -> "StillPath":
        """From what comes of two impulses: a gives a h1 + a* h2."""
        window = Window(2 * _REACH, 2 * _REACH)
        heard = [
            path.heard(Burst(np.array([height], np.complex64), 3 * _REACH), window).astype(np.complex128)
            for height in (_PROBE, 1j * _PROBE)
        ]
        taps = np.asarray((heard[0] - 1j * heard[1]) / (2.0 * _PROBE), np.complex128)
        mirrored = np.asarray((heard[0] + 1j * heard[1]) / (2.0 * _PROBE), np.complex128)
        there = np.flatnonzero(np.abs(taps) > _NEGLIGIBLE * np.abs(taps).max())
        kept = slice(int(there[0]), int(there[-1]) + 1)
        return cls(taps[kept], mirrored[kept], kept.start - _REACH)

    def heard(self, burst: Burst, window: Window) -> NDArray[np.complex64]:
        """See `SimulatedPath.heard`."""
        filtered = fftconvolve(burst.samples, self.taps)
        if self.mirrored.any():
            filtered = filtered + fftconvolve(burst.samples.conj(), self.mirrored)
        return _placed(filtered, burst.start_sample + self.earliest, window).astype(np.complex64)


def simulated_path(
    lab: OpenLab, seed: int, block: int, sender: str, receiver: str, *, image: bool = True
) -> SimulatedPath | StillPath:
    """The way through the simulated air in this process, in impulse responses where they say all of it."""
    path = SimulatedPath(lab, seed, block, sender, receiver, image)
    return StillPath.of(path) if path.still else path


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
    Bursts lie within their captures with all their delays, so the normal equations hold correlations alone: entry
    (i, a), (j, b) is that of senders i and j at the lag a - b, and all of them come from a few transforms.
    """
    senders = len(lessons[0][0])
    size = next_fast_len(max(received.size for _, received in lessons) + 2 * TAPS)
    products = np.zeros((senders, senders + 1, size), np.complex128)
    for (bursts, received), start in zip(lessons, start_samples, strict=True):
        window = Window(start, received.size)
        signals = [_whole(burst, window) for burst in bursts] + [received - received.mean()]
        spectra = fft(np.stack(signals), size)
        products += spectra[:senders, None].conj() * spectra[None]
    correlations = ifft(products)
    gram = np.block([[_shifted(correlations[i, j]) for j in range(senders)] for i in range(senders)])
    delays = np.arange(EARLIEST, EARLIEST + TAPS)
    right = correlations[:, senders, delays].reshape(-1)
    ridge = 1e-9 * float(np.trace(gram).real) / right.size
    taps = np.linalg.solve(gram + ridge * np.eye(right.size), right)
    return tuple(FilteredPath(part) for part in taps.reshape(senders, TAPS))


def _whole(burst: Burst, window: Window) -> NDArray[np.complex128]:
    """A burst in its capture, as if it came without delay; `PrivacyError` where some of it may come outside."""
    first = burst.start_sample - burst.offset_samples
    earliest, latest = first + EARLIEST, first + burst.samples.size + EARLIEST + TAPS
    if earliest < window.start_sample or latest > window.start_sample + window.count:
        raise PrivacyError("a burst is not whole in its capture: channels cannot be learnt from it")
    return _placed(burst.samples, first, window)


def _shifted(correlation: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """(TAPS, TAPS), of which entry (a, b) is the correlation at the lag a - b."""
    return np.asarray(toeplitz(correlation[:TAPS], correlation[-np.arange(TAPS)]))


def _placed(samples: NDArray[np.generic], first_sample: int, window: Window) -> NDArray[np.complex128]:
    """Samples that begin at `first_sample`, as far as they are in the window."""
    out = np.zeros(window.count, np.complex128)
    offset = first_sample - window.start_sample
    low, high = max(0, offset), min(window.count, offset + samples.size)
    if low < high:
        out[low:high] = samples[low - offset : high - offset]
    return out
