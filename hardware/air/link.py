"""The path from one antenna to another: block fading on one or several taps, and a delay."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hardware.radio.errors import HardwareError
from phy.fading import rayleigh_gains
from phy.units import db_to_power_ratio


class Fading(Protocol):
    """Where a link's taps come from."""

    def taps(self, block: int, rng: np.random.Generator) -> NDArray[np.complex128]:
        """Complex amplitudes (L,) of the paths that arrive 0 … L-1 samples late, constant within `block`.

        `rng` belongs to this link and block alone.
        """
        ...


@dataclass(frozen=True)
class StaticFading:
    """The same taps in every block."""

    values: tuple[complex, ...] = (1.0,)

    def __post_init__(self) -> None:
        """Refuse taps that are not numbers."""
        if not self.values or not np.all(np.isfinite(self.values)):
            raise HardwareError(f"static taps are {self.values}: expected at least one, all finite")

    def taps(self, block: int, rng: np.random.Generator) -> NDArray[np.complex128]:
        """The fixed taps."""
        del block, rng
        return np.asarray(self.values, np.complex128)


@dataclass(frozen=True)
class RayleighFading:
    """Independent taps CN(0, power), drawn anew in each block. powers: mean power of each tap."""

    powers: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        """Refuse powers that are not."""
        if not self.powers or not all(math.isfinite(power) and power >= 0 for power in self.powers):
            raise HardwareError(f"tap powers are {self.powers}: expected at least one, all finite and >= 0")

    def taps(self, block: int, rng: np.random.Generator) -> NDArray[np.complex128]:
        """A draw for `block`."""
        del block
        return np.asarray(rayleigh_gains(len(self.powers), rng) * np.sqrt(self.powers))


@dataclass(frozen=True)
class GivenFading:
    """Flat fading as a function of the block number: measured, from a file, or made up in a test."""

    gain: Callable[[int], complex]

    def taps(self, block: int, rng: np.random.Generator) -> NDArray[np.complex128]:
        """The function's value."""
        del rng
        return np.asarray([self.gain(block)], np.complex128)


@dataclass(frozen=True)
class Link:
    """One direction between two radios. delay_samples: any real number >= 0, before the taps' own delays."""

    fading: Fading = StaticFading()
    delay_samples: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a path that arrives before it left."""
        if not (math.isfinite(self.delay_samples) and self.delay_samples >= 0):
            raise HardwareError(f"delay_samples is {self.delay_samples}: expected a finite number >= 0")


MAX_TAP_DELAY = 4096
"""Longest tap delay in samples that makes sense: 0.8 ms, or 250 km, at 5 MS/s."""


def power_profile(profile: Sequence[tuple[int, float]], gain_db: float = 0.0) -> tuple[float, ...]:
    """Power of each tap from (delay in samples, power in dB) pairs, scaled so that they sum to 10^(gain_db/10)."""
    if not math.isfinite(gain_db):
        raise HardwareError(f"gain_db is {gain_db}: expected a finite number of dB")
    delays = [delay for delay, _ in profile]
    if not profile or min(delays) < 0 or max(delays) > MAX_TAP_DELAY or len(set(delays)) < len(delays):
        raise HardwareError(f"taps have delays of {delays} samples: expected different ones, 0 to {MAX_TAP_DELAY}")
    if not all(math.isfinite(power_db) for _, power_db in profile):
        raise HardwareError(f"taps have powers of {[power for _, power in profile]} dB: expected finite numbers")
    powers = np.zeros(max(delays) + 1)
    powers[delays] = [db_to_power_ratio(power_db) for _, power_db in profile]
    return tuple((powers * (db_to_power_ratio(gain_db) / powers.sum())).tolist())
