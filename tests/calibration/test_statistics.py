import numpy as np
import pytest
from scipy import stats

from calibration.errors import MeasurementError
from calibration.statistics import (
    correlation_test,
    equal_powers_test,
    exponential_spread_test,
    impropriety_test,
    independent_minimum,
    normality_test,
    variance_factors,
    variance_lower_factor,
)

RUNS = 2000


def circular(shape: tuple[int, ...], seed: int) -> np.ndarray:
    parts = np.random.default_rng(seed).standard_normal((*shape, 2))
    return parts[..., 0] + 1j * parts[..., 1]


def is_uniform(p_values: np.ndarray) -> bool:
    return bool(stats.kstest(p_values, "uniform").pvalue > 1e-3)


def test_variance_factors_are_those_of_chi_square() -> None:
    """Oracle: scipy.stats.chi2."""
    low, high = variance_factors(100, 0.95)
    assert low == pytest.approx(200 / stats.chi2.ppf(0.975, 200))
    assert high == pytest.approx(200 / stats.chi2.ppf(0.025, 200))
    assert variance_lower_factor(100, 1e-4) == pytest.approx(200 / stats.chi2.isf(1e-4, 200))


def test_variance_factors_hold_for_captures_of_hours() -> None:
    """Oracle: the normal approximation, exact to 1e-6 at 2e10 degrees of freedom."""
    low, high = variance_factors(10**10, 0.95)
    width = 1.959964 * np.sqrt(2.0 / 2e10)
    assert low == pytest.approx(1.0 - width, abs=1e-9)
    assert high == pytest.approx(1.0 + width, abs=1e-9)


def test_equal_powers_statistic_is_bartletts_likelihood_ratio() -> None:
    """Oracle: scipy.stats.bartlett, whose statistic is this one over Bartlett's correction factor."""
    rng = np.random.default_rng(1)
    groups = [rng.standard_normal(41) * scale for scale in (1.0, 1.2, 0.9)]
    # A group of 41 values with unknown mean has 40 degrees of freedom: as many as 20 complex values.
    powers = np.array([np.sum((group - group.mean()) ** 2) for group in groups])
    statistic, p_value = equal_powers_test(powers, np.full(3, 20.0))
    correction = 1.0 + (3 / 40.0 - 1 / 120.0) / (3.0 * 2.0)
    expected = stats.bartlett(*groups)
    assert statistic == pytest.approx(expected.statistic * correction)
    assert p_value == pytest.approx(expected.pvalue, rel=0.01)


@pytest.mark.parametrize(("groups", "count"), [(192, 16.0), (8, 400.0), (2, 4.0)])
def test_equal_powers_p_values_are_uniform(groups: int, count: float) -> None:
    powers = np.random.default_rng(2).gamma(count, size=(RUNS, groups))
    counts = np.full(groups, count)
    assert is_uniform(np.array([equal_powers_test(row, counts)[1] for row in powers]))
    # The same data against the wrong number of values.
    assert not is_uniform(np.array([equal_powers_test(row, counts / 2)[1] for row in powers]))


def test_equal_powers_within_rows_ignores_differences_between_rows() -> None:
    rng = np.random.default_rng(3)
    counts = np.full((5, 6), 30.0)
    levels = 10.0 ** rng.uniform(-3, 3, size=(5, 1))
    p_values = [equal_powers_test(rng.gamma(30.0, size=(5, 6)) * levels, counts)[1] for _ in range(500)]
    assert is_uniform(np.array(p_values))


def test_equal_powers_takes_a_dead_group_for_a_difference() -> None:
    assert equal_powers_test(np.array([1.0, 0.0]), np.array([5.0, 5.0]))[1] == 0.0
    with pytest.raises(MeasurementError, match="two or more"):
        equal_powers_test(np.array([1.0]), np.array([5.0]))


def test_impropriety_p_values_are_exact() -> None:
    values = circular((RUNS, 12), 4)
    assert is_uniform(np.array([impropriety_test(row)[1] for row in values]))


def test_impropriety_measures_imbalance_and_correlation() -> None:
    """Oracle: rho of I with variance 1.2 and Q with variance 0.8 is 0.2; of I = Q it is j."""
    values = circular((200_000,), 5)
    unequal = values.real * np.sqrt(1.2) + 1j * values.imag * np.sqrt(0.8)
    rho, p_value = impropriety_test(unequal)
    assert rho == pytest.approx(0.2, abs=0.01)
    assert p_value < 1e-12
    assert impropriety_test(values.real * (1 + 1j))[0] == pytest.approx(1j)


def test_exponential_spread_p_values_are_uniform() -> None:
    powers = np.random.default_rng(6).exponential(size=(RUNS, 500))
    assert is_uniform(np.array([exponential_spread_test(row)[1] for row in powers]))
    assert not is_uniform(np.array([exponential_spread_test(row**1.05)[1] for row in powers]))


def test_correlation_p_values_are_uniform_for_short_series() -> None:
    values = circular((RUNS, 12, 20), 7)
    assert is_uniform(np.array([correlation_test(row, 4)[1] for row in values]))


def test_correlation_sees_memory() -> None:
    values = circular((401, 100), 8)
    assert correlation_test(values[1:] + 0.1 * values[:-1], 4)[1] < 1e-6


def test_normality_statistic_is_anderson_darlings() -> None:
    """Oracle: scipy.stats.anderson, which gives A^2 for estimated mean and variance, unmodified."""
    values = np.random.default_rng(9).standard_normal(300)
    statistic, p_value = normality_test(values)
    reference = stats.anderson(values, "norm", method="interpolate")
    assert statistic == pytest.approx(reference.statistic * (1 + 0.75 / 300 + 2.25 / 300**2))
    assert 0.0 < p_value < 1.0


def test_normality_p_values_are_within_two_percent_of_uniform() -> None:
    values = np.random.default_rng(10).standard_normal((RUNS, 300))
    p_values = np.array([normality_test(row)[1] for row in values])
    # 0.02 for Stephens' curves and three standard deviations of a share of 2,000.
    for level in (0.01, 0.05, 0.1, 0.5, 0.9):
        assert np.mean(p_values < level) == pytest.approx(level, abs=0.02 + 3 * np.sqrt(level * (1 - level) / RUNS))


def test_normality_sees_uniform_values_and_keeps_p_values_within_bounds() -> None:
    rng = np.random.default_rng(11)
    assert normality_test(rng.uniform(-1, 1, 1000))[1] < 1e-6
    assert 0.0 <= normality_test(rng.integers(0, 2, 100_000).astype(np.float64))[1] < 1e-100


def test_smallest_of_independent_p_values_is_uniform_again() -> None:
    p_values = np.random.default_rng(12).uniform(size=(RUNS, 3))
    assert is_uniform(np.array([independent_minimum(row) for row in p_values]))
    assert not is_uniform(p_values.min(axis=1))
