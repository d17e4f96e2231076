"""Undoing a channel over a whole burst, so that what arrives is what was meant, sample by sample.

A burst m of OFDM symbols without prefix occupies the used band but for its sidelobes. It is sent through a filter g
that undoes the channel h linearly: what arrives is h * g * m, with |H(f) G(f)| = B(f), 1 in the used band and falling
to 0 in the transition above it. So nothing arrives twice, nothing is sent where the channel is not known, and

    ||h * g * m|| <= sup_f |H(f) G(f)| ||m||

whatever the update behind m. That supremum is what privacy is charged with. It is taken of the filter as it is sent,
cut to a finite length; nothing else is cut, because the whole of g * m is sent.

Frequencies are in cycles per sample. Responses on the fine grid have `FINE` points per FFT bin of the sounding, in FFT
order. A filter of 2 HALF_LENGTH FFT lengths has its largest response between two points of that grid at most 1/2 %
above the larger of them (Bernstein's inequality: 1/cos(pi HALF_LENGTH / FINE)): `BETWEEN` is in every bound.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from phy.compute.one_thread import one_blas_thread
from phy.numerology import Numerology

FINE = 128
"""Points of the fine grid per bin of the sounding's FFT."""
HALF_LENGTH = 4
"""Reach of a filter to either side, in FFT lengths of the sounding."""
BETWEEN = 1.0 / math.cos(math.pi * HALF_LENGTH / FINE)
SMALLEST_RESPONSE = 0.05
"""Where the channel is weaker than this part of its rms the inverse is held back, and what lies there attenuated."""
TRANSITION = 1.0 / 16.0
"""Width of the two transition bands together, relative to the sampling rate."""
_SPREAD = 24
"""Samples by which a fractional delay spreads a path to either side."""
_RIDGE = 1e-9
_SMALLEST_CHANNEL = 1e-12


def band_numerology(numerology: Numerology) -> Numerology:
    """The used subcarriers of `numerology` and those of the transition bands: where the channel must be known."""
    extra = 2 * max(1, round(numerology.fft_size * TRANSITION / 2))
    used = min(numerology.fft_size - 2, numerology.data_subcarriers + extra)
    return Numerology(numerology.fft_size, numerology.cp_samples, used, numerology.sample_rate_hz)


@lru_cache(maxsize=8)
def window(numerology: Numerology) -> NDArray[np.float64]:
    """B(f) on the fine grid: 1 up to the edge of the used band, 0 from the edge of the transition on; read-only."""
    band = band_numerology(numerology)
    edge = (int(np.abs(numerology.used_subcarriers).max()) + 0.5) / numerology.fft_size
    stop = (int(np.abs(band.used_subcarriers).max()) - 0.5) / numerology.fft_size
    f = np.abs(np.fft.fftfreq(FINE * numerology.fft_size))
    roll = np.asarray(np.sin(np.pi / 2 * np.clip((stop - f) / max(stop - edge, 1e-9), 0.0, 1.0)) ** 2)
    roll.setflags(write=False)
    return roll


@lru_cache(maxsize=8)
def _fit(numerology: Numerology) -> NDArray[np.complex128]:
    """From the band's subcarriers to taps at whole delays, from -_SPREAD on: (taps, subcarriers), regularised."""
    band = band_numerology(numerology)
    delays = np.arange(-_SPREAD, numerology.cp_samples + _SPREAD)
    steer = np.exp(-2j * np.pi * band.used_frequencies[:, None] * delays)
    ridge = _RIDGE * band.data_subcarriers * np.eye(len(delays))
    with one_blas_thread():
        return np.asarray(np.linalg.solve(steer.conj().T @ steer + ridge, steer.conj().T))


