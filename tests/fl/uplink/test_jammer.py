"""The jammer of Theorems 2 and 4: as loud as the formula says, silent exactly where it may be, never too quiet."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fl.errors import PrivacyError
from fl.privacy.accountant import Accountant
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import state_privacy
from fl.privacy.target import PrivacyTarget
from fl.uplink.jammer import SILENT, FactorOn, JammerPlan, reachable_alpha_u, size_jammer

positive = st.floats(-4, 4).map(lambda exponent: 10.0**exponent)


def sigma_of(plan: JammerPlan, alpha_u: float, noise_std_real: float) -> float:
    """sigma^2 = (|h_CJ| alpha_CJ / alpha_u)^2 + sigma_c^2 / alpha_u^2."""
    return math.sqrt((plan.gain * plan.alpha / alpha_u) ** 2 + (noise_std_real / alpha_u) ** 2)


@pytest.mark.parametrize("alpha_u", [500.0, 1500.0, 3000.0, 1e5])
@pytest.mark.parametrize("gain", [0.3, 1.0, 2.2])
@pytest.mark.parametrize("epsilon", [1.0, 6.52, 30.0])
def test_theorem_two_literally(alpha_u: float, gain: float, epsilon: float) -> None:
    """alpha_CJ = (alpha_u/|h_CJ|) sqrt(M log(1/delta) / (2 n^2 a^2) - sigma_c^2/alpha_u^2), 0 where not real."""
    uplinks, samples, delta, noise_std_real = 80, 10_000, 1e-5, 1.0
    log_inverse = math.log(1 / delta)
    a = -log_inverse + math.sqrt(log_inverse**2 + epsilon * log_inverse)
    radicand = uplinks * log_inverse / (2 * samples**2 * a**2) - noise_std_real**2 / alpha_u**2
    literal = alpha_u / gain * math.sqrt(radicand) if radicand > 0 else 0.0

    target = PrivacyTarget(epsilon, delta, uplinks)
    plan = size_jammer(
        sigma_required=target.sigma_required(np.full(50, 200)),
        alpha_u=alpha_u,
        gain=gain,
        noise_std_real=noise_std_real,
    )
    assert plan.alpha == pytest.approx(literal, rel=1e-9)
    assert plan.needed == (literal > 0)
    assert plan.gain == gain


def test_both_cases_of_theorem_two_are_tested() -> None:
    """At (6.52, 1e-5) channel noise suffices for alpha_u below sigma_c / 7.41e-4 = 1350."""
    target = PrivacyTarget(6.52, 1e-5, 80).sigma_required(np.full(50, 200))
    for alpha_u, needed in ((1340.0, False), (1360.0, True)):
        plan = size_jammer(sigma_required=target, alpha_u=alpha_u, gain=1.0, noise_std_real=1.0)
        assert plan.needed is needed


@settings(max_examples=300, deadline=None)
@given(positive, positive, positive, positive)
def test_silent_exactly_where_the_channel_suffices_and_on_target_elsewhere(
    sigma_required: float, alpha_u: float, gain: float, noise_std_real: float
) -> None:
    plan = size_jammer(sigma_required=sigma_required, alpha_u=alpha_u, gain=gain, noise_std_real=noise_std_real)
    channel = noise_std_real / alpha_u
    if channel >= sigma_required:
        assert plan.alpha == 0.0
        assert not plan.needed
    if channel < sigma_required * (1 - 1e-11):
        assert plan.needed
    if plan.needed:
        assert sigma_of(plan, alpha_u, noise_std_real) == pytest.approx(sigma_required, rel=1e-12)
    else:
        assert sigma_of(plan, alpha_u, noise_std_real) >= sigma_required * (1 - 1e-11)


@settings(deadline=None)
@given(positive, positive)
def test_noise_that_is_just_enough_needs_no_jammer(sigma_required: float, noise_std_real: float) -> None:
    """alpha_u = sigma_c / sigma_required, rounded: a jammer of amplitude 1e-8 would be an artefact."""
    plan = size_jammer(
        sigma_required=sigma_required,
        alpha_u=noise_std_real / sigma_required,
        gain=1.0,
        noise_std_real=noise_std_real,
    )
    assert not plan.needed


@pytest.mark.parametrize(("factor_on", "times"), [(FactorOn.AMPLITUDE, 7.0), (FactorOn.VARIANCE, math.sqrt(7.0))])
def test_the_extra_factor(factor_on: FactorOn, times: float) -> None:
    """The paper's 7, on alpha_CJ or on its square."""
    bound = size_jammer(sigma_required=1.0, alpha_u=10.0, gain=0.5, noise_std_real=1.0)
    louder = size_jammer(
        sigma_required=1.0, alpha_u=10.0, gain=0.5, noise_std_real=1.0, factor=7.0, factor_on=factor_on
    )
    assert louder.alpha == pytest.approx(times * bound.alpha, rel=1e-14)
    silent = size_jammer(sigma_required=1.0, alpha_u=0.5, gain=0.5, noise_std_real=1.0, factor=7.0, factor_on=factor_on)
    assert not silent.needed, "a factor on nothing is nothing"


def test_the_limit_cuts_the_factor_and_never_the_bound() -> None:
    case = {"sigma_required": 1.0, "alpha_u": 10.0, "gain": 0.5, "noise_std_real": 1.0}
    bound = size_jammer(**case).alpha
    assert size_jammer(**case, factor=7.0, amplitude_limit=3 * bound).alpha == 3 * bound
    assert size_jammer(**case, factor=7.0, amplitude_limit=100 * bound).alpha == pytest.approx(7 * bound)
    assert size_jammer(**case, amplitude_limit=bound).alpha == bound
    for limit in (0.999 * bound, 0.0, -1.0, math.nan):
        with pytest.raises(PrivacyError, match="no client may send"):
            size_jammer(**case, factor=7.0, amplitude_limit=limit)


