"""Gains and noise have the stated distributions, and the tests would notice others."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from phy.fading import circular_noise, rayleigh_gains

COUNT = 100_000
NEVER = 1e-4
"""A right distribution falls below this p-value once in ten thousand seeds; the seeds here are fixed."""
WRONG = 1e-9


def variance_p_value(values: NDArray[np.floating], std: float) -> float:
    """Two-sided p-value of the chi-square test of a known variance (mean zero)."""
    statistic = float(np.sum(np.square(values.astype(np.float64)))) / std**2
    lower = float(stats.chi2.cdf(statistic, values.size))
    return 2.0 * min(lower, 1.0 - lower)


def test_gains_have_unit_power_rayleigh_magnitude_and_uniform_phase() -> None:
    """Oracles: for h ~ CN(0, 1), 2 sum |h|^2 is chi-square with 2N degrees; |h| is Rayleigh with scale sqrt(1/2)."""
    gains = rayleigh_gains(COUNT, np.random.default_rng(1))
    assert gains.shape == (COUNT,)
    assert gains.dtype == np.complex128
    parts = np.concatenate([gains.real, gains.imag])
    assert variance_p_value(parts, np.sqrt(0.5)) > NEVER
    assert variance_p_value(parts, 1.03 * np.sqrt(0.5)) < WRONG
    assert stats.kstest(np.abs(gains), stats.rayleigh(scale=np.sqrt(0.5)).cdf).pvalue > NEVER
    assert stats.kstest(np.abs(gains), stats.rayleigh(scale=1.0).cdf).pvalue < WRONG
    assert stats.kstest(np.angle(gains), stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > NEVER


def test_gains_depend_on_the_generator_alone() -> None:
    np.testing.assert_array_equal(
        rayleigh_gains(5, np.random.default_rng(3)), rayleigh_gains(5, np.random.default_rng(3))
    )
    assert not np.any(rayleigh_gains(5, np.random.default_rng(3)) == rayleigh_gains(5, np.random.default_rng(4)))


@pytest.mark.parametrize("noise_var_real", [1.0, 2.5e-7, 4e6])
def test_noise_has_the_variance_on_each_axis(noise_var_real: float) -> None:
    """Oracle: N samples of one axis over sigma^2 are chi-square with N degrees. Half the variance is rejected."""
    noise = circular_noise(COUNT, noise_var_real, np.random.default_rng(2))
    assert noise.shape == (COUNT,)
    assert noise.dtype == np.complex64
    for axis in (noise.real, noise.imag):
        std = float(np.sqrt(noise_var_real))
        assert variance_p_value(axis, std) > NEVER
        assert variance_p_value(axis, 1.03 * std) < WRONG
        assert variance_p_value(axis, 0.97 * std) < WRONG
        assert variance_p_value(axis, std * np.sqrt(0.5)) < WRONG
        assert stats.kstest(axis / std, "norm").pvalue > NEVER


def test_noise_is_circular() -> None:
    """E z^2 = 0: the axes are equal in power and uncorrelated. sqrt(N) times a correlation is about standard normal."""
    noise = circular_noise(COUNT, 1.0, np.random.default_rng(5)).astype(np.complex128)
    assert abs(np.mean(noise**2)) < 4 * 2 / np.sqrt(COUNT)
    assert abs(np.corrcoef(noise.real, noise.imag)[0, 1]) < 4 / np.sqrt(COUNT)
    assert abs(np.corrcoef(noise.real[:-1], noise.real[1:])[0, 1]) < 4 / np.sqrt(COUNT)


def test_no_variance_is_no_noise() -> None:
    assert not np.any(circular_noise(7, 0.0, np.random.default_rng(1)))
