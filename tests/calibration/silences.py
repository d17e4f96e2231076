"""Captures of silence with known statistics."""

import numpy as np
from numpy.typing import NDArray
from scipy import signal

from phy.fading import circular_noise
from phy.numerology import Numerology

DEFAULT = Numerology()
# Small enough for thousands of calibrations in a test.
SMALL = Numerology(fft_size=64, cp_samples=16, data_subcarriers=48)
NOISE_VAR_REAL = 1e-6
# x[n] + 0.25 x[n-1]: 4.3 dB between the centre of the band and its edge.
COLOUR = 0.25


def white(blocks: int, rng: np.random.Generator, numerology: Numerology = DEFAULT) -> NDArray[np.complex64]:
    """Noise of variance NOISE_VAR_REAL per real coordinate, of this many FFT blocks."""
    return circular_noise(blocks * numerology.fft_size, NOISE_VAR_REAL, rng)


def coloured(blocks: int, rng: np.random.Generator, numerology: Numerology = DEFAULT) -> NDArray[np.complex64]:
    """White noise through the filter [1, COLOUR]; stationary from its first sample on."""
    source = circular_noise(blocks * numerology.fft_size + 1, NOISE_VAR_REAL, rng)
    return np.asarray(signal.lfilter([1.0, COLOUR], [1.0], source)[1:], dtype=np.complex64)


def coloured_noise_var_real(numerology: Numerology = DEFAULT) -> NDArray[np.float64]:
    """True noise_var_real of each used subcarrier of `coloured`, as an unwindowed FFT of N samples sees it.

    E|Z_k|^2 = sum_l r(l) (1 - |l|/N) exp(-j 2 pi k l / N) with the autocorrelation r(0) = 1 + c^2, r(1) = c.
    """
    angle = 2.0 * np.pi * numerology.used_subcarriers / numerology.fft_size
    size = numerology.fft_size
    return np.asarray(NOISE_VAR_REAL * (1.0 + COLOUR**2 + 2.0 * COLOUR * (1.0 - 1.0 / size) * np.cos(angle)))


def tone(
    count: int, frequency_bins: float, amplitude: float, numerology: Numerology = DEFAULT
) -> NDArray[np.complex64]:
    """A steady tone; its frequency in FFT bins need not be whole."""
    turns = frequency_bins / numerology.fft_size * np.arange(count)
    return np.asarray(amplitude * np.exp(2j * np.pi * turns), dtype=np.complex64)
