"""Rounding to a converter's grid that is linear in the mean: dither before it, so that no bit depends on a threshold.

Rounding alone is not Lipschitz: a change of a sample far below one step q becomes nothing, or a whole step. With d the
sum of n independent uniforms of width q, on each of I and Q,

    P(round(x + d) = m q) = B_n(m - x/q),      B_n the centred B-spline of degree n

so that mean, variance and all moments up to the n-th are those of x plus noise that does not depend on x:
E = x and, from n = 2 on, Var = (n + 1) q^2/12 for every x. `fl.privacy.converters` charges what is left.

Two of the uniforms have 32 bits and the others eight, which is enough for them: a sum with two smooth ones is smooth.
In float32, x/q + d is as if x had been rounded before: to 2^-24 of itself and to `RESOLUTION` steps.
"""

import math
import os
from collections.abc import Callable
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from phy.errors import SignalError

RandomWords = Callable[[int], NDArray[np.uint64]]
"""Number of words to that many independent words of 64 random bits."""
RESOLUTION = 2.0**-22
"""Below this part of a step dither does not smooth: what float32 rounds a value of up to four steps by, twice."""
# Values that are worked on at once: larger arrays are fresh memory each time, which costs more than the arithmetic.
_BLOCK = 1 << 14


class Dither(IntEnum):
    """How many uniforms are added: two give a triangle, six are nearly Gaussian, cost twice the bits and more noise."""

    TRIANGULAR = 2
    SMOOTH = 6

    @property
    def reach(self) -> float:
        """The most by which a real value may leave the converter from where it was, in steps, rounding included."""
        return (self + 1) / 2

    @property
    def variance(self) -> float:
        """Of a real value that leaves the converter, in squared steps: q^2/4 for a triangle."""
        return (self + 1) / 12


def system_words(count: int) -> NDArray[np.uint64]:
    """From the operating system's CSPRNG: what privacy rests on must not come from a seed."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def seeded_words(rng: np.random.Generator) -> RandomWords:
    """From a generator, for simulations that repeat."""
    return lambda count: np.asarray(rng.bit_generator.random_raw(count), dtype=np.uint64)


def headroom(step: float, dither: Dither) -> float:
    """Largest |x| that dither and rounding to multiples of `step` cannot move beyond full scale 1."""
    return 1.0 - float(np.sqrt(2.0)) * dither.reach * step


def dithered(
    samples: NDArray[np.complex64], step: float, dither: Dither, words: RandomWords
) -> tuple[NDArray[np.complex64], int]:
    """Samples (n,) rounded to multiples of `step` after dither, and how many of them had to be shortened before.

    Samples longer than `headroom` are shortened to it, their phase kept, because dither must not push a sample beyond
    full scale. The result lies on the converter's grid, so that the converter's own rounding changes nothing.
    """
    if not 0.0 < step <= 0.1:
        raise SignalError("step", step, "above 0 and at most 0.1 of full scale", "A converter of 12 bits has 5e-4.")
    if samples.dtype != np.complex64 or samples.ndim != 1:
        raise SignalError("samples", f"{samples.dtype} {samples.shape}", "complex64 (n,)", "Pass one burst at a time.")
    shortened, count = limited(samples, headroom(step, dither))
    levels = np.float32(1.0 / step)
    codes = np.ascontiguousarray(shortened).view(np.float32) * levels
    for start in range(0, codes.size, _BLOCK):
        block = codes[start : start + _BLOCK]
        block += _dither(block.size, dither, words)
        np.rint(block, out=block)
        block /= levels
    return codes.view(np.complex64), count


def limited(
    samples: NDArray[np.complex64], limit: float, largest: float | None = None
) -> tuple[NDArray[np.complex64], int]:
    """Samples (n,) shortened to |x| <= limit, their phase kept, and how many of them had to be.

    A projection on a convex set: two signals come no further apart by it. Without one that is longer, the array itself.
    largest: `phy.compute.kernels.largest_part` of the samples, where it is known already.
    """
    from phy.compute.kernels import largest_part

    # No |x| is beyond the limit while both of its parts are within 1/sqrt(2) of it.
    if (largest_part(np.ascontiguousarray(samples)) if largest is None else largest) <= limit * math.sqrt(0.5):
        return samples, 0
    magnitude = np.abs(samples)
    beyond = np.flatnonzero(magnitude > np.float32(limit))
    if beyond.size == 0:
        return samples, 0
    shorter = samples.copy()
    shorter[beyond] *= np.float32(limit) / magnitude[beyond]
    return shorter, int(beyond.size)


def _dither(count: int, dither: Dither, words: RandomWords) -> NDArray[np.float32]:
    """Sums of uniforms (count,) in steps. Their mean is 0, but for parts in 2^32 that are the same for every value."""
    fine = words(count).view(np.int32)
    # Each conversion rounds to 24 bits; in float64 the sum would take three times as long.
    total = fine[:count].astype(np.float32)
    total += fine[count:].astype(np.float32)
    total *= np.float32(2.0**-32)
    if dither is Dither.SMOOTH:
        coarse = words(-(-count // 2)).view(np.uint32)[:count]
        # Two pairs of bytes at once: in each half of a word a sum of two, which needs nine bits.
        even, odd = coarse & np.uint32(0x00FF00FF), (coarse >> np.uint32(8)) & np.uint32(0x00FF00FF)
        # Unsigned numbers wrap, which is what two's complement means.
        total += (_sum(even) - _sum(odd)).view(np.int32) * np.float32(2.0**-8)
    return total


def _sum(halves: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return (halves & np.uint32(0xFFFF)) + (halves >> np.uint32(16))
