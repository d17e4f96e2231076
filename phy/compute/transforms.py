"""Fourier transforms of many short rows, in blocks that stay in the processor's cache.

By FFTW, which does rows of a few hundred to a few thousand points two to five times as fast as SciPy and ducc0 do.
Its plans are estimated, not measured: measured ones would differ from run to run, and results with them by rounding.
"""

import threading
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Points that are worked on at once, 1 MiB: smaller blocks cost more in calls than a larger cache takes in time.
_BLOCK_POINTS = 1 << 17
# FFTW's fast code needs rows that begin at multiples of so many bytes.
_ALIGNMENT = 16
# Plans with their scratch that a thread keeps.
_MOST_PLANS = 64
_plans = threading.local()


class RowTransform:
    """Transforms of `rows` rows of `size` points, not normalised, of arrays (rows, size) or of its own.

    source, target: scratch of this transform, aligned, zero at first. A transform leaves its source as it is.
    """

    def __init__(self, rows: int, size: int, *, forward: bool, source_stride: int, target_stride: int) -> None:
        import pyfftw

        self.source: NDArray[np.complex64] = pyfftw.zeros_aligned((rows, source_stride), np.complex64)[:, :size]
        self.target: NDArray[np.complex64] = pyfftw.zeros_aligned((rows, target_stride), np.complex64)[:, :size]
        self._plan: Any = pyfftw.FFTW(
            self.source,
            self.target,
            axes=(1,),
            direction="FFTW_FORWARD" if forward else "FFTW_BACKWARD",
            flags=("FFTW_ESTIMATE",),
            threads=1,
        )

    def __call__(self, source: NDArray[np.complex64], target: NDArray[np.complex64]) -> None:
        """target[r, k] = sum_n source[r, n] exp(-+ j 2 pi k n / size). Both as `transform_of` was told."""
        self._plan.update_arrays(source, target)
        self._plan.execute()

    def release(self) -> None:
        """Let go of the arrays that were transformed last."""
        self._plan.update_arrays(self.source, self.target)


def transform_of(
    rows: int,
    size: int,
    *,
    forward: bool,
    source: NDArray[np.complex64] | None = None,
    target: NDArray[np.complex64] | None = None,
    purpose: Hashable = None,
) -> RowTransform:
    """The transform of this thread for such rows. source, target: two-dimensional arrays laid out as those to come.

    None stands for the transform's own scratch, which is what arrays that are not `suitable` must be copied to or from.
    purpose: whose scratch it is; nobody else writes there.
    """
    strides = tuple(size if array is None else array.strides[0] // array.itemsize for array in (source, target))
    key = (rows, size, forward, *strides, purpose)
    plans: dict[Hashable, RowTransform] | None = getattr(_plans, "by_layout", None)
    if plans is None:
        plans = _plans.by_layout = {}
    if key not in plans:
        if len(plans) >= _MOST_PLANS:
            del plans[next(iter(plans))]
        plans[key] = RowTransform(rows, size, forward=forward, source_stride=strides[0], target_stride=strides[1])
    return plans[key]


def aligned_zeros(rows: int, size: int) -> NDArray[np.complex64]:
    """An array (rows, size) that is `suitable` where rows are of an even number of points."""
    import pyfftw

    zeros: NDArray[np.complex64] = pyfftw.zeros_aligned((rows, size), np.complex64)
    return zeros


def suitable(array: NDArray[np.complex64]) -> bool:
    """Whether FFTW's fast code takes an array (rows, size): complex64, rows contiguous and aligned."""
    import pyfftw

    row_bytes, item_bytes = array.strides
    if item_bytes != array.itemsize or row_bytes <= 0 or row_bytes % _ALIGNMENT:
        return False
    return bool(pyfftw.is_byte_aligned(array, n=_ALIGNMENT))


def row_blocks(rows: int, size: int) -> Iterator[slice]:
    """Slices of at most a cache's worth of rows of `size` points, alike in length, that cover all."""
    count = -(-rows * size // _BLOCK_POINTS)
    length = -(-rows // count) if rows else 1
    return (slice(start, min(start + length, rows)) for start in range(0, rows, length))
