"""Loops over samples as machine code, where NumPy would take several passes over memory: see `phy.compute.compiled`."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phy.compute.compiled import compiled, compiled_sums

# Floats of which squares are added in float32, before float64 takes over.
_SQUARES = 4096
# Samples over which a carrier's turn is a table.
_TURNS = 64


@compiled
def _scale(values: Any, factor: Any, out: Any) -> None:
    for place in range(out.size):
        out[place] = values[place] * factor


@compiled
def lay_out(cells: NDArray[np.complex64], factor: np.complex64, below: int, grid: NDArray[np.complex64]) -> None:
    """Factor times cells (rows, U), the first `below` of them at negative frequencies, to their bins (rows, N)."""
    used, size = cells.shape[1], grid.shape[1]
    for row in range(len(cells)):
        _scale(cells[row, :below], factor, grid[row, size - below :])
        _scale(cells[row, below:], factor, grid[row, 1 : 1 + used - below])


@compiled
def gather(spectrum: NDArray[np.float32], factor: np.float32, below: int, cells: NDArray[np.float32]) -> None:
    """The way back of `lay_out`, of spectra (rows, 2 N) into cells (rows, 2 U); a complex number is two floats."""
    width, size = cells.shape[1], spectrum.shape[1]
    for row in range(len(cells)):
        _scale(spectrum[row, size - 2 * below :], factor, cells[row, : 2 * below])
        _scale(spectrum[row, 2 : 2 + width - 2 * below], factor, cells[row, 2 * below :])


@compiled
def accumulate(
    samples: NDArray[np.complex64],
    first: int,
    count: int,
    factor: np.complex64,
    total: NDArray[np.complex64],
    to: int,
) -> None:
    """total[to + n] += factor samples[first + n], n = 0 ... count - 1. All of these places exist."""
    source, target = np.uintp(first), np.uintp(to)
    for n in range(np.uintp(count)):
        total[target + n] += samples[source + n] * factor


@compiled
def accumulate_turning(
    samples: NDArray[np.complex64],
    first: int,
    count: int,
    factor: complex,
    cycles_per_sample: float,
    total: NDArray[np.complex64],
    to: int,
) -> None:
    """total[to + n] += factor exp(j 2 pi f n) samples[first + n], n = 0 ... count - 1. All of these places exist.

    exp(a + b) = exp(a) exp(b): one within a block in single precision, one of each block in double.
    """
    angle = 2.0 * math.pi * cycles_per_sample
    step, coarse, unit = complex(math.cos(angle), math.sin(angle)), factor, complex(1.0, 0.0)
    fine = np.empty(_TURNS, np.complex64)
    for n in range(_TURNS):
        fine[n] = unit
        unit *= step
    for start in range(0, count, _TURNS):
        length = min(_TURNS, count - start)
        _accumulate_turned(samples, first + start, length, fine, np.complex64(coarse), total, to + start)
        coarse *= unit


@compiled
def _accumulate_turned(
    samples: NDArray[np.complex64],
    first: int,
    count: int,
    fine: NDArray[np.complex64],
    coarse: np.complex64,
    total: NDArray[np.complex64],
    to: int,
) -> None:
    source, target = np.uintp(first), np.uintp(to)
    for n in range(np.uintp(count)):
        total[target + n] += samples[source + n] * (fine[n] * coarse)


@compiled
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


@compiled_sums
def _largest_and_squares(
    bits: NDArray[np.int32], parts: NDArray[np.float32], first: int, count: int
) -> tuple[np.int32, np.float32]:
    start, largest, total = np.uintp(first), np.int32(0), np.float32(0)
    for place in range(np.uintp(count)):
        total += parts[start + place] * parts[start + place]
        largest = max(largest, bits[start + place] & np.int32(0x7FFFFFFF))
    return largest, total


@compiled
def _peak_and_energy(bits: NDArray[np.int32], parts: NDArray[np.float32]) -> tuple[np.int32, float]:
    largest, total = np.int32(0), 0.0
    for start in range(0, parts.size, _SQUARES):
        peak, squares = _largest_and_squares(bits, parts, start, min(_SQUARES, parts.size - start))
        largest, total = max(largest, peak), total + float(squares)
    return largest, total


def peak_and_energy(samples: NDArray[np.complex64]) -> tuple[float, float]:
    """`largest_part` of contiguous samples, and ||x||^2 to 1e-6 of it, in one pass."""
    flat = samples.reshape(-1)
    bits, energy = _peak_and_energy(flat.view(np.int32), flat.view(np.float32))
    return float(np.int32(bits).view(np.float32)), float(energy)


@compiled
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


@compiled
def _shares(first: Any, second: Any, energy: Any, later: Any, norm: float, least: float, out: Any) -> None:
    for lag in range(out.size):
        a, b, c, d = first[lag].real, first[lag].imag, second[lag].real, second[lag].imag
        matched = (np.float64(a) * a + np.float64(b) * b) + (np.float64(c) * c + np.float64(d) * d)
        out[lag] = matched / (norm * max(energy[lag] + later[lag], least))


@compiled
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


@compiled
def _turn(samples: Any, fine: Any, coarse: Any, out: Any) -> None:
    for n in range(out.size):
        out[n] = samples[n] * (fine[n] * coarse)


@compiled
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
