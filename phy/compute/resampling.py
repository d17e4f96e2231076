"""Values between samples, by tabulated filters and their tangents: see `phy.interpolation`."""

import math

import numpy as np
from numpy.typing import NDArray

from phy.compute.compiled import compiled

# Taps of both filters that are worked on at once: as many weights as stay in vector registers.
_TAPS = 8
_PLACE = tuple(np.uintp(place) for place in range(_TAPS))
# Where they are in complex samples, as floats.
_SAMPLE = tuple(np.uintp(2 * tap) for tap in range(_TAPS))


@compiled
def resample(
    x: NDArray[np.float32], table: NDArray[np.float32], first: float, delta: float, block: int, out: NDArray[np.float32]
) -> None:
    """Values at positions first + n (1 + delta) of x, n = 0, 1 ... Complex numbers are two floats each.

    table (P + 1, 2, taps), contiguous: an interpolation filter for the fractions 0, 1/P ... 1, and its derivative;
    position 0 is that of its first tap; taps are a multiple of eight. Within a block the fraction changes so little
    that its filter and tangent stand for it.
    """
    phases, taps, weights = table.shape[0] - 1, table.shape[2], table.reshape(-1)
    along = np.empty(2 * block, np.float32)
    value, slope = np.empty_like(along), np.empty_like(along)
    middle = 0.5 * (block - 1) * delta
    for n in range(block):
        along[2 * n] = along[2 * n + 1] = np.float32(n * delta - middle)
    count = out.size // 2
    for start in range(0, count, block):
        wide = 2 * min(block, count - start)
        position = first + start + (start * delta + middle)
        whole = math.floor(position)
        phase = int((position - whole) * phases + 0.5)
        beyond = np.float32(position - whole - phase / phases)
        value[:wide], slope[:wide] = np.float32(0), np.float32(0)
        for tap in range(0, taps, _TAPS):
            row = 2 * taps * phase + tap
            _filter_eight(x, 2 * (whole + tap), weights, row, row + taps, value, slope, wide)
        _tangent(value, slope, along, beyond, out, 2 * start, wide)


@compiled
def _filter_eight(
    x: NDArray[np.float32],
    at: int,
    weights: NDArray[np.float32],
    filters: int,
    derivatives: int,
    value: NDArray[np.float32],
    slope: NDArray[np.float32],
    count: int,
) -> None:
    """Add eight taps of a filter and of its derivative to value and slope; x is complex, two floats each."""
    source, first, second = np.uintp(at), np.uintp(filters), np.uintp(derivatives)
    w0, w1, w2, w3 = weights[first], weights[first + _PLACE[1]], weights[first + _PLACE[2]], weights[first + _PLACE[3]]
    w4, w5 = weights[first + _PLACE[4]], weights[first + _PLACE[5]]
    w6, w7 = weights[first + _PLACE[6]], weights[first + _PLACE[7]]
    v0, v1, v2 = weights[second], weights[second + _PLACE[1]], weights[second + _PLACE[2]]
    v3, v4, v5 = weights[second + _PLACE[3]], weights[second + _PLACE[4]], weights[second + _PLACE[5]]
    v6, v7 = weights[second + _PLACE[6]], weights[second + _PLACE[7]]
    for n in range(np.uintp(count)):
        m = source + n
        x0, x1, x2, x3 = x[m], x[m + _SAMPLE[1]], x[m + _SAMPLE[2]], x[m + _SAMPLE[3]]
        x4, x5, x6, x7 = x[m + _SAMPLE[4]], x[m + _SAMPLE[5]], x[m + _SAMPLE[6]], x[m + _SAMPLE[7]]
        value[n] += w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3 + w4 * x4 + w5 * x5 + w6 * x6 + w7 * x7
        slope[n] += v0 * x0 + v1 * x1 + v2 * x2 + v3 * x3 + v4 * x4 + v5 * x5 + v6 * x6 + v7 * x7


@compiled
def _tangent(
    value: NDArray[np.float32],
    slope: NDArray[np.float32],
    along: NDArray[np.float32],
    beyond: np.float32,
    out: NDArray[np.float32],
    to: int,
    count: int,
) -> None:
    target = np.uintp(to)
    for n in range(np.uintp(count)):
        out[target + n] = value[n] + (along[n] + beyond) * slope[n]
