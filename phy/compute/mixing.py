"""Random signs and a Walsh-Hadamard transform over rows that are far apart, in one pass over the data.

A vector is cut into `order` rows; a few columns of all of them at a time stay in the first-level cache.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from phy.compute.compiled import compiled

# Columns that are mixed at once, and the largest order.
_COLUMNS, _ROWS = 256, 16
# Where the rows of a work array begin. Unsigned: an index that might be negative is looked at each time.
_R = tuple(np.uintp(_COLUMNS * row) for row in range(_ROWS))


@compiled
def mix(
    values: NDArray[np.float32], signs: NDArray[np.int8], order: int, factor: np.float32, out: NDArray[np.float32]
) -> None:
    """out (n,) = factor H (signs * values), padded with zeros to n, cut into `order` rows.

    H is Sylvester's Hadamard matrix, of +-1; `order` is a power of two up to 16 that divides n. signs: as many as there
    are values, or none of them.
    """
    columns = out.size // order
    work = np.empty(_ROWS * _COLUMNS, np.float32)
    for start in range(0, columns, _COLUMNS):
        count = min(_COLUMNS, columns - start)
        _mixed(values, signs, order, columns, start, count, work)
        for row in range(order):
            _scaled(work, row * _COLUMNS, count, factor, out, row * columns + start)


@compiled
def spread(
    values: NDArray[np.float32],
    signs: NDArray[np.int8],
    order: int,
    factor: np.complex64,
    below: int,
    used: int,
    grid: NDArray[np.complex64],
) -> None:
    """Factor times H (signs * values), pairs of which are cells, to the bins of `kernels.lay_out`: grid (rows, N).

    below, used: cells of a row of the grid at negative frequencies, and all of them; `order` divides those of all rows.
    Bins that are not used stay as they are.
    """
    size, columns = grid.shape[1], 2 * len(grid) * used // order
    bins = grid.reshape(-1)
    cells = np.empty(_ROWS * _COLUMNS // 2, np.complex64)
    work = cells.view(np.float32)
    for start in range(0, columns, _COLUMNS):
        count = min(_COLUMNS, columns - start)
        _mixed(values, signs, order, columns, start, count, work)
        for row in range(order):
            symbol, place = divmod((row * columns + start) // 2, used)
            first, left = row * (_COLUMNS // 2), count // 2
            while left > 0:
                if place < below:
                    length, target = min(below - place, left), size - below + place
                else:
                    length, target = min(used - place, left), 1 + place - below
                _scaled(cells, first, length, factor, bins, symbol * size + target)
                first, left, place = first + length, left - length, place + length
                if place == used:
                    symbol, place = symbol + 1, 0


@compiled
def _mixed(
    values: NDArray[np.float32],
    signs: NDArray[np.int8],
    order: int,
    columns: int,
    start: int,
    count: int,
    work: NDArray[np.float32],
) -> None:
    """Columns start ... start + count of the result, in the rows of `work`."""
    for row in range(order):
        first = row * columns + start
        filled = max(0, min(count, values.size - first))
        if signs.size:
            _signed(values, signs, first, filled, work, row * _COLUMNS)
        else:
            _copied(values, first, filled, work, row * _COLUMNS)
        work[row * _COLUMNS + filled : row * _COLUMNS + count] = np.float32(0)
    if order == _ROWS:
        _hadamard_sixteen(work, count)
        return
    half = order // 2
    while half > 0:
        for group in range(0, order, 2 * half):
            for row in range(group, group + half):
                _butterfly(work, row * _COLUMNS, (row + half) * _COLUMNS, count)
        half //= 2


@compiled
def _signed(
    values: NDArray[np.float32],
    signs: NDArray[np.int8],
    first: int,
    count: int,
    work: NDArray[np.float32],
    to: int,
) -> None:
    source, target = np.uintp(first), np.uintp(to)
    for n in range(np.uintp(count)):
        work[target + n] = values[source + n] * np.float32(signs[source + n])


@compiled
def _copied(values: NDArray[np.float32], first: int, count: int, out: NDArray[np.float32], to: int) -> None:
    source, target = np.uintp(first), np.uintp(to)
    for n in range(np.uintp(count)):
        out[target + n] = values[source + n]


@compiled
def _scaled(values: Any, first: int, count: int, factor: Any, out: Any, to: int) -> None:
    source, target = np.uintp(first), np.uintp(to)
    for n in range(np.uintp(count)):
        out[target + n] = values[source + n] * factor


@compiled
def _butterfly(work: NDArray[np.float32], first: int, second: int, count: int) -> None:
    upper, lower = np.uintp(first), np.uintp(second)
    for n in range(np.uintp(count)):
        x, y = work[upper + n], work[lower + n]
        work[upper + n] = x + y
        work[lower + n] = x - y


@compiled
def _hadamard_sixteen(w: NDArray[np.float32], count: int) -> None:
    """All four stages at once: sixteen rows are as many vector registers."""
    for n in range(np.uintp(count)):
        a0, a1, a2, a3 = w[n], w[n + _R[1]], w[n + _R[2]], w[n + _R[3]]
        a4, a5, a6, a7 = w[n + _R[4]], w[n + _R[5]], w[n + _R[6]], w[n + _R[7]]
        a8, a9, a10, a11 = w[n + _R[8]], w[n + _R[9]], w[n + _R[10]], w[n + _R[11]]
        a12, a13, a14, a15 = w[n + _R[12]], w[n + _R[13]], w[n + _R[14]], w[n + _R[15]]
        b0, b1, b2, b3, b4, b5, b6, b7 = a0 + a8, a1 + a9, a2 + a10, a3 + a11, a4 + a12, a5 + a13, a6 + a14, a7 + a15
        b8, b9, b10, b11, b12, b13 = a0 - a8, a1 - a9, a2 - a10, a3 - a11, a4 - a12, a5 - a13
        b14, b15 = a6 - a14, a7 - a15
        a0, a1, a2, a3, a4, a5, a6, a7 = b0 + b4, b1 + b5, b2 + b6, b3 + b7, b0 - b4, b1 - b5, b2 - b6, b3 - b7
        a8, a9, a10, a11, a12, a13 = b8 + b12, b9 + b13, b10 + b14, b11 + b15, b8 - b12, b9 - b13
        a14, a15 = b10 - b14, b11 - b15
        b0, b1, b2, b3, b4, b5, b6, b7 = a0 + a2, a1 + a3, a0 - a2, a1 - a3, a4 + a6, a5 + a7, a4 - a6, a5 - a7
        b8, b9, b10, b11, b12, b13 = a8 + a10, a9 + a11, a8 - a10, a9 - a11, a12 + a14, a13 + a15
        b14, b15 = a12 - a14, a13 - a15
        w[n], w[n + _R[1]], w[n + _R[2]], w[n + _R[3]] = b0 + b1, b0 - b1, b2 + b3, b2 - b3
        w[n + _R[4]], w[n + _R[5]], w[n + _R[6]], w[n + _R[7]] = b4 + b5, b4 - b5, b6 + b7, b6 - b7
        w[n + _R[8]], w[n + _R[9]], w[n + _R[10]], w[n + _R[11]] = b8 + b9, b8 - b9, b10 + b11, b10 - b11
        w[n + _R[12]], w[n + _R[13]], w[n + _R[14]], w[n + _R[15]] = b12 + b13, b12 - b13, b14 + b15, b14 - b15
