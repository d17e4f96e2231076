"""Liu and Simeone's power control: the optimum of its convex problem, its budget, its limits, its rule as printed.

Oracles: scipy's general solvers on the same problem, the Karush-Kuhn-Tucker conditions, and the published rule.
"""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize

from calibration.gains import GainsTable
from fl.errors import ConfigError
from fl.privacy.accountant import Accountant
from fl.privacy.liu_simeone import published_target
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import state_privacy
from fl.privacy.target import PrivacyTarget
from fl.random_streams import Stream, generator
from fl.uplink.alpha_u import PowerSettings, Scheduled
from fl.uplink.channel import Channel, FileChannel, RayleighChannel
from fl.uplink.jammer import JammerRole
from fl.uplink.liu_simeone import Allocation, allocate, largest_alpha_u, water_level
from fl.uplink.symbol import JammerSettings, SymbolUplink

Floats = NDArray[np.float64]
SIZES = np.array([61, 200, 505])
NOISE, TAU = 1.3, 0.6
N = float(SIZES.sum())

targets = st.builds(
    PrivacyTarget,
    epsilon=st.floats(-2, 2).map(lambda exponent: 10.0**exponent),
    delta=st.just(1e-5),
    uplinks=st.just(1),
    label=st.sampled_from(Label),
    neighbours=st.sampled_from(Neighbours),
    accountant=st.sampled_from([Accountant.PAPER, Accountant.EXACT, Accountant.LIU_SIMEONE]),
)
limits_over_12_orders = st.lists(st.floats(-6, 6).map(lambda e: 10.0**e), min_size=1, max_size=30).map(np.array)
contractions = st.one_of(st.just(0.0), st.floats(1e-6, 0.5))


def allocated(largest: Floats, target: PrivacyTarget, contraction: float) -> Allocation:
    return allocate(largest, target, sizes=SIZES, noise_std_real=NOISE, clip_norm=TAU, contraction=contraction)


def spent(alpha_u: Floats, target: PrivacyTarget) -> float:
    """S, from its definition: 1/2 sum (Delta/sigma_t)^2, sigma_t = sigma_c/alpha_u."""
    return float(0.5 * np.sum((target.sensitivity(SIZES) * alpha_u / NOISE) ** 2))


def objective(alpha_u: Floats, contraction: float) -> float:
    """sum_t (1 - mu/L)^-t N_0/c_t^2 with c_t = alpha_u/(n tau) and N_0 = sigma_c^2."""
    t = np.arange(1, alpha_u.size + 1)
    return float(np.sum((1 - contraction) ** (-t) * NOISE**2 / (alpha_u / (N * TAU)) ** 2))


def target_of(epsilon: float, accountant: Accountant = Accountant.PAPER) -> PrivacyTarget:
    return PrivacyTarget(epsilon=epsilon, delta=1e-5, uplinks=1, accountant=accountant)


def by_general_solver(largest: Floats, target: PrivacyTarget, contraction: float) -> Floats:
    """The same convex problem in q_t = alpha_u^2, scaled to order one, by SLSQP from a point inside."""
    q_max = largest**2
    price = spent(np.ones(1), target)
    weights = (1 - contraction) ** -np.arange(1, largest.size + 1)
    total = target.total_loss / price
    unit = total / largest.size
    start = np.minimum(q_max, unit) * 0.5 / unit
    scale = float(np.sum(weights / start))
    found = minimize(
        lambda q: np.sum(weights / q) / scale,
        start,
        jac=lambda q: -weights / q**2 / scale,
        bounds=[(1e-9, top) for top in q_max / unit],
        constraints=[{"type": "ineq", "fun": lambda q: total / unit - q.sum(), "jac": lambda q: -np.ones(q.size)}],
        method="SLSQP",
        options={"maxiter": 2000, "ftol": 1e-15},
    )
    assert found.success, found.message
    solution: Floats = np.sqrt(found.x * unit)
    return solution


def instance(seed: int) -> tuple[Floats, PrivacyTarget, float]:
    """Limits around an equal share of the budget, so that some uplinks are limited and some are not; or all below."""
    rng = np.random.default_rng(seed)
    uplinks, contraction = int(rng.integers(3, 15)), float(rng.choice([0.0, 0.02, 0.1, 0.3]))
    target = target_of(float(rng.uniform(0.5, 20)), [Accountant.PAPER, Accountant.LIU_SIMEONE][seed % 2])
    fair = math.sqrt(target.total_loss / spent(np.ones(1), target) / uplinks)
    return fair * rng.lognormal(-1.5 if seed % 4 == 3 else 0.2, 0.7, uplinks), target, contraction


