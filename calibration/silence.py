"""A capture of silence, cut into the cells in which its noise is measured.

Silence has no cyclic prefix, so it is cut into blocks of `fft_size` samples without gaps, each transformed by the
unitary FFT with the rectangular window that the demodulator uses: the noise of a cell here has the variance of the
noise of a demodulated cell, leakage between subcarriers included. Blocks of white noise are independent.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from calibration.converter import converter_step
from calibration.spurs import Spur, remove_spurs
from hardware.radio.errors import CaptureError
from phy.numerology import Numerology

MIN_BLOCKS = 16
# Long enough for `diagnose` to see a drift or an I/Q imbalance of 5 %: 52 ms at 5 MS/s.
RECOMMENDED_BLOCKS = 1024
# 2047/2048, the largest code of a 12-bit converter, counts as saturated.
_SATURATED_PART = 0.999
_MOST_SATURATED = 1e-3


@dataclass(frozen=True, eq=False)
class Silence:
    """cells: complex64 (blocks, K), noise with DC and tones taken out; bins: int64 (K,) FFT bin of each column.

    Columns are in order of frequency. raw_bin_power: (fft_size,) mean |z|^2 per bin in FFT order with everything in
    it. dc, tones: what was taken out. step: of the receiver's converter, see `calibration.converter`. samples: what the
    cells were made of, complex64 (n,); None where they are not kept.
    """

    numerology: Numerology
    cells: NDArray[np.complex64]
    bins: NDArray[np.int64]
    raw_bin_power: NDArray[np.float64]
    dc: Spur
    tones: tuple[Spur, ...]
    step: float = 0.0
    samples: NDArray[np.complex64] | None = None

    @property
    def blocks(self) -> int:
        """Number of FFT blocks."""
        return int(self.cells.shape[0])

    @property
    def subcarriers(self) -> NDArray[np.int64]:
        """(K,) signed subcarrier numbers of `bins`, ascending."""
        half = self.numerology.fft_size // 2
        return np.asarray((self.bins + half) % self.numerology.fft_size - half)

    def within(self, bins: NDArray[np.int64]) -> "Silence":
        """The same silence in some of its bins, in their order."""
        return replace(self, cells=np.ascontiguousarray(self.cells[:, np.isin(self.bins, bins)]), bins=bins)

    @property
    def bin_power(self) -> NDArray[np.float64]:
        """(K,) mean of |z|^2 over the blocks: noise_var_complex of each subcarrier."""
        return mean_power(self.cells)


def mean_power(cells: NDArray[np.complex64]) -> NDArray[np.float64]:
    """Mean of |z|^2 over the first axis of cells (blocks, ...), summed in double precision."""
    return np.asarray(np.mean(cells.real**2 + cells.imag**2, axis=0, dtype=np.float64))


def mirrored_pairs(cells: NDArray[np.complex64], subcarriers: NDArray[np.int64]) -> NDArray[np.complex64]:
    """Cells (blocks, K) of unit power, by signed subcarrier (K,) ascending, as values that show an I/Q imbalance.

    An imbalance of the time samples, E[x^2] != 0, shows between mirrored subcarriers, as E[z_k z_-k] != 0. The values
    (z_k + z_-k)/sqrt(2) and (z_k - z_-k)/(j sqrt(2)) turn that into sum u^2 = 2 sum z_k z_-k and are as independent and
    as circular as the cells. Shape (2, blocks, pairs); subcarriers without a mirror image take no part.
    """
    upper = np.flatnonzero(subcarriers > 0)
    lower = np.minimum(np.searchsorted(subcarriers, -subcarriers[upper]), subcarriers.size - 1)
    paired = subcarriers[lower] == -subcarriers[upper]
    above, below = cells[:, upper[paired]], cells[:, lower[paired]]
    pairs = np.stack([above + below, (above - below) / np.complex64(1j)]) / np.float32(np.sqrt(2.0))
    return np.asarray(pairs, dtype=np.complex64)


def unit_power(cells: NDArray[np.complex64]) -> NDArray[np.complex64]:
    """Cells (blocks, K) with each subcarrier scaled to a mean power of 1."""
    return np.asarray(cells / np.sqrt(mean_power(cells)), dtype=np.complex64)


def observe_silence(
    samples: NDArray[np.complex64], numerology: Numerology, bins: NDArray[np.int64] | None = None
) -> Silence:
    """Cells of a silent capture, samples (n,); what remains after the last whole block is not used.

    bins: FFT bins in order of frequency in which the noise matters, for example those that sidelobes of the payload
    reach too; the used ones where none are given.

    Raises `CaptureError` for fewer than 16 blocks, NaN or infinite samples, a block of zeros (a lost buffer or a dead
    receiver), the same value throughout, noise that the converter's rounding hides, or more than 1 in 1000 samples at
    full scale.
    """
    checked = check_silence(samples, numerology)
    raw = _blocks(checked, numerology)
    rest, dc, tones = remove_spurs(checked, numerology)
    bins = numerology.used_bins if bins is None else bins
    return Silence(
        numerology=numerology,
        cells=_blocks(rest, numerology)[:, bins],
        bins=bins,
        raw_bin_power=mean_power(raw),
        dc=dc,
        tones=tones,
        step=converter_step(checked, rest),
        samples=rest,
    )


def check_silence(samples: NDArray[np.complex64], numerology: Numerology) -> NDArray[np.complex64]:
    """The whole blocks of `samples`, or `CaptureError` where no noise can be measured on them."""
    if samples.ndim != 1 or not np.iscomplexobj(samples):
        raise CaptureError(f"the silence is {samples.dtype} of shape {samples.shape}: expected complex64 of shape (n,)")
    size = numerology.fft_size
    if samples.size < MIN_BLOCKS * size:
        raise CaptureError(
            f"the silence has {samples.size} samples: expected at least {MIN_BLOCKS * size}, that is {MIN_BLOCKS} "
            f"blocks of {size}; capture for longer"
        )
    blocks = np.ascontiguousarray(samples[: samples.size // size * size], dtype=np.complex64).reshape(-1, size)
    parts = blocks.view(np.float32)
    if not np.all(np.isfinite(parts)):
        broken = int(np.count_nonzero(~np.isfinite(blocks)))
        raise CaptureError(
            f"the silence has {broken} NaN or infinite samples, the first at index "
            f"{int(np.argmax(~np.isfinite(blocks.reshape(-1))))}: the receiver or its driver is broken"
        )
    empty = np.flatnonzero(~parts.any(axis=1))
    if empty.size == len(blocks):
        raise CaptureError("the silence is all zero: is the receiver on, and is its gain high enough to hear noise?")
    if empty.size:
        raise CaptureError(
            f"the silence has {empty.size} blocks of {size} zeros, the first at index {int(empty[0]) * size}: samples "
            "were lost; capture again"
        )
    if np.all(blocks == blocks[0, 0]):
        raise CaptureError("the silence is one value throughout: the receiver's noise is below its converter's step")
    saturated = int(np.count_nonzero((np.abs(parts) >= _SATURATED_PART).reshape(-1, 2).any(axis=1)))
    if saturated > _MOST_SATURATED * blocks.size:
        raise CaptureError(
            f"the silence is saturated: {saturated} of {blocks.size} samples at full scale, at most "
            f"{_MOST_SATURATED:g} of them may be; lower rx_gain_db, or find who is transmitting"
        )
    return blocks.reshape(-1)


def _blocks(samples: NDArray[np.complex64], numerology: Numerology) -> NDArray[np.complex64]:
    cells = scipy.fft.fft(samples.reshape(-1, numerology.fft_size), axis=-1, norm="ortho")
    return np.asarray(cells, dtype=np.complex64)
