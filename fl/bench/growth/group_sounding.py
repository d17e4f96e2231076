"""Soundings of many transmitters at the same time, told apart by delay and by sign.

A group of C S members sends the same symbol S times. Member m = c + C w sends it later by c D samples within the symbol
(a phase ramp), with the signs of row w of a Hadamard matrix,

    X_m[s, k] = W[w, s] P[k] exp(-j 2 pi k c D / N),    D = N // C.

With W taken off and summed, what arrives of row w is sum_c H_c[k] exp(-j 2 pi k c D / N): channels whose responses, of
at most `taps` <= D samples, stand side by side, and least squares over all of them tells them apart. Every member sends
in all symbols at its full power, so an estimate has the noise that it has where each sends alone, for the time of one
sounding in place of C S. The price: all must stand still for S symbols, as a turning phase mixes the rows, and one
member's error is made of all others' power.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard

from phy.errors import SignalError
from phy.numerology import Numerology
from phy.preamble import pilot_cells


@dataclass(frozen=True)
class GroupSounding:
    """symbols: S, a power of two. delays: C. taps: samples of the longest response, timing errors included."""

    numerology: Numerology
    symbols: int = 32
    delays: int = 3
    taps: int = 64

    def __post_init__(self) -> None:
        if self.symbols < 1 or self.symbols & (self.symbols - 1):
            raise SignalError("symbols", self.symbols, "a power of two", "Use 32.")
        if not 1 <= self.delays * self.taps <= self.numerology.data_subcarriers:
            raise SignalError(
                "delays x taps",
                self.delays * self.taps,
                f"at most {self.numerology.data_subcarriers}, the used subcarriers",
                "Use fewer delays, or shorter responses.",
            )
        if self.taps > self.numerology.fft_size // self.delays:
            raise SignalError("taps", self.taps, f"at most {self.numerology.fft_size // self.delays}", "Use fewer.")

    @property
    def members(self) -> int:
        """Transmitters that sound at the same time."""
        return self.delays * self.symbols

    @cached_property
    def _signs(self) -> NDArray[np.float32]:
        return np.asarray(hadamard(self.symbols), np.float32)

    def cells(self, member: int) -> NDArray[np.complex64]:
        """What a member sends (S, U)."""
        row, delay = divmod(member, self.delays)
        ramp = np.exp(-2j * np.pi * self.numerology.used_frequencies * delay * self._spacing)
        return np.asarray(self._signs[row, :, None] * (pilot_cells(self.numerology) * ramp), np.complex64)

    @property
    def _spacing(self) -> int:
        return self.numerology.fft_size // self.delays

    @property
    def _energy(self) -> float:
        """sum_s |P|^2, the same at every subcarrier."""
        return self.symbols * float(np.abs(pilot_cells(self.numerology)[0])) ** 2

    @cached_property
    def _dictionary(self) -> NDArray[np.complex128]:
        """Responses at the used subcarriers of a tap at every place that a member's may have (U, C L)."""
        places = np.add.outer(np.arange(self.delays) * self._spacing, np.arange(self.taps)).ravel()
        return np.asarray(np.exp(-2j * np.pi * np.outer(self.numerology.used_frequencies, places)))

    @cached_property
    def _inverse(self) -> NDArray[np.complex64]:
        return np.linalg.pinv(self._dictionary).astype(np.complex64)

    def estimate(self, received: NDArray[np.complex64]) -> NDArray[np.complex64]:
        """Taps (members, L) of all members from received cells (S, U)."""
        matched = (self._signs @ received) * (pilot_cells(self.numerology).conj() / np.float32(self._energy))
        taps = matched @ self._inverse.T
        # Rows by row w and within them by delay c: the order of members.
        return np.ascontiguousarray(taps.reshape(self.members, self.taps))

    def responses(self, taps: NDArray[np.complex64]) -> NDArray[np.complex64]:
        """H (members, U) of taps (members, L)."""
        return np.asarray(taps @ self._dictionary[:, : self.taps].T, np.complex64)

    def tap_var(self, noise_var_complex: float) -> NDArray[np.float64]:
        """Variance of the error of each tap (C, L) where nothing but noise disturbs it."""
        power = np.sum(np.abs(np.linalg.pinv(self._dictionary)) ** 2, axis=1)
        return np.asarray(noise_var_complex / self._energy * power.reshape(self.delays, self.taps))
