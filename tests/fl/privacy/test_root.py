"""Brent's method, against SciPy's: the same to the last bit."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import brentq

from fl.errors import PrivacyError
from fl.privacy.accountant import Accountant, epsilon_exact, log_delta_exact, loss_for_epsilon
from fl.privacy.root import LEAST_RTOL, root_between

FUNCTIONS: dict[str, Callable[[float], float]] = {
    "cubic": lambda x: x**3 - 0.3,
    "steep": lambda x: math.expm1(40.0 * x) - 1.0,
    "flat": lambda x: (x - 0.1) ** 3,
    "kinked": lambda x: abs(x - 0.4) - 0.05 - 1e-3 * x,
    "falling": lambda x: math.cos(2.0 * x) - x,
    "jump": lambda x: -1.0 if x < 0.7 else 2.0,
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.parametrize("rtol", [LEAST_RTOL, 1e-6])
def test_every_root_is_scipys(function: Callable[[float], float], rtol: float) -> None:
    rng = np.random.default_rng(1)
    compared = 0
    for low, width, exponent in rng.uniform((-1.0, 0.1, -15.0), (0.5, 2.0, -3.0), (300, 3)):
        high, xtol = low + width, 10.0**exponent
        if function(low) * function(high) < 0.0:
            compared += 1
            try:
                expected = brentq(function, low, high, xtol=xtol, rtol=rtol)
            except RuntimeError:
                # A root of third order, to more digits than 100 steps find.
                with pytest.raises(PrivacyError, match="no root was found"):
                    root_between(function, low, high, xtol, rtol)
            else:
                assert root_between(function, low, high, xtol, rtol) == expected
    assert compared > 20


def test_epsilon_and_its_inverse_are_what_scipy_finds() -> None:
    log_delta = math.log(1e-5)
    for loss in (1e-6, 0.01, 0.4, 3.0, 80.0):
        high = 2.0 * math.sqrt(-loss * log_delta) + loss
        expected = brentq(lambda eps, loss=loss: log_delta_exact(loss, eps) - log_delta, 0.0, high, xtol=1e-12)
        assert epsilon_exact(loss, 1e-5) == pytest.approx(expected, rel=1e-9)
        assert loss_for_epsilon(Accountant.EXACT, expected, 1e-5) == pytest.approx(loss, rel=1e-8)


def test_ends_that_are_roots_are_taken() -> None:
    assert root_between(lambda x: x, 0.0, 1.0, 1e-12) == 0.0
    assert root_between(lambda x: x - 1.0, 0.0, 1.0, 1e-12) == 1.0


@pytest.mark.parametrize("value", [1.0, math.nan])
def test_where_signs_do_not_differ_there_is_none(value: float) -> None:
    with pytest.raises(PrivacyError, match="no root is between 0 and 1"):
        root_between(lambda x: value, 0.0, 1.0, 1e-12)
