"""What one silence says to a pool of silences: power by bin, and how unequal I and Q are."""

from dataclasses import dataclass, replace

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from calibration.errors import MeasurementError
from calibration.silence import Silence, mean_power, mirrored_pairs, unit_power
from calibration.spurs import loud_bins

PARTS = 4
"""Of a subcarrier, that are looked at for themselves: as many as a payload's symbols tell apart."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """What one silence says to a pool. bins: int64 (K,). powers: float64 (K,), mean |z|^2 over the `blocks` blocks.

    steady: bool (K,), False where more than noise was found. pseudo: sum of u^2 over `pairs` values of unit power that
    show an I/Q imbalance (`mirrored_pairs`). step: of the receiver's converter (`calibration.converter`).
    windowed: the powers through a window, see `windowed_power`; None where they hold no leakage. fine: (K, 5), of parts
    of each subcarrier, see `fine_power`; None where they are not known.
    """

    bins: NDArray[np.int64]
    blocks: int
    powers: NDArray[np.float64]
    steady: NDArray[np.bool_]
    pseudo: complex
    pairs: int
    step: float = 0.0
    windowed: NDArray[np.float64] | None = None
    fine: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        """Refuse what no silence has."""
        if self.blocks < 1 or not (self.bins.shape == self.powers.shape == self.steady.shape) or self.bins.ndim != 1:
            raise MeasurementError(f"a spectrum of {self.blocks} blocks with powers {self.powers.shape}: expected (K,)")
        if not (np.all(np.isfinite(self.powers)) and np.all(self.powers > 0)):
            raise MeasurementError("a spectrum with a power that is not above 0: the receiver is not on")

    def within(self, bins: NDArray[np.int64]) -> "Spectrum":
        """The same silence in some of its bins. I and Q are taken to be as unequal there as everywhere."""
        inside = np.isin(self.bins, bins)
        found = replace(self, bins=self.bins[inside], powers=self.powers[inside], steady=self.steady[inside])
        windowed, fine = (None if part is None else part[inside] for part in (self.windowed, self.fine))
        return replace(found, windowed=windowed, fine=fine)

    @property
    def level(self) -> float:
        """Mean power of the bins that hold noise alone."""
        return float(self.powers[self.steady].mean()) if self.steady.any() else float(self.powers.mean())


def spectrum_of(silence: Silence) -> Spectrum:
    """The spectrum of a silence, over the bins in which it was observed."""
    powers = silence.bin_power
    loud, _ = loud_bins(powers, silence.blocks)
    steady = ~(loud | np.isin(silence.bins, [tone.bin for tone in silence.tones]))
    pairs = mirrored_pairs(unit_power(silence.cells[:, steady]), silence.subcarriers[steady]).astype(np.complex128)
    pseudo = complex(np.sum(pairs * pairs))
    return Spectrum(
        bins=silence.bins,
        blocks=silence.blocks,
        powers=powers,
        steady=steady,
        pseudo=pseudo,
        pairs=pairs.size,
        step=silence.step,
        windowed=windowed_power(silence),
        fine=fine_power(silence),
    )


def windowed_power(silence: Silence) -> NDArray[np.float64]:
    """Mean |z|^2 (K,) as it is through Hann's window; without it where a neighbour was not observed.

    A block that is just cut out has sidelobes: of what is four subcarriers away 2.5 % arrive, so that a notch of 40 dB,
    eight subcarriers wide, looks like one of 16 dB. Through the window it is 40 dB deep. In frequency that window is
    z[k] - (z[k - 1] + z[k + 1])/2, with 1.5 times the power of white noise: no further transform is needed. One cell of
    each block is again one circular Gaussian value.
    """
    places, cells = silence.subcarriers, silence.cells
    inner = np.flatnonzero((np.diff(places)[:-1] == 1) & (np.diff(places)[1:] == 1)) + 1
    windowed = cells[:, inner] - np.float32(0.5) * (cells[:, inner - 1] + cells[:, inner + 1])
    powers = silence.bin_power
    powers[inner] = mean_power(windowed) / 1.5
    return powers


def fine_power(silence: Silence) -> NDArray[np.float64] | None:
    """Mean |z|^2 (K, 5) at five frequencies of each subcarrier, from edge to edge, through Hann's window over `PARTS`
    blocks at once: what is narrower than a subcarrier shows, from a quarter of the values. None without samples enough.
    """
    size = PARTS * silence.numerology.fft_size
    if silence.samples is None or silence.samples.size < size:
        return None
    blocks = silence.samples[: silence.samples.size // size * size].reshape(-1, size)
    window = np.sqrt(2.0 / 3.0) * (1.0 - np.cos(2.0 * np.pi * np.arange(size) / size))
    powers = mean_power(scipy.fft.fft(blocks * window.astype(np.float32), axis=1, norm="ortho"))
    offsets = np.arange(-(PARTS // 2), PARTS // 2 + 1)
    return np.asarray(powers[(PARTS * silence.subcarriers[:, None] + offsets) % size])
