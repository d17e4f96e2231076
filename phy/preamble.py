"""The preamble: what a receiver looks for, and from which it learns time and frequency.

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
from phy.pilots import pilot_cells

HALVES = 2


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
