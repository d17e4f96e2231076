"""Long filters by Fourier transforms."""

import math

import numpy as np
from numpy.typing import NDArray

from phy.compute.transforms import row_blocks, transform_of

# Rows are so many times as long as the filter, up to a length that FFTW still does well, and half of it in any case.
_ROW, _LONG_ROW = 7.5, 8192


class LongFilter:
    """An FIR of many taps: overlap-save, in blocks that stay in cache. Made once, it is applied to many signals."""

    def __init__(self, taps: NDArray[np.complex64]) -> None:
        # Fifteen times a power of two: FFTW takes two thirds of the time for it that the nearest powers of two need.
        size = 15 * 2 ** max(0, math.ceil(math.log2(max(taps.size - 1, 1) * _ROW / 15.0)))
        self._size = size // 2 if size > _LONG_ROW else size
        self._overlap = taps.size - 1
        transform = transform_of(1, self._size, forward=True)
        transform.source[:] = 0.0
        transform.source[0, : taps.size] = taps
        transform(transform.source, transform.target)
        # A transform and its inverse multiply by the size.
        self._response = np.asarray(transform.target[0] * np.float32(1.0 / self._size))

    def __call__(self, samples: NDArray[np.complex64]) -> NDArray[np.complex64]:
        """Samples (n,) through the whole of it: (n + taps - 1,)."""
        size, overlap = self._size, self._overlap
        hop, count = size - overlap, samples.size + overlap
        rows = -(-count // hop)
        out = np.empty((rows, hop), np.complex64)
        for block in row_blocks(rows, size):
            forward = transform_of(block.stop - block.start, size, forward=True)
            inverse = transform_of(block.stop - block.start, size, forward=False)
            for row, target in zip(range(block.start, block.stop), forward.source, strict=True):
                _cut(samples, row * hop - overlap, target)
            forward(forward.source, forward.target)
            np.multiply(forward.target, self._response, out=inverse.source)
            inverse(inverse.source, inverse.target)
            out[block] = inverse.target[:, overlap:]
        return out.reshape(-1)[:count]


def _cut(samples: NDArray[np.complex64], first: int, out: NDArray[np.complex64]) -> None:
    """The samples from `first` on, zeros where there are none."""
    low, high = max(first, 0) - first, min(first + out.size, samples.size) - first
    out[:low], out[high:] = 0.0, 0.0
    out[low:high] = samples[first + low : first + high]


def convolve(samples: NDArray[np.complex64], taps: NDArray[np.complex64]) -> NDArray[np.complex64]:
    """Samples (n,) through an FIR, the whole of it: (n + taps - 1,)."""
    return LongFilter(taps)(samples)
