"""Decibels, and the factor of two between the noise of a complex cell and of the two coordinates it carries."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phy.errors import SignalError


def db_to_power_ratio(value_db: float) -> float:
    """10^(x/10): decibels to a ratio of powers."""
    return _ten_to(value_db, 10.0)


def db_to_amplitude_ratio(value_db: float) -> float:
    """10^(x/20): decibels to a ratio of amplitudes."""
    return _ten_to(value_db, 20.0)


def _ten_to(value_db: float, decibels: float) -> float:
    try:
        return float(10.0 ** (value_db / decibels))
    except OverflowError as error:
        raise SignalError("a level", f"{value_db:g} dB", "at most 3000 dB", "Radios are within 300 dB.") from error


def power_ratio_to_db(ratio: float, floor_db: float = -math.inf) -> float:
    """10 log10(x), never below `floor_db`, which zero has."""
    return max(10.0 * math.log10(ratio), floor_db) if ratio > 0 else floor_db


def power_ratios_to_db(ratios: NDArray[Any], floor_db: float = -math.inf) -> NDArray[np.float64]:
    """`power_ratio_to_db` of each; NaN stays NaN."""
    with np.errstate(divide="ignore"):
        levels_db = 10.0 * np.log10(np.maximum(np.asarray(ratios, dtype=np.float64), 0.0))
    return np.asarray(np.maximum(levels_db, floor_db))


def amplitude_ratio_to_db(ratio: float, floor_db: float = -math.inf) -> float:
    """20 log10(x), never below `floor_db`, which zero has."""
    return max(20.0 * math.log10(ratio), floor_db) if ratio > 0 else floor_db


def noise_var_real_from_complex(noise_var_complex: float) -> float:
    """Variance per real coordinate of circular complex noise: sigma_c^2 = E|z|^2 / 2.

    I and Q each get half of the power. Using E|z|^2 itself as sigma_c^2 would overstate the noise that protects a
    coordinate by a factor of two: the ledger would say epsilon = 5.45 where 8.24 was given.
    """
    return noise_var_complex / 2.0


def noise_var_complex_from_real(noise_var_real: float) -> float:
    """E|z|^2 of circular complex noise whose I and Q each have variance `noise_var_real`."""
    return 2.0 * noise_var_real