@pytest.mark.parametrize("seed", range(12))
def test_a_general_solver_finds_nothing_better(seed: int) -> None:
    """Equal objectives to 1e-6, budget and limits met by both."""
    largest, target, contraction = instance(seed)
    ours = allocated(largest, target, contraction)
    other = by_general_solver(largest, target, contraction)
    assert objective(ours.alpha_u, contraction) == pytest.approx(objective(other, contraction), rel=1e-6)
    assert np.all(ours.alpha_u <= largest)
    assert spent(ours.alpha_u, target) <= target.total_loss * (1 + 1e-12)
    if not ours.free:
        np.testing.assert_allclose(ours.alpha_u, other, rtol=2e-3)
        # Moving a tenth of an unlimited uplink's power to another one within its limit is noticed.
        first, second = np.flatnonzero(~ours.limited)[[0, -1]]
        moved = ours.alpha_u**2
        moved[second] += 0.1 * moved[first]
        moved[first] *= 0.9
        if first != second:
            assert objective(np.sqrt(moved), contraction) > objective(ours.alpha_u, contraction) * (1 + 1e-6)


def test_what_is_compared_is_of_every_kind() -> None:
    plans = [allocated(*instance(seed)) for seed in range(12)]
    assert any(plan.free for plan in plans)
    assert any(not plan.free and plan.limited.any() and np.count_nonzero(~plan.limited) > 1 for plan in plans)


@settings(max_examples=300, deadline=None)
@given(limits_over_12_orders, targets, contractions)
def test_the_kkt_conditions(largest: Floats, target: PrivacyTarget, contraction: float) -> None:
    """Necessary and sufficient, because the problem is convex: feasible; the budget is spent unless all is limited; one
    multiplier joins the derivatives of objective and loss wherever c_t^2 < X_t, and is no larger where c_t^2 = X_t.
    """
    plan = allocated(largest, target, contraction)
    alpha_u = plan.alpha_u
    assert np.all(alpha_u > 0)
    assert np.all(alpha_u <= largest)
    assert spent(alpha_u, target) <= target.total_loss * (1 + 1e-12)
    assert plan.planned == pytest.approx(spent(alpha_u, target), rel=1e-12)
    np.testing.assert_array_equal(alpha_u[plan.limited], largest[plan.limited])
    # d objective / d c^2 over d loss / d c^2, up to one common factor, in logarithms: t large and c small are extreme.
    t = np.arange(1, largest.size + 1)
    multipliers = -t * math.log1p(-contraction) - 4 * np.log(alpha_u)
    if plan.free:
        assert spent(largest, target) <= target.total_loss * (1 + 1e-12)
        np.testing.assert_array_equal(alpha_u, largest)
        assert plan.zeta == 0.0
    else:
        assert spent(alpha_u, target) == pytest.approx(target.total_loss, rel=1e-12)
        inside = multipliers[~plan.limited]
        assert inside.size > 0
        np.testing.assert_allclose(inside, inside[0], rtol=0, atol=1e-9)
        assert np.all(multipliers[plan.limited] >= inside[0] - 1e-9)
        assert plan.zeta > 0


@settings(max_examples=200, deadline=None)
@given(limits_over_12_orders, targets, contractions)
def test_the_rule_as_printed_with_the_zeta_that_is_told(
    largest: Floats, target: PrivacyTarget, contraction: float
) -> None:
    """c_t^2 = min{N_0 (1 - mu/L)^(-t/2) / (sqrt(2 zeta) gamma), X_t} gives alpha_u = n gamma c_t back."""
    plan = allocated(largest, target, contraction)
    t = np.arange(1, largest.size + 1)
    x = (largest / (N * TAU)) ** 2
    c_squared = (
        x if plan.free else np.minimum(NOISE**2 * (1 - contraction) ** (-t / 2) / (math.sqrt(2 * plan.zeta) * TAU), x)
    )
    np.testing.assert_allclose(plan.alpha_u, N * TAU * np.sqrt(c_squared), rtol=1e-9)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-12, 12), st.floats(-12, 0)), min_size=1, max_size=40),
    st.floats(-12, 0).map(lambda exponent: 10.0**exponent),
)
def test_the_level_is_the_root_that_bisection_would_find(pairs: list[tuple[float, float]], part: float) -> None:
    """Limits over 24 orders of magnitude, shares over 12, totals down to 1e-12 of what there is."""
    limits, shares = np.array([10.0**a for a, _ in pairs]), np.array([10.0**b for _, b in pairs])
    total = part * float(limits.sum())
    level = water_level(shares, limits, total)
    if part == 1.0:
        assert level == math.inf
        return

    def missing(log_level: float) -> float:
        return math.log(np.minimum(shares * math.exp(log_level), limits).sum() / total)

    assert math.isfinite(level)
    assert np.minimum(shares * level, limits).sum() == pytest.approx(total, rel=1e-12)
    root = brentq(missing, math.log(total) - 80, math.log((limits / shares).max()) + 1e-9, xtol=1e-13)
    # Where the total is nearly all there is, levels far apart spend the same to rounding.
    if part < 1 - 1e-6:
        assert math.log(level) == pytest.approx(root, abs=1e-6)


