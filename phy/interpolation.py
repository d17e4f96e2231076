"""Values of a band-limited signal between its samples: the one filter that delays and clock offsets share.

A Kaiser-windowed sinc of `KERNEL_TAPS` taps. For every delay its response differs from the ideal exp(-j 2 pi f mu) by
less than -69 dB where |f| <= 0.4 cycles/sample, i.e. within 80 % of the band; closer to the edge the error grows to
order one. A signal with energy there must be filtered first.
"""

import math
import threading
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
_PHASES = 1024
# For the derivative: its error, about pi^3/6 h^2, is that of a millionth.
_STEP = 1e-3
_DRIFT = 2.5e-3
_LARGEST_BLOCK = 256
_scratch = threading.local()


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
    """The kernel at fractions 0, 1/PHASES ... 1 and its derivative, shape (PHASES + 1, 2, KERNEL_TAPS)."""
    offsets = np.arange(KERNEL_TAPS) - KERNEL_LEAD - np.arange(_PHASES + 1)[:, None] / _PHASES
    slopes = (_kernel(offsets - _STEP) - _kernel(offsets + _STEP)) / (2.0 * _STEP)
    return np.asarray(np.stack([_kernel(offsets), slopes], axis=1), np.float32)


def interpolate(
    samples: NDArray[np.complex64],
    first: float,
    delta: float,
    count: int,
    out: NDArray[np.complex64] | None = None,
) -> NDArray[np.complex64]:
    """Values x(t) of samples (..., n) at t = first + k (1 + delta), k = 0 ... count - 1; zero outside. (..., count).

    out: complex64 and contiguous, to be filled and returned.

    The fraction of t moves slowly: over blocks in which it moves by `_DRIFT` at most, the filter is replaced by its
    tangent at the nearest of `_PHASES` tabulated ones. That is 100 dB below the signal, far less than what the kernel
    itself leaves; 2 ns a sample for a crystal that is 20 ppm off, more beyond 300 ppm.
    """
    from phy.compute.resampling import resample

    steady = int(_DRIFT / max(abs(delta), 1e-9))
    block = min(_LARGEST_BLOCK, steady // 8 * 8 or max(1, steady))
    # All positions, and a block beyond them, see zeros where there are no samples.
    lead = KERNEL_LEAD + max(0, math.ceil(-first)) + 1
    end = math.ceil(first + count * (1.0 + max(delta, 0.0))) + KERNEL_TAPS + block
    length = samples.shape[-1]
    padded = _kept(lead + max(end, length))
    padded[:lead], padded[lead + length :] = 0.0, 0.0
    if out is None:
        out = np.empty((*samples.shape[:-1], count), np.complex64)
    for row, values in zip(samples.reshape(-1, length), out.reshape(-1, count), strict=True):
        padded[lead : lead + length] = row
        resample(padded.view(np.float32), _table(), first + lead - KERNEL_LEAD, delta, block, values.view(np.float32))
    return out


def _kept(count: int) -> NDArray[np.complex64]:
    """This thread's array for `count` samples: fresh memory of a burst's size costs more than the filter."""
    kept: NDArray[np.complex64] | None = getattr(_scratch, "samples", None)
    if kept is None or kept.size < count:
        kept = _scratch.samples = np.empty(count, np.complex64)
    return kept[:count]
