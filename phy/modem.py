"""Cells to samples and back: unitary (I)FFT and cyclic prefix.

Both directions are linear, so the demodulated sum of signals is the sum of their cells: this is what adds up over the
air. Unitary means that white noise has the same variance per sample and per cell.
"""

from functools import lru_cache

import numpy as np
from ducc0.fft import c2c
from numpy.typing import NDArray

from phy.errors import SignalError
from phy.numerology import Numerology

# ducc0 rather than SciPy, whose transforms are an older version of these: 1.4 times as fast, and into a given array.
_UNITARY = 1


def modulate(
    cells: NDArray[np.complex64],
    numerology: Numerology,
    out: NDArray[np.complex64] | None = None,
) -> NDArray[np.complex64]:
    """Samples of cells (..., symbols, data_subcarriers), shape (..., symbols * symbol_samples).

    x[n] = 1/sqrt(N) sum_k X[k] exp(j 2 pi k n / N), preceded by its last cp_samples. `out` is filled and returned when
    given: complex64, C-contiguous, of the result's shape.
    """
    _require_cells(cells, numerology)
    size, prefix, below = numerology.fft_size, numerology.cp_samples, numerology.negative_subcarriers
    above = numerology.data_subcarriers - below
    shape = (*cells.shape[:-2], cells.shape[-2] * numerology.symbol_samples)
    if out is None:
        out = np.empty(shape, dtype=np.complex64)
    elif out.shape != shape or out.dtype != np.complex64 or not out.flags.c_contiguous:
        raise SignalError(
            "out", f"{out.dtype} {out.shape}", f"C-contiguous complex64 {shape}", "Allocate it with numpy.empty."
        )
    symbols = out.reshape(*cells.shape[:-1], numerology.symbol_samples)
    # The grid is laid out where the samples will stand, so that the transform can work in place.
    grid = symbols[..., prefix:]
    grid[..., 1 : above + 1] = cells[..., below:]
    grid[..., size - below :] = cells[..., :below]
    grid[..., 0] = 0.0
    grid[..., above + 1 : size - below] = 0.0
    c2c(grid, axes=(grid.ndim - 1,), forward=False, inorm=_UNITARY, out=grid)
    symbols[..., :prefix] = symbols[..., size:]
    return out


def demodulate(
    samples: NDArray[np.complex64], numerology: Numerology, window_start: int | None = None
) -> NDArray[np.complex64]:
    """Cells (..., symbols, data_subcarriers) of samples (..., symbols * symbol_samples).

    The FFT window of each symbol begins at `window_start` in 0 .. cp_samples (default cp_samples). Beginning early
    keeps clear of the next symbol when the timing is late; the phase ramp exp(-j 2 pi k (cp - start) / N) that it
    causes is undone, so that the cells are the same for every `window_start`.
    """
    spectrum, ramp = _spectrum(samples, numerology, window_start)
    below = numerology.negative_subcarriers
    above = numerology.data_subcarriers - below
    cells = np.empty((*spectrum.shape[:-1], numerology.data_subcarriers), dtype=np.complex64)
    if ramp is None:
        cells[..., :below] = spectrum[..., numerology.fft_size - below :]
        cells[..., below:] = spectrum[..., 1 : above + 1]
    else:
        np.multiply(
            spectrum[..., numerology.fft_size - below :], ramp[numerology.fft_size - below :], out=cells[..., :below]
        )
        np.multiply(spectrum[..., 1 : above + 1], ramp[1 : above + 1], out=cells[..., below:])
    return cells


def demodulate_bins(
    samples: NDArray[np.complex64],
    numerology: Numerology,
    bins: NDArray[np.int64],
    window_start: int | None = None,
) -> NDArray[np.complex64]:
    """As `demodulate`, for any FFT-order `bins` such as `numerology.null_bins`. Shape (..., symbols, len(bins))."""
    spectrum, ramp = _spectrum(samples, numerology, window_start)
    cells = spectrum[..., bins]
    return cells if ramp is None else cells * ramp[bins]


def _spectrum(
    samples: NDArray[np.complex64], numerology: Numerology, window_start: int | None
) -> tuple[NDArray[np.complex64], NDArray[np.complex64] | None]:
    start = numerology.cp_samples if window_start is None else window_start
    if not 0 <= start <= numerology.cp_samples:
        raise SignalError(
            "window_start", start, f"0 to {numerology.cp_samples}", "The FFT window must stay inside its symbol."
        )
    if samples.dtype != np.complex64 or samples.ndim < 1 or samples.shape[-1] % numerology.symbol_samples:
        raise SignalError(
            "samples",
            f"{samples.dtype} {samples.shape}",
            f"complex64, whole symbols of {numerology.symbol_samples} samples",
            "Cut the capture at the frame's payload slice.",
        )
    symbols = samples.reshape(*samples.shape[:-1], -1, numerology.symbol_samples)
    window = symbols[..., start : start + numerology.fft_size]
    spectrum = np.empty(window.shape, np.complex64)
    c2c(window, axes=(window.ndim - 1,), forward=True, inorm=_UNITARY, out=spectrum)
    early = numerology.cp_samples - start
    return spectrum, _advance_ramp(numerology.fft_size, early) if early else None


@lru_cache(maxsize=32)
def _advance_ramp(fft_size: int, early_samples: int) -> NDArray[np.complex64]:
    # Bin numbers modulo N give the same phase as signed ones because early_samples is whole.
    turns = np.arange(fft_size) * early_samples % fft_size / fft_size
    ramp = np.asarray(np.exp(2j * np.pi * turns), dtype=np.complex64)
    ramp.setflags(write=False)
    return ramp


def _require_cells(cells: NDArray[np.complex64], numerology: Numerology) -> None:
    if cells.dtype != np.complex64 or cells.ndim < 2 or cells.shape[-1] != numerology.data_subcarriers:
        raise SignalError(
            "cells",
            f"{cells.dtype} {cells.shape}",
            f"complex64 (..., symbols, {numerology.data_subcarriers})",
            "Make them with CoordinateGrid.to_cells.",
        )
