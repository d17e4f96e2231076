"""Soundings through media that are worse than most, as the server's estimator gets them."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fl.nodes.air_format import AirFormat
from fl.nodes.messages import SoundedChannel
from fl.nodes.soundings.estimate import Sounding
from hardware.air.front_end import FrontEnd
from phy.fading import circular_noise
from phy.frame import sounding_samples
from phy.impairments import apply_taps, phase_noise
from phy.inversion import FINE, window
from phy.modem import demodulate
from phy.numerology import Numerology

NUMEROLOGY = Numerology()
AIR = AirFormat(NUMEROLOGY, 384)
NOISE_VAR_COMPLEX = 1e-5
_IDEAL = FrontEnd()


@dataclass(frozen=True)
class Medium:
    """taps: (delay in samples, power in dB) of Rayleigh paths, together at gain_db. late: the same of paths of this
    very strength, with a random phase."""

    front_end: FrontEnd = _IDEAL
    taps: tuple[tuple[int, float], ...] = ((0, 0.0), (3, -6.0), (7, -10.0))
    late: tuple[tuple[int, float], ...] = ()
    gain_db: float = -12.0
    phase_noise: float = 0.0

    def draw(self, rng: np.random.Generator) -> NDArray[np.complex128]:
        """Taps of one channel."""
        delays = [delay for delay, _ in (*self.taps, *self.late)]
        values = np.zeros(max(delays) + 1, np.complex128)
        total = sum(10 ** (power / 10) for _, power in self.taps)
        scale = 10 ** (self.gain_db / 20) / np.sqrt(total)
        for delay, power in self.taps:
            values[delay] += scale * 10 ** (power / 20) * complex(rng.standard_normal(), rng.standard_normal()) / 2**0.5
        # Of what the others have in this draw, so that a deep fade does not change what is late in it.
        strength = np.linalg.norm(values)
        for delay, power in self.late:
            values[delay] += strength * 10 ** (power / 20) * np.exp(2j * np.pi * rng.random())
        return values


@lru_cache(maxsize=4)
def _sent(air: AirFormat) -> NDArray[np.complex64]:
    return sounding_samples(air.sounding)


def sound_through(
    medium: Medium,
    taps: NDArray[np.complex128],
    rng: np.random.Generator,
    air: AirFormat = AIR,
    noise_var_complex: float = NOISE_VAR_COMPLEX,
    receiver: FrontEnd | None = None,
) -> SoundedChannel:
    """What a server with a shared clock makes of one sounding. receiver: as the sender's without an image."""
    samples, scale = medium.front_end.send(_sent(air), 0.0)
    samples = samples * phase_noise(samples.size, medium.phase_noise, rng)
    heard = apply_taps(samples * np.float32(scale), taps.astype(np.complex64))[: samples.size]
    heard = heard + circular_noise(heard.size, noise_var_complex / 2, rng)
    receiver = receiver or replace(medium.front_end, iq_image_db=None)
    received, _ = receiver.receive(heard.astype(np.complex64), 0.0)
    frame = air.sounding
    loud, quiet = (
        demodulate(np.ascontiguousarray(received[part]), air.sounding_numerology, air.window_start)
        for part in (frame.sounding_slice, frame.quiet_slice)
    )
    return Sounding(air, loud, quiet, -2.0, noise_var_complex).state


def true_response(taps: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """H(f) on the fine grid."""
    padded = np.zeros(FINE * NUMEROLOGY.fft_size, np.complex128)
    padded[: taps.size] = taps
    return np.asarray(np.fft.fft(padded))


def true_gain(taps: NDArray[np.complex128], state: SoundedChannel) -> float:
    """sup_f |H(f) G(f)| of the filter that is made from this sounding."""
    return float((np.abs(true_response(taps)) * state.inverse.gains).max())


def true_gain_with_image(taps: NDArray[np.complex128], state: SoundedChannel, image: float) -> float:
    """Largest singular value over all pairs f, -f with an image of this amplitude at all frequencies."""
    own, inverse = np.abs(true_response(taps)) * state.inverse.gains, state.inverse.gains
    leaked = image * np.abs(true_response(taps)) * mirrored(inverse)
    pairs = np.array([[own, leaked], [mirrored(leaked), mirrored(own)]]).transpose(2, 0, 1)
    return float(np.linalg.norm(pairs[:: FINE // 8], ord=2, axis=(1, 2)).max())


def true_noise_with_image(
    taps: NDArray[np.complex128], state: SoundedChannel, gains: NDArray[np.float64], image: float
) -> float:
    """What arrives of white noise through a filter with these gains, in the quietest direction of any pair f, -f.

    Phases are at their worst: the determinant is as small as it can be.
    """
    own = np.abs(true_response(taps)) * gains
    leaked = image * np.abs(true_response(taps)) * mirrored(gains)
    pairs = np.array([[own, -leaked], [-mirrored(leaked), mirrored(own)]]).transpose(2, 0, 1)
    inside = window(state.numerology) > 0
    return float(np.linalg.svd(pairs[inside][:: FINE // 8], compute_uv=False).min())


def mirrored(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values in FFT order at the negative frequencies."""
    return np.roll(values[::-1], 1)