@pytest.mark.parametrize("gain", [0.0, math.nan, math.inf])
def test_a_jammer_that_cannot_be_heard_stops_the_clients_only_where_it_is_needed(gain: float) -> None:
    with pytest.raises(PrivacyError, match="no client may send"):
        size_jammer(sigma_required=1.0, alpha_u=10.0, gain=gain, noise_std_real=1.0)
    assert not size_jammer(sigma_required=1.0, alpha_u=0.5, gain=gain, noise_std_real=1.0).needed


@pytest.mark.parametrize("name", ["sigma_required", "alpha_u", "noise_std_real"])
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_values_without_meaning_are_refused(name: str, bad: float) -> None:
    case = {"sigma_required": 1.0, "alpha_u": 10.0, "gain": 0.5, "noise_std_real": 1.0, name: bad}
    with pytest.raises(PrivacyError, match=name):
        size_jammer(**case)


@pytest.mark.parametrize("factor", [0.99, 0.0, -7.0, math.nan, math.inf])
def test_a_factor_that_would_take_noise_away_is_refused(factor: float) -> None:
    with pytest.raises(PrivacyError, match="factor"):
        size_jammer(sigma_required=1.0, alpha_u=10.0, gain=0.5, noise_std_real=1.0, factor=factor)


def test_silence() -> None:
    assert not SILENT.needed
    assert SILENT.alpha == 0.0


reachable_cases = st.tuples(positive, positive, st.one_of(st.just(0.0), positive), positive, positive)


@settings(max_examples=300, deadline=None)
@given(reachable_cases)
def test_after_lowering_alpha_u_the_bound_is_always_met(case: tuple[float, float, float, float, float]) -> None:
    """For any channel, limit and wish: nothing raises, the limit is kept, and sigma is at least what is needed."""
    wanted, sigma_required, gain, noise_std_real, limit = case
    alpha_u = reachable_alpha_u(
        wanted, sigma_required=sigma_required, gain=gain, noise_std_real=noise_std_real, amplitude_limit=limit
    )
    assert 0 < alpha_u <= wanted
    plan = size_jammer(
        sigma_required=sigma_required,
        alpha_u=alpha_u,
        gain=gain,
        noise_std_real=noise_std_real,
        amplitude_limit=limit,
    )
    assert plan.alpha <= limit
    assert sigma_of(plan, alpha_u, noise_std_real) >= sigma_required * (1 - 1e-11)


@settings(max_examples=200, deadline=None)
@given(reachable_cases)
def test_alpha_u_is_lowered_only_where_it_must_be(case: tuple[float, float, float, float, float]) -> None:
    wanted, sigma_required, gain, noise_std_real, limit = case
    alpha_u = reachable_alpha_u(
        wanted, sigma_required=sigma_required, gain=gain, noise_std_real=noise_std_real, amplitude_limit=limit
    )
    assume(alpha_u < wanted)
    with pytest.raises(PrivacyError):
        size_jammer(
            sigma_required=sigma_required,
            alpha_u=alpha_u * (1 + 1e-6),
            gain=gain,
            noise_std_real=noise_std_real,
            amplitude_limit=limit,
        )


@settings(max_examples=60, deadline=None)
@given(
    epsilon=st.floats(0.05, 50),
    label=st.sampled_from(Label),
    neighbours=st.sampled_from(Neighbours),
    accountant=st.sampled_from([Accountant.PAPER, Accountant.EXACT]),
    rounds=st.lists(st.tuples(positive, positive, positive), min_size=1, max_size=8),
)
def test_rounds_with_any_channel_spend_no_more_than_the_target(
    epsilon: float,
    label: Label,
    neighbours: Neighbours,
    accountant: Accountant,
    rounds: list[tuple[float, float, float]],
) -> None:
    """Epsilon recomputed from the mechanisms, with every client at s = 1."""
    sizes, noise_std_real = np.array([100, 300, 600]), 1.0
    target = PrivacyTarget(epsilon, 1e-5, len(rounds), label, neighbours, accountant)
    sigma_required = target.sigma_required(sizes)
    mechanisms = []
    for number, (wanted, gain, limit) in enumerate(rounds, start=1):
        alpha_u = reachable_alpha_u(
            wanted, sigma_required=sigma_required, gain=gain, noise_std_real=noise_std_real, amplitude_limit=limit
        )
        plan = size_jammer(
            sigma_required=sigma_required,
            alpha_u=alpha_u,
            gain=gain,
            noise_std_real=noise_std_real,
            amplitude_limit=limit,
        )
        mechanisms.append(
            RoundMechanism(
                uplink=number,
                received_gains=(1.0, 1.0, 1.0),
                sigma=sigma_of(plan, alpha_u, noise_std_real),
                sigma_origin=SigmaOrigin.SIMULATED,
                record_bounded=True,
                clip_norm=1.0,
                alpha_u=alpha_u,
                alpha_cj=plan.alpha,
                jammer_gain=plan.gain,
                noise_std_real=noise_std_real,
            )
        )
    said = state_privacy(mechanisms, sizes, label=label, neighbours=neighbours, delta=1e-5)
    assert said.epsilon[accountant] <= epsilon * (1 + 1e-9)
