"""Rules for alpha_u: each from its definition, and no number with a second meaning."""

import math

import numpy as np
import pytest

from fl.errors import ConfigError
from fl.uplink.alpha_u import AlphaU, Fixed, ForNoise, Largest, Scheduled, UplinkState, choose_alpha_u

STATE = UplinkState(
    uplink=2,
    noise_std_real=0.3,
    weights=np.array([0.25, 0.75]),
    gains=np.array([0.5j, -2.0]),
    limits=np.array([4.0, 9.0]),
    margin=1.5,
)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Fixed(7.0), 7.0),
        (Scheduled((1.0, 5.0, 9.0)), 5.0),
        # The noise after division is sigma, and as much more as the largest gain is charged with.
        (ForNoise(0.02), 0.3 / (1.5 * 0.02)),
        # min_i |h_i| sqrt(P_i) / p_i: 0.5 * 2 / 0.25 = 4 and 2 * 3 / 0.75 = 8.
        (Largest(), 4.0),
    ],
)
def test_rules(rule: AlphaU, expected: float) -> None:
    assert choose_alpha_u(rule, STATE) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_what_cannot_be_a_factor_is_refused(value: float) -> None:
    for make in (Fixed, lambda bad: Scheduled((1.0, bad))):
        with pytest.raises(ConfigError, match="alpha_u is"):
            make(value)
    with pytest.raises(ConfigError, match="noise that alpha_u is sized for"):
        ForNoise(value)
