"""What every receiver knows: pilots, and the preamble made of them, from which it learns time and frequency.

Pilots are one constant-modulus sequence of cells with low peaks; sounding symbols are made of them too. The preamble:

    | cyclic prefix | A | A |        cp_samples + 2 fft_size samples

A is one OFDM symbol of conjugated pilots. Two equal halves give the frequency offset whatever the channel (Schmidl and
Cox, IEEE Trans. Commun. 45(12), 1997); A itself, a chirp, is narrow in its autocorrelation, which gives the time, and
tolerant of frequency offsets. The prefix makes both halves equal on a multipath channel as well. Sounding symbols are
chirps in the other direction, so they are not taken for a preamble. DC and guards are empty, as everywhere.
"""

from functools import lru_cache

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from phy.numerology import Numerology

HALVES = 2
# Peaks are looked for between the samples as well, because that is what a converter or a delay makes of them.
_OVERSAMPLING = 8
_HEADROOM = 0.995


@lru_cache(maxsize=32)
def pilot_cells(numerology: Numerology) -> NDArray[np.complex64]:
    """One row of pilots, shape (data_subcarriers,), all of the same modulus; read-only.

    Newman's phases, c[i] = A exp(j pi i^2 / U) for the i-th of U used subcarriers: a linear chirp in time, with peaks
    2.6 dB above the mean power. A is the largest modulus with which the modulated symbol stays below 1 in magnitude, so
    that its rms is about 0.74, i.e. -2.6 dB of full scale, and A about 0.85 for the default numerology.
    """
    count = numerology.data_subcarriers
    phases = np.pi * (np.arange(count) ** 2 % (2 * count)) / count
    cells = np.exp(1j * phases)
    fine_size = _OVERSAMPLING * numerology.fft_size
    fine = np.zeros(fine_size, dtype=np.complex128)
    fine[numerology.used_subcarriers % fine_size] = cells
    # Zero-padding the spectrum keeps the waveform if the transform keeps the norm of the short one.
    peak = np.abs(scipy.fft.ifft(fine)).max() * fine_size / np.sqrt(numerology.fft_size)
    scaled: NDArray[np.complex64] = (cells * (_HEADROOM / peak)).astype(np.complex64)
    scaled.setflags(write=False)
    return scaled


def preamble_length(numerology: Numerology) -> int:
    """Samples of the preamble."""
    return numerology.cp_samples + HALVES * numerology.fft_size


@lru_cache(maxsize=32)
def preamble_cells(numerology: Numerology) -> NDArray[np.complex64]:
    """Cells of A on the used subcarriers, shape (data_subcarriers,): conjugates of the pilots; read-only."""
    cells = pilot_cells(numerology).conj()
    cells.setflags(write=False)
    return cells


@lru_cache(maxsize=32)
def preamble_half(numerology: Numerology) -> NDArray[np.complex64]:
    """A itself, shape (fft_size,), |A| < 1; read-only."""
    spectrum = np.zeros(numerology.fft_size, dtype=np.complex64)
    spectrum[numerology.used_bins] = preamble_cells(numerology)
    half: NDArray[np.complex64] = scipy.fft.ifft(spectrum, norm="ortho")
    half.setflags(write=False)
    return half


@lru_cache(maxsize=32)
def preamble_samples(numerology: Numerology) -> NDArray[np.complex64]:
    """The whole preamble, shape (cp_samples + 2 fft_size,), |x| < 1; read-only."""
    half = preamble_half(numerology)
    samples: NDArray[np.complex64] = np.concatenate(
        [half[numerology.fft_size - numerology.cp_samples :], *[half] * HALVES]
    )
    samples.setflags(write=False)
    return samples
