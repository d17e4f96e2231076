"""Values of a band-limited signal between its samples: the one filter that delays and clock offsets share.

A Kaiser-windowed sinc of `KERNEL_TAPS` taps. For every delay its response differs from the ideal exp(-j 2 pi f mu) by
less than -69 dB where |f| <= 0.4 cycles/sample, i.e. within 80 % of the band; closer to the edge the error grows to
order one. A signal with energy there must be filtered first.
"""

import itertools
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
# Order of the polynomial in mu per tap; its error, about 2 J_7(pi/2) = 7e-5, is below that of the kernel itself.
_FARROW_ORDER = 6
_BLOCK = 4096


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
def _farrow_matrix() -> NDArray[np.float32]:
    """Polynomial coefficients of every tap, shape (KERNEL_TAPS, order + 1).

    A value at i + mu is sum_j x[i - KERNEL_LEAD + j] kernel(j - KERNEL_LEAD - mu), and kernel(...) is replaced by
    sum_p C[j, p] (2 mu - 1)^p, which agrees with it at the Chebyshev nodes.
    """
    order = _FARROW_ORDER
    nodes = np.cos(np.pi * (np.arange(order + 1) + 0.5) / (order + 1))
    offsets = np.arange(KERNEL_TAPS)[:, None] - KERNEL_LEAD - (nodes + 1.0) / 2.0
    powers = np.vander(nodes, order + 1, increasing=True)
    return np.linalg.solve(powers, _kernel(offsets).T).T.astype(np.float32)


def _powers(values: NDArray[np.float32]) -> NDArray[np.float32]:
    # numpy.vander works along the wrong axis for single-precision throughput.
    out = np.ones((_FARROW_ORDER + 1, values.size), dtype=np.float32)
    for order in range(1, _FARROW_ORDER + 1):
        np.multiply(out[order - 1], values, out=out[order])
    return out


def interpolate(samples: NDArray[np.complex64], positions: NDArray[np.float64]) -> NDArray[np.complex64]:
    """Values x(t) at real `positions` t (shape (m,)) of samples (..., n); zero outside the samples. Shape (..., m).

    Fast for positions that advance by nearly one: the work is one pass over each run of consecutive sample indices,
    with KERNEL_TAPS multiplications per value.
    """
    count = samples.shape[-1]
    whole = np.floor(positions).astype(np.int64)
    centred = (2.0 * (positions - whole) - 1.0).astype(np.float32)
    # Positions beyond the reach of the kernel point into the zeros, which are wide enough to hold it.
    first = np.clip(whole - KERNEL_LEAD, -KERNEL_TAPS, count) + KERNEL_TAPS
    padded = np.zeros((*samples.shape[:-1], 2, count + 2 * KERNEL_TAPS), dtype=np.float32)
    padded[..., 0, KERNEL_TAPS : KERNEL_TAPS + count] = samples.real
    padded[..., 1, KERNEL_TAPS : KERNEL_TAPS + count] = samples.imag
    out = np.empty((*samples.shape[:-1], positions.size), dtype=np.complex64)
    breaks = np.flatnonzero(np.diff(first) != 1) + 1
    edges = np.unique(np.concatenate([breaks, np.arange(0, positions.size, _BLOCK), [positions.size]]))
    for begin, end in itertools.pairwise(edges.tolist()):
        weights = _farrow_matrix() @ _powers(centred[begin:end])
        origin = int(first[begin])
        value = padded[..., origin : origin + end - begin] * weights[0]
        for tap in range(1, KERNEL_TAPS):
            value += padded[..., origin + tap : origin + tap + end - begin] * weights[tap]
        out[..., begin:end].real = value[..., 0, :]
        out[..., begin:end].imag = value[..., 1, :]
    return out
