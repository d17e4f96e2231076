"""Loops over samples as machine code (Numba), where NumPy would take several passes over memory.

They run without the interpreter lock, are compiled at their first call and kept on disk where a folder can be written.
Loops go over slices of their own: only then does the compiler know that nothing overlaps and no index is negative, and
uses vector registers. Complex rows are looked at as rows of twice as many floats where that is enough.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., Any])
# Columns that are mixed at once: all rows of them stay in the first-level cache.
_COLUMNS = 512
# Where the taps of a filter on complex samples are, as floats.
_TAP = tuple(np.uintp(2 * tap) for tap in range(8))


def _compiled(function: Function) -> Function:
    # Products and sums may be one instruction; a sum's order is kept.
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
    try:
        made: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        made = numba.njit(**options)(function)
    return made


@_compiled
def _multiply(a: NDArray[np.float32], b: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    for place in range(out.size):
        out[place] = a[place] * b[place]


@_compiled
def _butterfly(a: NDArray[np.float32], b: NDArray[np.float32]) -> None:
    for place in range(a.size):
        x, y = a[place], b[place]
        a[place] = x + y
        b[place] = x - y


@_compiled
def _scale(values: Any, factor: Any, out: Any) -> None:
    for place in range(out.size):
        out[place] = values[place] * factor


@_compiled
def mix(values: NDArray[np.float32], signs: NDArray[np.float32], order: int, out: NDArray[np.float32]) -> None:
    """out (n,) = H (signs * values), padded with zeros to n, cut into `order` rows: H is Sylvester's Hadamard matrix.

    Entries are +-1; `order` is a power of two that divides n.
    """
    columns = out.size // order
    work = np.zeros((order, _COLUMNS), np.float32)
    for start in range(0, columns, _COLUMNS):
        count = min(_COLUMNS, columns - start)
        for row in range(order):
            first = row * columns + start
            filled = max(0, min(count, values.size - first))
            _multiply(values[first : first + filled], signs[first : first + filled], work[row, :filled])
            work[row, filled:count] = np.float32(0)
        half = order // 2
        while half > 0:
            for group in range(0, order, 2 * half):
                for row in range(group, group + half):
                    _butterfly(work[row, :count], work[row + half, :count])
            half //= 2
        for row in range(order):
            first = row * columns + start
            out[first : first + count] = work[row, :count]


@_compiled
def lay_out(cells: NDArray[np.complex64], factor: np.complex64, below: int, grid: NDArray[np.complex64]) -> None:
    """Factor times cells (rows, U), the first `below` of them at negative frequencies, to their bins (rows, N)."""
    used, size = cells.shape[1], grid.shape[1]
    for row in range(len(cells)):
        _scale(cells[row, :below], factor, grid[row, size - below :])
        _scale(cells[row, below:], factor, grid[row, 1 : 1 + used - below])


@_compiled
def gather(spectrum: NDArray[np.float32], factor: np.float32, below: int, cells: NDArray[np.float32]) -> None:
    """The way back of `lay_out`, of spectra (rows, 2 N) into cells (rows, 2 U); a complex number is two floats."""
    width, size = cells.shape[1], spectrum.shape[1]
    for row in range(len(cells)):
        _scale(spectrum[row, size - 2 * below :], factor, cells[row, : 2 * below])
        _scale(spectrum[row, 2 : 2 + width - 2 * below], factor, cells[row, 2 * below :])


@_compiled
def _largest_bits(bits: NDArray[np.int32]) -> np.int32:
    largest = np.int32(0)
    for place in range(bits.size):
        largest = max(largest, bits[place] & np.int32(0x7FFFFFFF))
    return largest


def largest_part(samples: NDArray[np.complex64]) -> float:
    """The largest |real| or |imaginary| part of contiguous samples, NaN where one of them is NaN; 0 of none.

    Without their sign floats are in the order of their bits, and NaN comes after infinity.
    """
    bits = np.int32(_largest_bits(samples.reshape(-1).view(np.int32)))
    return float(bits.view(np.float32))


@_compiled
def preamble_metric(
    body: NDArray[np.complex64],
    products: NDArray[np.complex64],
    size: int,
    norm: float,
    floor: float,
    out: NDArray[np.float64],
) -> None:
    """rho of `phy.sync` at every lag, out (n - 2 size + 1,): what both halves have in common with the known one.

    body: samples (n,). products: <a, x> at every lag (n - size + 1,). norm: ||a||^2. Energies below `floor` times the
    largest of a window count as that much.
    """
    energies = np.empty(products.size, np.float64)
    power, real, imag, largest = np.float64(0), np.float64(0), np.float64(0), np.float64(0)
    for place in range(size - 1):
        x = body[place]
        a, b = np.float64(x.real), np.float64(x.imag)
        power, real, imag = power + (a * a + b * b), real + a, imag + b
    for lag in range(products.size):
        x = body[lag + size - 1]
        a, b = np.float64(x.real), np.float64(x.imag)
        power, real, imag = power + (a * a + b * b), real + a, imag + b
        largest = max(largest, power)
        energies[lag] = power - (real * real + imag * imag) / size
        x = body[lag]
        a, b = np.float64(x.real), np.float64(x.imag)
        power, real, imag = power - (a * a + b * b), real - a, imag - b
    least = max(float(floor * largest), 1e-300)
    _shares(products, products[size:], energies, energies[size:], norm, least, out)


@_compiled
def _shares(first: Any, second: Any, energy: Any, later: Any, norm: float, least: float, out: Any) -> None:
    for lag in range(out.size):
        a, b, c, d = first[lag].real, first[lag].imag, second[lag].real, second[lag].imag
        matched = (np.float64(a) * a + np.float64(b) * b) + (np.float64(c) * c + np.float64(d) * d)
        out[lag] = matched / (norm * max(energy[lag] + later[lag], least))


@_compiled
def climb(channel: NDArray[np.complex64], subcarriers: NDArray[np.int64], size: int, delay: float, steps: int) -> float:
    """Newton's steps from `delay` to a maximum of |sum_k H[k] exp(j 2 pi k delay / size)|, each of a quarter at most.

    Where the curvature is not that of a maximum, as for a channel of zeros, it stays.
    """
    for _ in range(steps):
        value, first, second = 0j, 0j, 0j
        turn = 2.0 * math.pi * delay / size
        unit = complex(math.cos(turn), math.sin(turn))
        phase = complex(math.cos(turn * subcarriers[0]), math.sin(turn * subcarriers[0]))
        for place in range(subcarriers.size):
            k = subcarriers[place]
            term = channel[place] * phase
            value += term
            first += term * k
            second += term * (k * k)
            if place + 1 < subcarriers.size:
                # DC is left out, there it turns twice.
                for _ in range(subcarriers[place + 1] - k):
                    phase *= unit
        # Derivatives have the factors j and -1.
        slope = value.imag * first.real - value.real * first.imag
        curvature = (first.real**2 + first.imag**2) - (value.real * second.real + value.imag * second.imag)
        if curvature < 0.0:
            step = slope / curvature * size / (2.0 * math.pi)
            delay -= min(max(step, -0.25), 0.25)
    return delay


@_compiled
def _filter_eight(
    x: NDArray[np.float32], weights: NDArray[np.float32], value: NDArray[np.float32], slope: NDArray[np.float32]
) -> None:
    """Add eight taps of two filters (2, 8) at once; x is complex, two floats each."""
    w0, w1, w2, w3, w4, w5, w6, w7 = weights[0]
    v0, v1, v2, v3, v4, v5, v6, v7 = weights[1]
    # Unsigned: an index that might be negative is looked at each time.
    for n in range(np.uintp(value.size)):
        x0, x1, x2, x3 = x[n], x[n + _TAP[1]], x[n + _TAP[2]], x[n + _TAP[3]]
        x4, x5, x6, x7 = x[n + _TAP[4]], x[n + _TAP[5]], x[n + _TAP[6]], x[n + _TAP[7]]
        value[n] += w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3 + w4 * x4 + w5 * x5 + w6 * x6 + w7 * x7
        slope[n] += v0 * x0 + v1 * x1 + v2 * x2 + v3 * x3 + v4 * x4 + v5 * x5 + v6 * x6 + v7 * x7


@_compiled
def _tangent(value: Any, slope: Any, along: Any, beyond: np.float32, out: Any) -> None:
    for n in range(out.size):
        out[n] = value[n] + (along[n] + beyond) * slope[n]


@_compiled
def resample(
    x: NDArray[np.float32], table: NDArray[np.float32], first: float, delta: float, block: int, out: NDArray[np.float32]
) -> None:
    """Values at positions first + n (1 + delta) of x, n = 0, 1 ... Complex numbers are two floats each.

    table (P + 1, 2, taps): an interpolation filter for the fractions 0, 1/P ... 1, and its derivative; position 0 is
    that of its first tap. Within a block the fraction changes so little that its filter and tangent stand for it.
    """
    phases, taps = table.shape[0] - 1, table.shape[2]
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
        value[:], slope[:] = np.float32(0), np.float32(0)
        for tap in range(0, taps, 8):
            _filter_eight(x[2 * (whole + tap) :], table[phase, :, tap : tap + 8], value[:wide], slope[:wide])
        _tangent(value[:wide], slope[:wide], along[:wide], beyond, out[2 * start : 2 * start + wide])


@_compiled
def _turn(samples: Any, fine: Any, coarse: Any, out: Any) -> None:
    for n in range(out.size):
        out[n] = samples[n] * (fine[n] * coarse)


@_compiled
def turn(
    samples: NDArray[np.complex64],
    fine: NDArray[np.complex64],
    coarse: NDArray[np.complex64],
    out: NDArray[np.complex64],
) -> None:
    """out[n] = samples[n] fine[n mod B] coarse[n div B], B being the length of `fine`."""
    for block in range(coarse.size):
        start = block * fine.size
        stop = min(start + fine.size, out.size)
        _turn(samples[start:stop], fine[: stop - start], coarse[block], out[start:stop])