def fine_response(channel: NDArray[np.complex64], numerology: Numerology) -> NDArray[np.complex128]:
    """H(f) on the fine grid from the channel (U',) at the band's subcarriers. Beyond the band it means nothing."""
    taps = _fit(numerology) @ channel.astype(np.complex128)
    padded = np.zeros(FINE * numerology.fft_size, np.complex128)
    padded[: taps.size] = taps
    return np.asarray(scipy.fft.fft(np.roll(padded, -_SPREAD)))


def fine_values(values: NDArray[np.float64], numerology: Numerology) -> NDArray[np.float64]:
    """Values (U',) at the band's subcarriers on the fine grid: of two neighbours the larger, so that bounds stay so."""
    below, above = _neighbours(numerology)
    return np.asarray(np.maximum(values[below], values[above]))


@lru_cache(maxsize=8)
def _neighbours(numerology: Numerology) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    used = band_numerology(numerology).used_subcarriers
    place = np.searchsorted(used, np.fft.fftfreq(FINE * numerology.fft_size) * numerology.fft_size)
    return np.clip(place - 1, 0, used.size - 1), np.clip(place, 0, used.size - 1)


@dataclass(frozen=True)
class ChannelInverse:
    """taps: complex64 (2 reach + 1,), the middle one without delay. gains: |G(f)| of these taps on the fine grid."""

    taps: NDArray[np.complex64]
    gains: NDArray[np.float64]

    @property
    def reach(self) -> int:
        """Samples by which the filter reaches to either side."""
        return (self.taps.size - 1) // 2

    @property
    def largest_gain(self) -> float:
        """sup_f |G(f)|: the most by which the filter lengthens a burst."""
        return BETWEEN * float(self.gains.max())


def invert(response: NDArray[np.complex128], numerology: Numerology) -> ChannelInverse:
    """The filter that undoes H(f) within the band, held back where the channel nearly vanishes; nothing beyond."""
    shape = window(numerology)
    floor = SMALLEST_RESPONSE * float(np.sqrt(np.mean(np.abs(response[shape > 0]) ** 2)))
    # A smooth cap: a corner in the response would make the filter ring.
    power = np.hypot(np.abs(response) ** 2, max(floor, _SMALLEST_CHANNEL) ** 2)
    return _cut(np.where(shape > 0, shape * response.conj() / power, 0.0), numerology)


def invert_everywhere(response: NDArray[np.complex128], numerology: Numerology) -> ChannelInverse:
    """The filter for noise: 1/H(f) in the band, not held back anywhere, and beyond it a bridge from edge to edge.

    Noise shall arrive white where a payload may be; beyond that it is sent all the same, at about the band's level.
    """
    inside = np.fft.fftshift(window(numerology) > 0)
    known = np.fft.fftshift(response)[inside]
    values = 1.0 / np.where(np.abs(known) < _SMALLEST_CHANNEL, _SMALLEST_CHANNEL, known)
    size, places = inside.size, np.flatnonzero(inside)
    bridged = np.empty(size, np.complex128)
    bridged[places] = values
    # Around the circle, because the bridge passes the Nyquist frequency. By size and angle, the shorter way round: a
    # line between two opposite values would pass through nothing.
    gap = np.arange(places[-1] + 1, places[0] + size) % size
    way = np.arange(1, gap.size + 1) / (gap.size + 1)
    sizes, turn = np.abs(values[[-1, 0]]), np.angle(values[0] * values[-1].conj())
    bridged[gap] = (sizes[0] + way * (sizes[1] - sizes[0])) * np.exp(1j * (np.angle(values[-1]) + way * turn))
    return _cut(np.fft.ifftshift(bridged), numerology)


def _cut(response: NDArray[np.complex128], numerology: Numerology) -> ChannelInverse:
    reach = HALF_LENGTH * numerology.fft_size
    taps = scipy.fft.ifft(response)
    taps[reach + 1 : -reach] = 0.0
    kept = np.concatenate([taps[-reach:], taps[: reach + 1]]).astype(np.complex64)
    return ChannelInverse(kept, np.abs(scipy.fft.fft(taps)))
