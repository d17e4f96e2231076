"""A band of a signal at another rate: what a receiver hears of a sender whose sample rate or carrier differs.

    y[m] = sum_n x[n] g(t_m - n),   t_m = (m - delay) ratio,   g(t) = 2 w sinc(2 w t) exp(j 2 pi c t) kaiser(t / reach)

with c the middle and 2 w the width of the band in cycles per sample of x. Frequencies in the band are passed, others
are attenuated by more than 70 dB beyond a transition of about 2.5 / reach cycles per sample around its edges, so
nothing outside of it aliases into y. The work is 2 reach multiplications per value.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import i0

from phy.errors import SignalError
from phy.impairments import rotate
from phy.interpolation import Shifted

_KAISER_BETA = 7.5
# Values of the kernel between which it is interpolated, for each sample of x.
_STEPS = 512
# Zero crossings of the kernel on each side.
_CROSSINGS = 24
_BLOCK = 2048


@dataclass(frozen=True)
class Band:
    """From `low` to `high` in cycles per sample of the signal, within -0.5 and 0.5."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse what is no band."""
        if not -0.5 <= self.low < self.high <= 0.5:
            raise SignalError("band", (self.low, self.high), "-0.5 <= low < high <= 0.5", "The bands do not overlap.")

    @property
    def middle(self) -> float:
        """Between its edges."""
        return 0.5 * (self.low + self.high)

    @property
    def reach(self) -> int:
        """Samples of the signal to each side that a value depends on."""
        return math.ceil(_CROSSINGS / (self.high - self.low))


def take_band(
    samples: NDArray[np.complex64], start_sample: int, band: Band, ratio: float, delay: float = 0.0
) -> Shifted:
    """Values of samples (n,), of which the first has the index `start_sample`, at the receiver's count.

    ratio: samples of the sender per sample of the receiver; both counts are zero at the same instant. delay: in samples
    of the receiver. The result's first value has the receiver's index `offset`. Bursts that follow each other add up to
    what one long burst gives: values of a burst begin `band.reach` samples before it and end as much after it.
    """
    if not (math.isfinite(ratio) and ratio > 0.0 and math.isfinite(delay) and delay >= 0.0):
        raise SignalError("ratio and delay", (ratio, delay), "finite, the ratio above 0", "Check both rates.")
    reach = band.reach
    first = math.ceil((start_sample - reach) / ratio + delay)
    last = math.floor((start_sample + samples.size - 1 + reach) / ratio + delay)
    # Relative to the start, so that large counts do not eat the fraction's digits.
    origin = (first - delay) * ratio - start_sample
    positions = origin + ratio * np.arange(last - first + 1)
    values = _filtered(rotate(samples, -band.middle, start_sample), positions, band)
    # The middle of the band goes back to where it was: exp(j 2 pi c t_m).
    phase_rad = -2.0 * math.pi * math.fmod(band.middle * ratio * delay, 1.0)
    return Shifted(rotate(values, band.middle * ratio, first, phase_rad), first)


def _filtered(samples: NDArray[np.complex64], positions: NDArray[np.float64], band: Band) -> NDArray[np.complex64]:
    """The low-pass of the band's width at `positions`, which are relative to the first sample."""
    reach = band.reach
    padded = np.zeros(samples.size + 4 * reach, np.complex64)
    padded[2 * reach : 2 * reach + samples.size] = samples
    table = _kernel(band.high - band.low, reach)
    around = np.arange(2 * reach)
    out = np.empty(positions.size, np.complex64)
    for begin in range(0, positions.size, _BLOCK):
        part = positions[begin : begin + _BLOCK]
        # The first of the samples within reach, and how far before the instant it lies, in steps of the table.
        nearest = np.floor(part).astype(np.int64) - reach + 1
        steps = ((part - nearest)[:, None] - around + reach) * _STEPS
        whole = steps.astype(np.int64)
        fraction = (steps - whole).astype(np.float32)
        weights = table[whole] + (table[whole + 1] - table[whole]) * fraction
        window = padded[nearest[:, None] + around + 2 * reach]
        out[begin : begin + _BLOCK] = np.einsum("mk,mk->m", window, weights)
    return out


@lru_cache(maxsize=32)
def _kernel(width: float, reach: int) -> NDArray[np.float32]:
    """width sinc(width t) kaiser(t / reach) at t = -reach … reach in steps, and one value more."""
    t = np.arange(-reach * _STEPS, reach * _STEPS + 2) / _STEPS
    inside = np.maximum(0.0, 1.0 - (t / reach) ** 2)
    window = i0(_KAISER_BETA * np.sqrt(inside)) / i0(_KAISER_BETA)
    return np.asarray(width * np.sinc(width * t) * window * (np.abs(t) <= reach), np.float32)
