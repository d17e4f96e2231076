"""Words of an AD936x on the wire and samples: exact scales, nothing wraps, no float64.

To transmit, 2^14 is full scale 1.0 by convention: the converter takes twice that, which leaves 6 dB for the overshoot
of the interpolation filters. It has 12 bits and takes the upper ones of a word's 16; rounding to these here, to
nearest, leaves it nothing to cut off. Received words have 12 bits, and 2048 is full scale 1.0.
"""

import numpy as np
from numpy.typing import NDArray

TX_FULL_SCALE = 1 << 14
TX_STEP_WORDS = 1 << 4
"""Words between two levels of the transmit converter."""
RX_FULL_SCALE = 1 << 11
RX_LIMIT = RX_FULL_SCALE - 1
"""A word of this magnitude or more is at the converter's limit: the true value may lie beyond."""

Words = NDArray[np.int16]
"""(n, 2): I and Q."""


def to_words(samples: NDArray[np.complex64], scale: float) -> Words:
    """Words (n, 2) of samples (n,) times `scale`, 0 < scale <= 1, rounded to the nearest level of the converter.

    |x| <= 1 gives |word| <= 2^14. Multiples of `tx_step` of full scale are levels.
    """
    parts = np.ascontiguousarray(samples).view(np.float32) * np.float32(1.0 / tx_step(scale))
    np.rint(parts, out=parts)
    parts *= TX_STEP_WORDS
    np.clip(parts, -TX_FULL_SCALE, TX_FULL_SCALE, out=parts)
    return parts.astype(np.int16).reshape(-1, 2)


def tx_step(scale: float) -> float:
    """Distance of two levels in units of samples that are multiplied by `scale` before."""
    return TX_STEP_WORDS / (scale * TX_FULL_SCALE)


def to_samples(words: Words) -> tuple[NDArray[np.complex64], int]:
    """Samples (n,) of received words (n, 2), and how many of them have I or Q at the converter's limit."""
    at_limit = (words >= RX_LIMIT) | (words <= -RX_LIMIT)
    clipped = int(np.count_nonzero(at_limit.any(axis=1)))
    parts = words.astype(np.float32)
    parts *= np.float32(1.0 / RX_FULL_SCALE)
    return parts.view(np.complex64).reshape(-1), clipped
