"""Cells to samples and back: unitary (I)FFT and cyclic prefix.

Both directions are linear, so the demodulated sum of signals is the sum of their cells: this is what adds up over the
air. Unitary means that white noise has the same variance per sample and per cell.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from phy.compute.transforms import row_blocks, suitable, transform_of
from phy.errors import SignalError
from phy.numerology import Numerology


def modulate(
    cells: NDArray[np.complex64],
    numerology: Numerology,
    out: NDArray[np.complex64] | None = None,
    factor: complex = 1.0,
) -> NDArray[np.complex64]:
    """Samples of factor times cells (..., symbols, data_subcarriers), shape (..., symbols * symbol_samples).

    x[n] = factor/sqrt(N) sum_k X[k] exp(j 2 pi k n / N), preceded by its last cp_samples. `out` is filled and returned
    when given: complex64, C-contiguous, of the result's shape. A factor costs nothing here.
    """
    _require_cells(cells, numerology)
    from phy.compute import kernels

    size, below = numerology.fft_size, numerology.negative_subcarriers
    shape = (*cells.shape[:-2], cells.shape[-2] * numerology.symbol_samples)
    if out is None:
        out = np.empty(shape, dtype=np.complex64)
    elif out.shape != shape or out.dtype != np.complex64 or not out.flags.c_contiguous:
        raise SignalError(
            "out", f"{out.dtype} {out.shape}", f"C-contiguous complex64 {shape}", "Allocate it with numpy.empty."
        )
    rows = np.ascontiguousarray(cells).reshape(-1, numerology.data_subcarriers)
    symbols = out.reshape(-1, numerology.symbol_samples)
    weight = np.complex64(factor * bin_weight(numerology))
    for block in row_blocks(len(rows), size):
        # Nobody else writes to this scratch: the bins that are not used stay zero.
        scratch = transform_of(block.stop - block.start, size, forward=False, purpose=numerology.data_subcarriers)
        kernels.lay_out(rows[block], weight, below, scratch.source)
        _to_samples(scratch.source, numerology, symbols[block])
    return out


def modulate_bins(
    bins: NDArray[np.complex64], numerology: Numerology, out: NDArray[np.complex64]
) -> NDArray[np.complex64]:
    """As `modulate`, of symbols that stand in their bins (symbols, fft_size) already, times `bin_weight`.

    `bins` best come from `phy.compute.transforms.aligned_zeros`. `out` (symbols * symbol_samples,) is filled.
    """
    symbols = out.reshape(-1, numerology.symbol_samples)
    for block in row_blocks(len(bins), numerology.fft_size):
        _to_samples(bins[block], numerology, symbols[block])
    return out


def bin_weight(numerology: Numerology) -> float:
    """What makes the inverse transform unitary."""
    return 1.0 / math.sqrt(numerology.fft_size)


def _to_samples(bins: NDArray[np.complex64], numerology: Numerology, symbols: NDArray[np.complex64]) -> None:
    """Transform bins (rows, fft_size) to the bodies of symbols (rows, symbol_samples), and set prefixes before them."""
    size, prefix = numerology.fft_size, numerology.cp_samples
    bodies = symbols[:, prefix:]
    ready, direct = suitable(bins), suitable(bodies)
    source, target = bins if ready else None, bodies if direct else None
    inverse = transform_of(len(bins), size, forward=False, source=source, target=target)
    if not ready:
        inverse.source[:] = bins
    inverse(bins if ready else inverse.source, bodies if direct else inverse.target)
    if not direct:
        bodies[:] = inverse.target
    inverse.release()
    symbols[:, :prefix] = symbols[:, size:]


def demodulate(
    samples: NDArray[np.complex64], numerology: Numerology, window_start: int | None = None
) -> NDArray[np.complex64]:
    """Cells (..., symbols, data_subcarriers) of samples (..., symbols * symbol_samples).

    The FFT window of each symbol begins at `window_start` in 0 .. cp_samples (default cp_samples). Beginning early
    keeps clear of the next symbol when the timing is late; the phase ramp exp(-j 2 pi k (cp - start) / N) that it
    causes is undone, so that the cells are the same for every `window_start`.
    """
    return _demodulate(samples, numerology, window_start, _NO_BINS, used=True)[0]


def demodulate_bins(
    samples: NDArray[np.complex64],
    numerology: Numerology,
    bins: NDArray[np.int64],
    window_start: int | None = None,
) -> NDArray[np.complex64]:
    """As `demodulate`, for any FFT-order `bins` such as `numerology.null_bins`. Shape (..., symbols, len(bins))."""
    return _demodulate(samples, numerology, window_start, bins, used=False)[1]


def demodulate_with(
    samples: NDArray[np.complex64], numerology: Numerology, bins: NDArray[np.int64]
) -> tuple[NDArray[np.complex64], NDArray[np.complex64]]:
    """`demodulate` and `demodulate_bins` of the same samples, with one transform for both."""
    return _demodulate(samples, numerology, None, bins, used=True)


def _demodulate(
    samples: NDArray[np.complex64],
    numerology: Numerology,
    window_start: int | None,
    bins: NDArray[np.int64],
    *,
    used: bool,
) -> tuple[NDArray[np.complex64], NDArray[np.complex64]]:
    """Cells of the used subcarriers, where wanted, and of `bins`."""
    start = _checked_start(samples, numerology, window_start)
    size, early = numerology.fft_size, numerology.cp_samples - start
    symbols = samples.reshape(-1, numerology.symbol_samples)
    windows = symbols[:, start : start + size]
    cells = np.empty((len(symbols), numerology.data_subcarriers if used else 0), np.complex64)
    others = np.empty((len(symbols), len(bins)), np.complex64)
    direct = suitable(windows)
    ramp = _advance_ramp(size, early) if early else None
    for block in row_blocks(len(symbols), size):
        window = windows[block]
        transform = transform_of(len(window), size, forward=True, source=window if direct else None)
        if direct:
            transform(window, transform.target)
            transform.release()
        else:
            transform.source[:] = window
            transform(transform.source, transform.target)
        if used:
            _gather(transform.target, cells[block], numerology, ramp)
        if bins.size:
            np.multiply(transform.target[:, bins], _weights(size, ramp, bins), out=others[block])
    batch = (*samples.shape[:-1], samples.shape[-1] // numerology.symbol_samples)
    return cells.reshape(*batch, cells.shape[-1]), others.reshape(*batch, len(bins))


_NO_BINS: NDArray[np.int64] = np.empty(0, np.int64)


def _gather(
    spectrum: NDArray[np.complex64],
    cells: NDArray[np.complex64],
    numerology: Numerology,
    ramp: NDArray[np.complex64] | None,
) -> None:
    from phy.compute import kernels

    unit = np.float32(bin_weight(numerology))
    kernels.gather(spectrum.view(np.float32), unit, numerology.negative_subcarriers, cells.view(np.float32))
    if ramp is not None:
        cells *= ramp[numerology.used_bins]


def _weights(
    size: int, ramp: NDArray[np.complex64] | None, bins: NDArray[np.int64]
) -> NDArray[np.complex64] | np.float32:
    """What makes a transform unitary, and undoes the early window's ramp at these bins."""
    unit = np.float32(1.0 / math.sqrt(size))
    return unit if ramp is None else np.asarray(ramp[bins] * unit)


def _checked_start(samples: NDArray[np.complex64], numerology: Numerology, window_start: int | None) -> int:
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
    return start


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
