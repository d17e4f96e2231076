"""Finding a preamble in a capture: whether it is there, where it begins, and the frequency offset.

Search. A window of two halves of N samples is compared with the known half a at every lag. With x_h the h-th half of
the window freed of its mean (a has no DC component, so a receiver's DC offset has no influence),

    rho = sum_h |<a, x_h>|^2 / (||a||^2 sum_h ||x_h||^2),      0 <= rho <= 1.

Threshold. For white circular Gaussian noise of any variance, rho is the share of a random vector of 2 (N - 1) complex
dimensions that falls into a plane: rho ~ Beta(2, b), b = 2 (N - 1) - 2, so P(rho > t) = (1 - t)^b (1 + b t). A capture
with m lags gives a false alarm with probability at most m P(rho > t) (union bound); t solves m P(rho > t) = p. It grows
with the logarithm of the length: 0.044 for N = 256, 425 lags and p = 1e-6, 0.059 for a million lags. At a
signal-to-noise ratio g per sample rho is about g / (1 + g): 0.5 at 0 dB, and 0.3 if the preamble lies half-way between
two samples and is a quarter of a subcarrier off in frequency.

Frequency. Both halves are equal but for the turn exp(j 2 pi f N): f = angle(sum_k conj(X_1[k]) X_2[k]) / (2 pi N) over
the used bins, which holds for any channel shorter than the prefix, and within |f| < 1 / (2 N).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv

from phy.compute.filters import LongFilter
from phy.compute.transforms import transform_of
from phy.errors import SignalError
from phy.estimation import strongest_delay
from phy.impairments import rotate
from phy.numerology import Numerology
from phy.preamble import HALVES, preamble_cells, preamble_half, preamble_length, preamble_samples

DEFAULT_FALSE_ALARM_PROBABILITY = 1e-6
# Without it, rounding errors would be taken for a signal in windows that hold next to nothing, or nothing but DC.
_ENERGY_FLOOR = 1e-8


@dataclass(frozen=True)
class Detection:
    """A preamble that was found.

    `start_sample` is the index in the capture of the frame's first sample, as its strongest path shows it; `fine_start`
    is the same without rounding. Other paths may be earlier: begin FFT windows inside the prefix.
    """

    start_sample: int
    fine_start: float
    cfo_cycles_per_sample: float
    metric: float


def detect(
    samples: NDArray[np.complex64],
    numerology: Numerology,
    false_alarm_probability: float = DEFAULT_FALSE_ALARM_PROBABILITY,
) -> Detection | None:
    """The preamble in a capture (n,), or None. The best one, if there are several.

    `false_alarm_probability` bounds the chance of a detection in a capture of white noise, whatever its length and
    level. The whole preamble must lie in the capture.
    """
    if samples.ndim != 1:
        raise SignalError("samples' shape", samples.shape, "one dimension", "Search one capture at a time.")
    from phy.compute.kernels import largest_part

    if not math.isfinite(largest_part(np.ascontiguousarray(samples))):
        raise SignalError("samples", "not finite", "finite numbers", "Check the radio that delivered them.")
    metric = detection_metric(samples, numerology)
    coarse = int(np.argmax(metric))
    if metric[coarse] <= detection_threshold(metric.size, numerology, false_alarm_probability):
        return None
    cfo, delay = _refine(samples, coarse, numerology)
    fine_start = coarse + delay
    return Detection(max(0, round(fine_start)), fine_start, cfo, float(metric[coarse]))


def detection_metric(samples: NDArray[np.complex64], numerology: Numerology) -> NDArray[np.float64]:
    """rho for every possible start of a frame, shape (..., n - preamble_length + 1); zero where there is no signal."""
    needed = preamble_length(numerology)
    if samples.shape[-1] < needed:
        raise SignalError("capture length", samples.shape[-1], f"{needed} samples or more", "Receive a longer capture.")
    from phy.compute.kernels import preamble_metric

    size = numerology.fft_size
    body = np.ascontiguousarray(samples[..., numerology.cp_samples :])
    matched, norm = _matched_filter(numerology)
    lags = body.shape[-1] - HALVES * size + 1
    metric = np.empty((*samples.shape[:-1], lags))
    for row, out in zip(body.reshape(-1, body.shape[-1]), metric.reshape(-1, lags), strict=True):
        products = matched(row)[size - 1 : row.size]
        preamble_metric(row, products, size, norm, _ENERGY_FLOOR, out)
    return metric


@lru_cache(maxsize=32)
def _matched_filter(numerology: Numerology) -> tuple[LongFilter, float]:
    """<a, x> at every lag, and ||a||^2."""
    half = preamble_half(numerology)
    return LongFilter(np.ascontiguousarray(half[::-1].conj())), float(np.sum(np.abs(half.astype(np.complex128)) ** 2))


@lru_cache(maxsize=32)
def detection_threshold(lags: int, numerology: Numerology, false_alarm_probability: float) -> float:
    """t with lags * P(rho > t) = `false_alarm_probability` in white noise; see the module's text."""
    if not 0.0 < false_alarm_probability < 1.0:
        raise SignalError("false_alarm_probability", false_alarm_probability, "between 0 and 1", "1e-6 is usual.")
    dimensions = HALVES * (numerology.fft_size - 1)
    return float(betainccinv(HALVES, dimensions - HALVES, false_alarm_probability / lags))


