"""Values of a band-limited signal between its samples: the one filter that delays and clock offsets share.

A Kaiser-windowed sinc of `KERNEL_TAPS` taps. For every delay its response differs from the ideal exp(-j 2 pi f mu) by
less than -69 dB where |f| <= 0.4 cycles/sample, i.e. within 80 % of the band; closer to the edge the error grows to
order one. A signal with energy there must be filtered first.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import i0

KERNEL_TAPS = 24
# Samples before the instant of interest that the kernel reaches to, hence how much earlier a filtered signal begins.
KERNEL_LEAD = KERNEL_TAPS // 2 - 1
# Wider windows leak less but pass less of the band; at 24 taps the worse of the two errors is smallest here.
_KAISER_BETA = 7.5
_PHASES = 2048
# For the derivative: its error, about pi^3/6 h^2, is that of a millionth.
_STEP = 1e-3


class Shifted(NamedTuple):
    """Samples that do not begin where their input began.

    `samples[..., k]` lies at index (index of the input's first sample) + `offset` + k. `offset` is negative when the
    signal's first samples were spread to earlier ones.
    """

    samples: NDArray[np.complex64]
    offset: int


def delay_taps(fraction: float) -> NDArray[np.float32]:
    """FIR that delays by `fraction` in [0, 1) samples, shape (KERNEL_TAPS,).

    h[j] = sinc(t) w(t), t = j - KERNEL_LEAD - fraction. Tap `KERNEL_LEAD` is the one without delay, so the output of a
    full convolution begins `KERNEL_LEAD` samples earlier than its input.
    """
    return _kernel(np.arange(KERNEL_TAPS) - KERNEL_LEAD - fraction).astype(np.float32)


def _kernel(t: NDArray[np.float64]) -> NDArray[np.float64]:
    inside = np.maximum(0.0, 1.0 - (t / (KERNEL_TAPS // 2)) ** 2)
    return np.asarray(np.sinc(t) * i0(_KAISER_BETA * np.sqrt(inside)) / i0(_KAISER_BETA))


@lru_cache(maxsize=1)
def _table() -> NDArray[np.float32]:
    """The kernel at fractions 0, 1/PHASES ... 1 and its derivative's middle, (PHASES + 1, KERNEL_TAPS + SLOPE_TAPS)."""
    from phy.compute.vector_filter import SLOPE_TAPS

    offsets = np.arange(KERNEL_TAPS) - KERNEL_LEAD - np.arange(_PHASES + 1)[:, None] / _PHASES
    slopes = (_kernel(offsets - _STEP) - _kernel(offsets + _STEP)) / (2.0 * _STEP)
    left_out = (KERNEL_TAPS - SLOPE_TAPS) // 2
    return np.asarray(np.hstack([_kernel(offsets), slopes[:, left_out : left_out + SLOPE_TAPS]]), np.float32)


def interpolate(
    samples: NDArray[np.complex64],
    first: float,
    delta: float,
    count: int,
    out: NDArray[np.complex64] | None = None,
) -> NDArray[np.complex64]:
    """Values x(t) of samples (..., n) at t = first + k (1 + delta), k = 0 ... count - 1; zero outside. (..., count).

    out: complex64 and contiguous, to be filled and returned.

    The fraction of t moves slowly: over blocks of 64 samples the filter is replaced by its tangent at the nearest of
    `_PHASES` tabulated ones, where clocks are less than 100 ppm apart. What that leaves is below what the kernel itself
    does; 0.8 ns a sample, and ten times as much beyond 100 ppm.
    """
    from phy.compute.resampling import resample

    length = samples.shape[-1]
    if out is None:
        out = np.empty((*samples.shape[:-1], count), np.complex64)
    rows = np.ascontiguousarray(samples, np.complex64).reshape(-1, length)
    for row, values in zip(rows, out.reshape(-1, count), strict=True):
        resample(row.view(np.float32), _table(), first - KERNEL_LEAD, delta, values.view(np.float32))
    return out
