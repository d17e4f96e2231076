"""Values between samples, by tabulated filters and their tangents: see `phy.interpolation`."""

import math

import numpy as np
from numpy.typing import NDArray

from phy.compute.compiled import compiled, compiled_sums
from phy.compute.vector_filter import BLOCK, REACH, SLOPE_TAPS, TAPS, filter_block

# Over a block of a clock that is off by more the tangent would leave its filter.
_STEADY = 1e-4
_WIDTH = TAPS + SLOPE_TAPS


@compiled
def resample(
    x: NDArray[np.float32], table: NDArray[np.float32], first: float, delta: float, out: NDArray[np.float32]
) -> None:
    """Values at positions first + n (1 + delta) of x, n = 0, 1 ... Complex numbers are two floats each.

    table (P + 1, TAPS + SLOPE_TAPS), contiguous: an interpolation filter for the fractions 0, 1/P ... 1, and its
    derivative in the middle taps; position 0 is that of its first tap. x is zero outside.
    """
    phases, weights = table.shape[0] - 1, table.reshape(-1)
    along = np.empty(2 * BLOCK, np.float32)
    middle = 0.5 * (BLOCK - 1) * delta
    for n in range(BLOCK):
        along[2 * n] = along[2 * n + 1] = np.float32(n * delta - middle)
    steady, count, n = abs(delta) <= _STEADY, out.size // 2, 0
    while n < count:
        position = first + n + (n * delta + middle)
        whole = math.floor(position)
        if steady and n + BLOCK <= count and whole >= 0 and 2 * whole + REACH <= x.size:
            phase = int((position - whole) * phases + 0.5)
            beyond = np.float32(position - whole - phase / phases)
            filter_block(x, np.int64(2 * whole), weights, np.int64(phase * _WIDTH), along, beyond, out, np.int64(2 * n))
            n += BLOCK
        else:
            _value(x, weights, phases, first + n + n * delta, out, 2 * n)
            n += 1


@compiled_sums
def _value(
    x: NDArray[np.float32],
    weights: NDArray[np.float32],
    phases: int,
    position: float,
    out: NDArray[np.float32],
    to: int,
) -> None:
    """One value, by the filter between the two nearest of the table."""
    whole = math.floor(position)
    place = (position - whole) * phases
    phase = min(int(place), phases - 1)
    share, skipped = np.float32(place - phase), max(0, -whole)
    taps = max(0, min(TAPS, x.size // 2 - whole) - skipped)
    # Unsigned: an index that might be negative is looked at each time.
    row, source, width, two = (
        np.uintp(phase * _WIDTH + skipped),
        np.uintp(2 * (whole + skipped)),
        np.uintp(_WIDTH),
        np.uintp(2),
    )
    real, imag = np.float32(0), np.float32(0)
    for tap in range(np.uintp(taps)):
        weight = weights[row + tap] + share * (weights[row + width + tap] - weights[row + tap])
        real += weight * x[source + two * tap]
        imag += weight * x[source + two * tap + np.uintp(1)]
    out[to], out[to + 1] = real, imag