def cfo_bound(snr: float, numerology: Numerology) -> float:
    """Cramer-Rao bound on the rms error of f in cycles/sample, from the whole preamble p known and a gain unknown.

    var(f) >= 1 / (2 (2 pi)^2 sum_n g_n (n - n0)^2), g_n = snr |p[n]|^2 / mean |p|^2, n0 the centroid; for constant |p|
    and L samples this is the familiar 6 / ((2 pi)^2 snr L^3). `snr` is the power ratio per sample.
    """
    power = np.abs(preamble_samples(numerology).astype(np.complex128)) ** 2
    weights = snr * power / power.mean()
    index = np.arange(power.size)
    centre = np.sum(weights * index) / np.sum(weights)
    return float(1.0 / np.sqrt(2.0 * (2.0 * np.pi) ** 2 * np.sum(weights * (index - centre) ** 2)))


def _refine(samples: NDArray[np.complex64], coarse: int, numerology: Numerology) -> tuple[float, float]:
    """Frequency offset, and delay of the strongest path against `coarse`."""
    size = numerology.fft_size
    # Inside the prefix, so that paths before and after the strongest one see equal halves as well.
    early = numerology.cp_samples // 4
    begin = coarse + numerology.cp_samples - early
    window = samples[begin : begin + HALVES * size]
    halves = _used_cells(window, numerology)
    cfo = float(np.angle(np.vdot(halves[0], halves[1]))) / (2.0 * np.pi * size)
    # A chirp takes a frequency offset for a delay, so the time is read after the frequency was corrected.
    derotated = _used_cells(rotate(window, -cfo, 0), numerology)
    channel = derotated.sum(axis=0) * _expected(numerology, early)
    return cfo, float(strongest_delay(channel, numerology))


@lru_cache(maxsize=32)
def _expected(numerology: Numerology, early_samples: int) -> NDArray[np.complex64]:
    """What makes a channel (U,) of the preamble's cells in a window that begins early."""
    advance = np.exp(2j * np.pi * numerology.used_frequencies * early_samples)
    return np.asarray(preamble_cells(numerology).conj() * advance, np.complex64)


def _used_cells(window: NDArray[np.complex64], numerology: Numerology) -> NDArray[np.complex64]:
    """Cells (2, U) of both halves; only their ratios matter."""
    transform = transform_of(HALVES, numerology.fft_size, forward=True)
    transform.source[:] = window.reshape(HALVES, numerology.fft_size)
    transform(transform.source, transform.target)
    return np.asarray(transform.target[:, numerology.used_bins])
