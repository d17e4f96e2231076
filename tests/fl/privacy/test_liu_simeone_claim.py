"""The published accountant of Liu and Simeone 2020 and their claim, as an ordinary accountant, target and statement.

Oracles: direct inversion of C(x) = sqrt(pi) x exp(x^2) in 50 digits, the Gaussian tail that it bounds, and R_dp as
printed.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from fl.errors import PrivacyError
from fl.privacy.accountant import (
    Accountant,
    epsilon_exact,
    epsilon_liu_simeone,
    epsilon_of_loss,
    epsilon_paper,
    liu_simeone_c,
    log_delta_exact,
    loss_for_epsilon,
)
from fl.privacy.liu_simeone import published_target, state_published
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import state_privacy
from phy.units import noise_var_complex_from_real
from tests.fl.privacy.mechanisms import without_jammer

deltas = st.one_of(st.floats(-300, -1).map(lambda exponent: 10.0**exponent), st.floats(0.1, 0.999))
losses = st.floats(-12, 5).map(lambda exponent: 10.0**exponent)
SIZES = np.array([100, 300, 600])


def uplink_at(c: float, gamma: float, noise_var_real: float, *, record_bounded: bool = False) -> RoundMechanism:
    """Every client is received with c n_k times its clipped update: sigma = sigma_c/(n tau c) in units of tau."""
    alpha_u = float(SIZES.sum()) * gamma * c
    return without_jammer(
        (1.0,) * len(SIZES),
        math.sqrt(noise_var_real) / alpha_u,
        record_bounded=record_bounded,
        clip_norm=gamma,
        alpha_u=alpha_u,
    )


@pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-5, 0.01, 0.3, 0.5, 0.727, 0.9, 0.999999])
def test_c_is_inverted_as_by_direct_search(delta: float) -> None:
    with mp.workdps(50):
        root = mp.findroot(
            lambda x: mp.log(mp.sqrt(mp.pi) * x) + x**2 + mp.log(mpf(delta)), (mpf("0.1"), mpf(40)), "anderson"
        )
        assert mp.almosteq(mp.sqrt(mp.pi) * root * mp.exp(root**2), 1 / mpf(delta), rel_eps=1e-20)
    assert liu_simeone_c(delta) == pytest.approx(float(root), rel=1e-14)


@settings(max_examples=200, deadline=None)
@given(deltas)
def test_c_of_its_inverse_is_one_over_delta(delta: float) -> None:
    x = liu_simeone_c(delta)
    assert math.log(math.sqrt(math.pi) * x) + x * x == pytest.approx(-math.log(delta), rel=1e-13, abs=1e-13)


@settings(max_examples=200, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(1e-12, 0.9))
def test_the_inverse_is_r_dp_as_printed(epsilon: float, delta: float) -> None:
    """R_dp = (sqrt(eps + C^2) - C)^2, in digits enough for the difference."""
    with mp.workdps(40):
        c = mpf(liu_simeone_c(delta))
        printed = float((mp.sqrt(mpf(epsilon) + c**2) - c) ** 2)
    budget = loss_for_epsilon(Accountant.LIU_SIMEONE, epsilon, delta)
    assert budget == pytest.approx(printed, rel=1e-12)
    assert published_target(epsilon, delta, uplinks=7).total_loss == budget
    assert epsilon_of_loss(Accountant.LIU_SIMEONE, budget, delta) == pytest.approx(epsilon, rel=1e-12)


@settings(max_examples=300, deadline=None)
@given(losses, deltas)
def test_it_bounds_the_tail_and_so_never_understates(loss: float, delta: float) -> None:
    """P(N(S, 2 S) > eps) = erfc(x)/2 < erfc(x) < 1/C(x) = delta; `exact` subtracts a second tail."""
    epsilon = epsilon_liu_simeone(loss, delta)
    x = (epsilon - loss) / (2 * math.sqrt(loss))
    assert x == pytest.approx(liu_simeone_c(delta), rel=1e-6)
    with mp.workdps(30):
        assert mp.erfc(mpf(liu_simeone_c(delta))) < mpf(delta)
    assert log_delta_exact(loss, epsilon) <= math.log(delta)
    assert epsilon_exact(loss, delta) <= epsilon


def test_where_it_is_tighter_than_the_papers() -> None:
    """C^2 + log(sqrt(pi) C) = log(1/delta): below it while sqrt(pi) C > 1, that is for delta < exp(-1/pi) = 0.7274."""
    border = math.exp(-1 / math.pi)
    assert epsilon_liu_simeone(0.5, border * 0.999) < epsilon_paper(0.5, border * 0.999)
    assert epsilon_liu_simeone(0.5, border * 1.001) > epsilon_paper(0.5, border * 1.001)
    # The paper's experiment, S = 0.73 at 1e-5: 6.52 by its own bound.
    loss = loss_for_epsilon(Accountant.PAPER, 6.52, 1e-5)
    assert epsilon_liu_simeone(loss, 1e-5) == pytest.approx(6.07, abs=0.01)


def test_nothing_costs_nothing_and_unknown_everything() -> None:
    assert epsilon_liu_simeone(0.0, 1e-5) == 0.0
    assert epsilon_liu_simeone(math.inf, 1e-5) == math.inf
    for bad in (-1.0, math.nan):
        with pytest.raises(PrivacyError):
            epsilon_liu_simeone(bad, 1e-5)
    for bad in (0.0, 1.0, math.nan):
        with pytest.raises(PrivacyError):
            liu_simeone_c(bad)


@settings(max_examples=100, deadline=None)
@given(
    amplitudes=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6),
    gamma=st.floats(1e-2, 1e2),
    noise_var_real=st.floats(1e-3, 1e3),
    delta=st.floats(1e-9, 0.5),
)
def test_the_statement_is_the_printed_sum(
    amplitudes: list[float], gamma: float, noise_var_real: float, delta: float
) -> None:
    """sum_t 2 gamma^2 c_t^2 / N_0 with N_0 the noise variance of a real coordinate: not half, not twice."""
    mechanisms = [uplink_at(c, gamma, noise_var_real) for c in amplitudes]
    said = state_published(mechanisms, SIZES, delta=delta)
    printed = sum(2 * gamma**2 * c**2 / noise_var_real for c in amplitudes)
    assert said.total_loss == pytest.approx(printed, rel=1e-12)
    assert (said.neighbours, said.label) == (Neighbours.REPLACE_ONE, Label.PAPER_CLAIM)
    assert said.epsilon == {Accountant.LIU_SIMEONE: pytest.approx(epsilon_liu_simeone(printed, delta), rel=1e-9)}
    assert "replace-one" in said.conditions
    # Our relation charges a quarter of it for the same uplinks.
    ours = state_privacy(mechanisms, SIZES, label=Label.PAPER_CLAIM, neighbours=Neighbours.ZERO_OUT, delta=delta)
    assert said.total_loss == pytest.approx(4 * ours.total_loss, rel=1e-12)


def test_reading_n0_as_the_variance_of_a_complex_cell_would_halve_the_loss() -> None:
    """Oracle: S is the divergence of N(2 gamma c, sigma_c^2) from N(0, sigma_c^2), on real coordinates."""
    gamma, c, noise_var_real = 0.6, 0.3, 2.0
    change = 2 * gamma * c
    true_loss = change**2 / (2 * noise_var_real)
    assert state_published([uplink_at(c, gamma, noise_var_real)], SIZES, delta=1e-5).total_loss == pytest.approx(
        true_loss
    )
    misread = 2 * gamma**2 * c**2 / noise_var_complex_from_real(noise_var_real)
    assert misread == pytest.approx(true_loss / 2)


def test_the_target_is_met_by_noise_sized_for_it() -> None:
    target = published_target(6.52, 1e-5, uplinks=9)
    sigma = target.sigma_required(SIZES)
    mechanism = uplink_at(1.0 / (SIZES.sum() * sigma), 1.0, 1.0)
    assert mechanism.sigma == pytest.approx(sigma)
    said = state_published([mechanism] * 9, SIZES, delta=1e-5)
    assert said.epsilon[Accountant.LIU_SIMEONE] == pytest.approx(6.52, rel=1e-9)


def test_per_sample_clipping_earns_the_label() -> None:
    earned, other = uplink_at(1.0, 1.0, 1.0, record_bounded=True), uplink_at(1.0, 1.0, 1.0)
    assert state_published([earned, earned], SIZES, delta=1e-5).label is Label.RECORD
    assert state_published([earned, other], SIZES, delta=1e-5).label is Label.PAPER_CLAIM
    nothing = state_published([], SIZES, delta=1e-5)
    assert (nothing.label, nothing.epsilon[Accountant.LIU_SIMEONE]) == (Label.PAPER_CLAIM, 0.0)