def test_a_large_limit_does_not_wash_out_small_ones() -> None:
    assert water_level(np.ones(2), np.array([1.0, 1e20]), 3.0) == 2.0
    assert water_level(np.ones(3), np.array([1e-20, 1e20, 1.0]), 0.5) == pytest.approx(0.25, rel=1e-15)


def test_without_contraction_all_uplinks_are_alike_but_for_the_limits() -> None:
    """Budget for three at 100, one of four cannot: the others share what it leaves."""
    target = target_of(1.0)
    unit = math.sqrt(target.total_loss / spent(np.ones(1), target))
    plan = allocated(np.array([9.0, 0.1, 9.0, 9.0]) * unit, target, 0.0)
    np.testing.assert_array_equal(plan.limited, [False, True, False, False])
    np.testing.assert_allclose(
        plan.alpha_u / unit, [math.sqrt(0.33), 0.1, math.sqrt(0.33), math.sqrt(0.33)], rtol=1e-12
    )


def test_contraction_saves_power_for_late_uplinks() -> None:
    plan = allocated(np.full(20, 1e9), target_of(1.0), 0.19)
    assert not plan.limited.any()
    np.testing.assert_allclose(np.diff(np.log(plan.alpha_u**2)), -0.5 * math.log(0.81), rtol=1e-9)


def test_a_tiny_contraction_is_continuous_with_none() -> None:
    largest = np.random.default_rng(3).lognormal(5.0, 1.0, 50)
    none, tiny = (allocated(largest, target_of(3.0), contraction) for contraction in (0.0, 1e-12))
    np.testing.assert_allclose(tiny.alpha_u, none.alpha_u, rtol=1e-9)


def test_privacy_is_free_exactly_up_to_the_budget() -> None:
    largest = np.array([100.0, 200.0, 400.0], np.float64)
    at = spent(largest, target_of(1.0))
    needed = PrivacyTarget(epsilon=1.0, delta=1e-5, uplinks=3)
    enough = largest * math.sqrt(needed.total_loss / at) * (1 - 1e-12)
    assert allocated(enough, needed, 0.1).free
    assert not allocated(enough * (1 + 1e-9), needed, 0.1).free
    said = allocated(enough, needed, 0.1).to_json()
    assert (said["privacy_free"], said["zeta"], said["uplinks_limited_by_power"]) == (True, 0.0, 3)


def test_too_much_contraction_for_so_many_uplinks_is_refused_with_what_would_do() -> None:
    with pytest.raises(ConfigError, match=r"power\.contraction is 0\.999999: over 80 uplinks.*at most") as caught:
        allocated(np.full(80, 1.0), target_of(1.0), 0.999999)
    advised = float(str(caught.value).rsplit(" ", 1)[1])
    assert np.all(allocated(np.full(80, 1.0), target_of(1.0), advised * 0.999).alpha_u > 0)


def test_the_published_budget_is_smaller_for_the_same_epsilon() -> None:
    """Twice the sensitivity outweighs the tighter bound: sqrt(4 * 0.730 / 0.827) = 1.88 times the noise."""
    uplinks, largest = 80, np.full(80, 1e9)
    ours = allocated(largest, PrivacyTarget(epsilon=6.52, delta=1e-5, uplinks=uplinks), 0.0)
    theirs = allocated(largest, published_target(6.52, 1e-5, uplinks), 0.0)
    assert ours.alpha_u[0] / theirs.alpha_u[0] == pytest.approx(1.88, abs=0.005)


