"""Decibels against their definition, and the factor of two against noise that is really drawn."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phy.units import (
    amplitude_ratio_to_db,
    db_to_amplitude_ratio,
    db_to_power_ratio,
    noise_var_complex_from_real,
    noise_var_real_from_complex,
    power_ratio_to_db,
    power_ratios_to_db,
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


def test_no_power_is_minus_infinity_or_the_floor() -> None:
    for to_db in (power_ratio_to_db, amplitude_ratio_to_db):
        assert to_db(0.0) == -math.inf
        assert to_db(0.0, -300.0) == -300.0
        assert to_db(1e-40, -300.0) == -300.0
        assert to_db(100.0, -300.0) > 0


@settings(deadline=None)
@given(st.floats(-300, 300))
def test_decibels_of_an_amplitude_are_those_of_its_power(value_db: float) -> None:
    ratio = db_to_amplitude_ratio(value_db)
    assert amplitude_ratio_to_db(ratio) == pytest.approx(value_db, abs=1e-11)
    assert amplitude_ratio_to_db(ratio) == pytest.approx(power_ratio_to_db(ratio**2), abs=1e-11)


@pytest.mark.parametrize("floor_db", [-math.inf, -300.0])
def test_an_array_has_the_decibels_of_its_elements(floor_db: float) -> None:
    powers = np.array([[1.0, 1e-3, 2e7], [0.0, 1e-31, 5e-324]])
    expected = [[power_ratio_to_db(power, floor_db) for power in row] for row in powers.tolist()]
    np.testing.assert_allclose(power_ratios_to_db(powers, floor_db), expected, rtol=1e-14)
    assert power_ratios_to_db(powers.astype(np.float32)).dtype == np.float64
    assert np.isnan(power_ratios_to_db(np.array([np.nan]), floor_db)).all()


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
