"""The known cells: one constant-modulus sequence with low peaks, from which preamble and sounding symbols are made."""

from functools import lru_cache

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from phy.numerology import Numerology

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
