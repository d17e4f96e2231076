"""Words of 16 bits on the way to and from a USRP, and samples: exact scales, nothing wraps, no float64.

Words are handed over as they are (`sc16` on both sides of libuhd), because its own conversion from floating point cuts
or rounds by the processor it runs on. 2^15 - 1 is full scale 1.0 in both directions. A converter of fewer bits takes
the upper ones: rounding to these here leaves it nothing to cut off.

Of some interpolations of an N200, N210 or USRP2 libuhd's scale is twice too large: see `clips_at_half_scale`.
"""

import math

import numpy as np
from numpy.typing import NDArray

FULL_SCALE = (1 << 15) - 1
RX_LIMIT = FULL_SCALE
"""A word of this magnitude or more is at the limit: the true value may lie beyond."""
_BITS = {"b200": 12, "b210": 12, "b205": 12, "e31": 12, "e32": 12, "n30": 14, "n31": 14, "n32": 14}

Words = NDArray[np.int32]
"""(n,): a pair of int16, I first, in each."""


def dac_bits(board: str) -> int:
    """Resolution of the transmit converter of a motherboard, by its name."""
    found = (bits for prefix, bits in _BITS.items() if board.lower().startswith(prefix))
    return next(found, 16)


def tx_step(scale: float, bits: int) -> float:
    """Distance of two levels in units of samples that are multiplied by `scale` before."""
    return _level_words(bits) / (scale * FULL_SCALE)


def to_words(samples: NDArray[np.complex64], scale: float, bits: int) -> Words:
    """Words (n,) of samples (n,) times `scale`, 0 < scale <= 1, rounded to the nearest level of the converter.

    |x| <= 1 gives words within full scale; multiples of `tx_step` are levels.
    """
    level = _level_words(bits)
    parts = np.ascontiguousarray(samples).view(np.float32) * np.float32(1.0 / tx_step(scale, bits))
    np.rint(parts, out=parts)
    largest = FULL_SCALE // level
    np.clip(parts, -largest, largest, out=parts)
    parts *= level
    return parts.astype(np.int16).view(np.int32)


def to_samples(words: Words) -> tuple[NDArray[np.complex64], int]:
    """Samples (n,) of received words (n,), and how many of them have I or Q at the limit."""
    pairs = words.view(np.int16)
    clipped = 0
    if pairs.size and (int(pairs.max()) >= RX_LIMIT or int(pairs.min()) <= -RX_LIMIT):
        at_limit = (pairs >= RX_LIMIT) | (pairs <= -RX_LIMIT)
        clipped = int(np.count_nonzero(at_limit.reshape(-1, 2).any(axis=1)))
    parts = pairs.astype(np.float32)
    parts *= np.float32(1.0 / FULL_SCALE)
    return parts.view(np.complex64), clipped


def clips_at_half_scale(interpolation: int) -> bool:
    """Whether an N2xx with this interpolation takes half of full scale at most.

    Two half-band filters take the factors of two that there are, up to two of them; a filter of third order (CIC) does
    the rest, r, with a gain of r^3. What the FPGA's multiplier must make up for, 2^ceil(log2 r^3) / (1.65 r^3), does
    not fit where it is above 1: libuhd then halves it, doubles the samples, and floating point above a half clips.
    """
    rest = interpolation
    for _ in range(2):
        rest = rest // 2 if rest % 2 == 0 else rest
    gain = float(rest) ** 3
    return 2.0 ** math.ceil(math.log2(gain)) / (1.65 * gain) > 1.0


def _level_words(bits: int) -> int:
    return int(1 << (16 - bits))
