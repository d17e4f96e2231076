"""The OFDM numerology: four numbers, and every size that follows from them.

Subcarriers are named in two ways. A *bin* is an index in FFT order (0 is DC, fft_size - 1 is frequency -1). The place
in a row of cells counts the used subcarriers from the most negative to the most positive frequency.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from phy.errors import SignalError

_T = TypeVar("_T", bound=np.generic)


@dataclass(frozen=True)
class Numerology:
    """Sizes of an OFDM symbol; equal numerologies compare and hash equal. Arrays derived from it are read-only."""

    fft_size: int = 256
    cp_samples: int = 64
    data_subcarriers: int = 192
    sample_rate_hz: float = 5e6

    def __post_init__(self) -> None:
        _require_integer("fft_size", self.fft_size, 8, 2**20, "Use a power of two such as 256.")
        _require_integer("cp_samples", self.cp_samples, 0, self.fft_size - 1, "Use a quarter of fft_size or less.")
        _require_integer(
            "data_subcarriers",
            self.data_subcarriers,
            2,
            self.fft_size - 1,
            "DC stays empty; leave room for guards too.",
        )
        if not (math.isfinite(self.sample_rate_hz) and self.sample_rate_hz > 0.0):
            raise SignalError("sample_rate_hz", self.sample_rate_hz, "a number > 0", "5e6 is 5 MS/s.")

    @property
    def symbol_samples(self) -> int:
        """Samples of one symbol with its cyclic prefix."""
        return self.fft_size + self.cp_samples

    @property
    def subcarrier_spacing_hz(self) -> float:
        """Distance of neighbouring subcarriers."""
        return self.sample_rate_hz / self.fft_size

    @property
    def coordinates_per_symbol(self) -> int:
        """Real coordinates that one symbol carries, two per cell."""
        return 2 * self.data_subcarriers

    @property
    def dc_bin(self) -> int:
        """The bin where a direct-conversion radio leaks its carrier."""
        return 0

    @property
    def negative_subcarriers(self) -> int:
        """Used subcarriers below DC, and as many above it, or one fewer where the number is odd."""
        return self.data_subcarriers - self.data_subcarriers // 2

    @cached_property
    def used_subcarriers(self) -> NDArray[np.int64]:
        """Signed subcarrier numbers k of the used bins, ascending, without 0. Shape (data_subcarriers,)."""
        below = self.negative_subcarriers
        above = self.data_subcarriers - below
        return _read_only(np.concatenate([np.arange(-below, 0), np.arange(1, above + 1)]))

    @cached_property
    def used_bins(self) -> NDArray[np.int64]:
        """FFT-order index of every used subcarrier, from the most negative frequency to the most positive."""
        return _read_only(self.used_subcarriers % self.fft_size)

    @cached_property
    def null_bins(self) -> NDArray[np.int64]:
        """FFT-order bins where nobody sends: DC and the guards, in FFT order (so DC is first)."""
        return _read_only(np.setdiff1d(np.arange(self.fft_size), self.used_bins))

    @cached_property
    def guard_bins(self) -> NDArray[np.int64]:
        """`null_bins` without DC; empty where all other bins are used."""
        return _read_only(self.null_bins[self.null_bins != self.dc_bin])

    @cached_property
    def used_frequencies(self) -> NDArray[np.float64]:
        """Frequency of every used subcarrier in cycles per sample, within [-1/2, 1/2). Shape (data_subcarriers,)."""
        return _read_only(self.used_subcarriers / self.fft_size)

    def symbols_for(self, cells: int) -> int:
        """Symbols needed to carry this many cells."""
        return -(-cells // self.data_subcarriers)


def _require_integer(name: str, value: object, low: int, high: int, advice: str) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not low <= value <= high:
        raise SignalError(name, value, f"an integer from {low} to {high}", advice)


def _read_only(array: NDArray[_T]) -> NDArray[_T]:
    array.setflags(write=False)
    return array
