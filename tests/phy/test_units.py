"""Decibels against their definition, and the factor of two against noise that is really drawn."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phy.units import (
    db_to_amplitude_ratio,
    db_to_power_ratio,
    noise_var_complex_from_real,
    noise_var_real_from_complex,
    power_ratio_to_db,
)


@pytest.mark.parametrize(
    ("value_db", "power_ratio"),
    [(0.0, 1.0), (10.0, 10.0), (-30.0, 1e-3), (1.0, 1.2589254117941673), (3.0102999566398120, 2.0)],
)
def test_decibels_are_ten_times_the_decimal_logarithm_of_a_power_ratio(value_db: float, power_ratio: float) -> None:
    """IEC 60027-3: 10 lg(P/P0) dB; 1 dB is the paper's SNR."""
    assert db_to_power_ratio(value_db) == pytest.approx(power_ratio, rel=1e-15)
    assert power_ratio_to_db(power_ratio) == pytest.approx(value_db, abs=1e-14)


@settings(deadline=None)
@given(st.floats(-300, 300))
def test_an_amplitude_ratio_squared_is_the_power_ratio(value_db: float) -> None:
    assert db_to_amplitude_ratio(value_db) ** 2 == pytest.approx(db_to_power_ratio(value_db), rel=1e-13)
    assert power_ratio_to_db(db_to_power_ratio(value_db)) == pytest.approx(value_db, abs=1e-11)


def test_no_power_is_minus_infinity() -> None:
    assert power_ratio_to_db(0.0) == -math.inf


def test_complex_variance_is_shared_by_two_axes() -> None:
    """Oracle: E|z|^2 = E Re^2 + E Im^2, measured on circular noise; 4 sd of a variance over 2^18 draws is 1.1 %."""
    rng = np.random.default_rng(7)
    z = 3.0 * (rng.standard_normal(2**18) + 1j * rng.standard_normal(2**18))
    measured = float(np.mean(np.abs(z) ** 2))
    for axis in (z.real, z.imag):
        assert noise_var_real_from_complex(measured) == pytest.approx(float(np.mean(axis**2)), rel=0.011)
        assert noise_var_complex_from_real(float(np.mean(axis**2))) == pytest.approx(measured, rel=0.011)


@settings(deadline=None)
@given(st.floats(1e-200, 1e200))
def test_the_two_conversions_are_inverse(noise_var_real: float) -> None:
    assert noise_var_real_from_complex(noise_var_complex_from_real(noise_var_real)) == noise_var_real
    assert noise_var_complex_from_real(noise_var_real) == 2 * noise_var_real