def uplink_of(channel: Channel, limits: Floats, alpha_u: Floats) -> SymbolUplink:
    return SymbolUplink(
        sizes=SIZES,
        coordinates=40,
        clip_norm=TAU,
        record_bounded=False,
        channel=channel,
        noise_std_real=NOISE,
        limits=limits,
        power=PowerSettings(Scheduled(tuple(alpha_u.tolist()))),
        jammer=JammerSettings(JammerRole.NONE),
        streams=partial(generator, 5),
    )


@pytest.mark.parametrize("contraction", [0.0, 0.05])
@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("label", [Label.PAPER_CLAIM, Label.CLIENT])
def test_the_uplinks_spend_the_target_and_nobody_backs_off(
    contraction: float, neighbours: Neighbours, label: Label
) -> None:
    """Through the real uplink: the gains it plans with are those the allocation was given; every s_i is exactly 1."""
    uplinks = 30
    target = PrivacyTarget(epsilon=2.0, delta=1e-5, uplinks=uplinks, label=label, neighbours=neighbours)
    channel, streams = RayleighChannel(len(SIZES)), partial(generator, 5)
    fair = NOISE / target.sigma_required(SIZES)
    limits = np.full(len(SIZES), fair**2)
    largest = largest_alpha_u(channel, streams, SIZES, limits, uplinks)
    plan = allocated(largest, target, contraction)
    assert not plan.free
    assert 0 < np.count_nonzero(plan.limited) < uplinks
    uplink = uplink_of(channel, limits, plan.alpha_u)
    plans = [uplink.plan(number) for number in range(1, uplinks + 1)]
    for number, made in enumerate(plans):
        weights = SIZES / N
        assert made.alpha_u == plan.alpha_u[number]
        assert {power.backoff for power in made.powers} == {1.0}
        largest_here = np.min(np.abs(made.gains) * np.sqrt(limits) / weights)
        assert largest[number] == pytest.approx(largest_here, rel=1e-14)
        x = np.min(limits * np.abs(made.gains) ** 2 / (SIZES * TAU) ** 2)
        assert largest[number] == pytest.approx(N * TAU * math.sqrt(x), rel=1e-12)
        if plan.limited[number]:
            weakest = max(
                abs(power.alpha) ** 2 * TAU**2 / limit for power, limit in zip(made.powers, limits, strict=True)
            )
            assert weakest == pytest.approx(1.0, rel=1e-12)
    said = state_privacy([made.mechanism for made in plans], SIZES, label=label, neighbours=neighbours, delta=1e-5)
    assert said.epsilon[Accountant.PAPER] == pytest.approx(2.0, rel=1e-9)


def test_a_client_without_a_channel_is_refused() -> None:
    gains = np.ones((4, 3), np.complex128)
    gains[2, 1] = 0.0
    channel = FileChannel(GainsTable(gains, None, "test"), clients=3, uplinks=4, jammer_needed=False)
    with pytest.raises(ConfigError, match=r"client 1 has gain 0 in uplink 3.*power\.control = 'adaptive'"):
        largest_alpha_u(channel, partial(generator, 1), SIZES, np.ones(3), 4)


def test_a_nearly_deaf_client_costs_its_uplink_only() -> None:
    """|h| = 1e-150, whose square is still a number and whose share of the budget is not: the others get it."""
    gains = np.ones((3, 3), np.complex128)
    gains[1, 2] = 1e-150j
    channel = FileChannel(GainsTable(gains, None, "test"), clients=3, uplinks=3, jammer_needed=False)
    largest = largest_alpha_u(channel, partial(generator, 1), SIZES, np.full(3, 1e12), 3)
    target = target_of(1.0)
    plan = allocated(largest, target, 0.0)
    np.testing.assert_array_equal(plan.limited, [False, True, False])
    assert plan.alpha_u[0] == plan.alpha_u[2]
    assert spent(plan.alpha_u, target) == pytest.approx(target.total_loss, rel=1e-12)


def test_the_gains_do_not_depend_on_how_many_uplinks_are_asked_for() -> None:
    channel, limits = RayleighChannel(3), np.ones(3)
    few, many = (largest_alpha_u(channel, partial(generator, 9), SIZES, limits, count) for count in (5, 50))
    np.testing.assert_array_equal(few, many[:5])
    assert len(set(many)) == 50
    # Each uplink's generator is asked once, from its beginning.
    state = channel.state(3, generator(9, Stream.CHANNEL, 3))
    assert few[2] == pytest.approx(float(np.min(np.abs(state.clients) / (SIZES / N))), rel=1e-14)
