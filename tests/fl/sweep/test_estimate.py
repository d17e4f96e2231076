"""Means over trials, with Student's interval; oracles: `scipy.stats` and tables."""

import math
import statistics

import numpy as np
import pytest
from scipy.stats import t

from fl.sweep.estimate import Estimate, half_width


def test_the_interval_is_students() -> None:
    values = [0.61, 0.58, 0.64, 0.60, 0.57]
    low, high = t.interval(0.95, 4, statistics.fmean(values), statistics.stdev(values) / math.sqrt(5))
    found = Estimate.of(values)
    assert found.half == pytest.approx((high - low) / 2)
    assert (found.mean, found.low, found.high, found.count) == (pytest.approx(0.6), 0.57, 0.64, 5)


def test_three_values_have_the_quantile_of_two_degrees_of_freedom_and_two_have_no_interval() -> None:
    """4.3027 at 97.5 %, from tables; the standard deviation of 1, 2 and 3 is 1."""
    assert Estimate.of([1.0, 2.0, 3.0]).half == pytest.approx(4.30265 / math.sqrt(3), rel=1e-5)
    assert Estimate.of([1.0, 3.0]).half is None


def test_equal_values_have_an_interval_without_width_and_one_value_has_none() -> None:
    assert Estimate.of([0.5, 0.5, 0.5]).half == 0.0
    assert Estimate.of([0.5]).half is None


def test_infinite_values_have_a_mean_and_no_interval() -> None:
    found = Estimate.of([1.0, math.inf])
    assert (found.mean, found.half) == (math.inf, None)


def test_columns_are_taken_one_by_one() -> None:
    widths = half_width(np.array([[1.0, math.inf], [3.0, 1.0], [4.0, 2.0]]))
    assert widths[0] == Estimate.of([1.0, 3.0, 4.0]).half
    assert np.isnan(widths[1])
    assert np.isnan(half_width(np.array([[1.0, 2.0]]))).all()
