"""Power control: alpha_i = alpha_u p_i / (h_i tau s_i), s_i = max(1, alpha_u p_i / (|h_i| sqrt P_i))."""

import cmath
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl.errors import ConfigError
from fl.uplink.power_control import alpha_u_for_noise, alpha_u_without_backoff, control_power, power_limit

positive = st.floats(-6, 6).map(lambda exponent: 10.0**exponent)
weights = st.floats(1e-6, 1.0)
gains = st.builds(cmath.rect, positive, st.floats(-math.pi, math.pi))
cases = st.fixed_dictionaries(
    {"alpha_u": positive, "weight": weights, "gain": gains, "clip_norm": positive, "limit": positive}
)
ROUNDING = 1 + 1e-12


@settings(max_examples=300, deadline=None)
@given(cases, st.floats(0.0, 1.0))
def test_no_update_within_the_clip_norm_exceeds_the_power_limit(case: dict[str, float], share: float) -> None:
    """||x_i||^2 = |alpha_i|^2 ||u_i||^2 <= P_i for every ||u_i|| <= tau."""
    power = control_power(**case)
    update_norm = share * case["clip_norm"]
    assert abs(power.alpha) ** 2 * update_norm**2 <= case["limit"] * ROUNDING


@settings(max_examples=300, deadline=None)
@given(cases)
def test_the_channel_is_undone(case: dict[str, float]) -> None:
    """h_i alpha_i is real, positive and alpha_u p_i / (tau s_i)."""
    power = control_power(**case)
    arrived = case["gain"] * power.alpha
    expected = case["alpha_u"] * case["weight"] / (case["clip_norm"] * power.backoff)
    assert arrived.real == pytest.approx(expected, rel=1e-12)
    assert abs(arrived.imag) <= 1e-14 * arrived.real
    assert power.received_gain == 1 / power.backoff


@settings(max_examples=300, deadline=None)
@given(cases)
def test_a_client_backs_off_only_where_it_must(case: dict[str, float]) -> None:
    """s_i >= 1, literally as printed; where it is above 1 an update of norm tau uses all of P_i."""
    power = control_power(**case)
    assert power.backoff >= 1.0
    literal = case["alpha_u"] * case["weight"] / (abs(case["gain"]) * math.sqrt(case["limit"]))
    assert power.backoff == pytest.approx(max(1.0, literal), rel=1e-14)
    if power.backoff > 1.0:
        assert abs(power.alpha) ** 2 * case["clip_norm"] ** 2 == pytest.approx(case["limit"], rel=1e-12)


@settings(max_examples=300, deadline=None)
@given(cases, st.floats(0.0, 1.0))
def test_actual_keeps_the_limit_for_the_update_at_hand(case: dict[str, float], share: float) -> None:
    update_norm = share * case["clip_norm"]
    worst = control_power(**case)
    actual = control_power(**case, update_norm=update_norm)
    assert abs(actual.alpha) ** 2 * update_norm**2 <= case["limit"] * ROUNDING
    assert 1.0 <= actual.backoff <= worst.backoff * ROUNDING
    assert control_power(**case, update_norm=case["clip_norm"]).backoff == pytest.approx(worst.backoff, rel=1e-14)
    assert control_power(**case, update_norm=0.0).backoff == 1.0


def test_a_client_without_a_channel_is_silent() -> None:
    power = control_power(alpha_u=1.0, weight=0.5, gain=0j, clip_norm=1.0, limit=1.0)
    assert power.alpha == 0
    assert power.backoff == math.inf
    assert power.received_gain == 0.0


def test_the_papers_power_limit() -> None:
    """SNR_i = P_i / (d sigma_c^2) = 1 dB over 155,830 coordinates; 10^0.1 = 1.258925…"""
    assert power_limit(1.0, 155_830, 1.0) == pytest.approx(1.2589254117941673 * 155_830, rel=1e-14)
    assert power_limit(1.0, 155_830, 0.25) == pytest.approx(1.2589254117941673 * 155_830 / 4, rel=1e-14)
    assert power_limit(0.0, 1, 3.0) == 3.0


@settings(deadline=None)
@given(positive, positive)
def test_alpha_u_for_noise_makes_the_channel_noise_that_sigma(noise_std_real: float, sigma: float) -> None:
    assert noise_std_real / alpha_u_for_noise(noise_std_real, sigma) == pytest.approx(sigma, rel=1e-14)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(weights, gains, positive), min_size=1, max_size=6))
def test_the_largest_alpha_u_leaves_every_backoff_at_exactly_one(
    clients: list[tuple[float, complex, float]],
) -> None:
    weight, gain, limit = (np.array(column) for column in zip(*clients, strict=True))
    largest = alpha_u_without_backoff(weight, gain, limit)

    def backoffs(alpha_u: float) -> list[float]:
        return [control_power(alpha_u=alpha_u, weight=p, gain=h, clip_norm=1.0, limit=P).backoff for p, h, P in clients]

    assert set(backoffs(largest)) == {1.0}
    assert max(backoffs(largest * (1 + 1e-9))) > 1.0, "it is the largest"


def test_a_silent_client_leaves_no_alpha_u_without_backoff() -> None:
    with pytest.raises(ConfigError, match="gain 0"):
        alpha_u_without_backoff(np.array([0.5, 0.5]), np.array([1j, 0j]), np.ones(2))
