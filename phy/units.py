"""Decibels, and the factor of two between the noise of a complex cell and of the two coordinates it carries."""

import math


def db_to_power_ratio(value_db: float) -> float:
    """10^(x/10): decibels to a ratio of powers."""
    return float(10.0 ** (value_db / 10.0))


def db_to_amplitude_ratio(value_db: float) -> float:
    """10^(x/20): decibels to a ratio of amplitudes."""
    return float(10.0 ** (value_db / 20.0))


def power_ratio_to_db(ratio: float) -> float:
    """10 log10(x); minus infinity for zero."""
    return 10.0 * math.log10(ratio) if ratio > 0 else -math.inf


def noise_var_real_from_complex(noise_var_complex: float) -> float:
    """Variance per real coordinate of circular complex noise: sigma_c^2 = E|z|^2 / 2.

    I and Q each get half of the power. Using E|z|^2 itself as sigma_c^2 would overstate the noise that protects a
    coordinate by a factor of two: the ledger would say epsilon = 5.45 where 8.24 was given.
    """
    return noise_var_complex / 2.0


def noise_var_complex_from_real(noise_var_real: float) -> float:
    """E|z|^2 of circular complex noise whose I and Q each have variance `noise_var_real`."""
    return 2.0 * noise_var_real
