"""The symbol uplink: y = sum_i h_i x_i + h_CJ x_CJ + z, its noise as the mechanism claims, nothing sent unplanned."""

import math
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

import fl.uplink.symbol
from calibration.gains import GainsTable
from fl.errors import ConfigError, PrivacyError
from fl.privacy.accountant import Accountant
from fl.privacy.clipping import BoundedUpdate, clip_update, mean_of_clipped
from fl.privacy.mechanism import SigmaOrigin
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import state_privacy
from fl.privacy.target import PrivacyTarget
from fl.random_streams import generator
from fl.uplink.alpha_u import AlphaU, Fixed, Largest, PowerSettings
from fl.uplink.channel import FileChannel, RayleighChannel, StaticChannel
from fl.uplink.contract import Aggregate, UplinkPlan
from fl.uplink.jammer import FactorOn, JammerRole, JammerSettings
from fl.uplink.modes import Backoff, Rescale
from fl.uplink.power_control import alpha_u_for_noise, power_limit
from fl.uplink.symbol import MAX_POSTPONED, SymbolUplink

SIZES = np.array([100, 200, 300, 400])
TAU = 2.0
WEIGHTS = SIZES / SIZES.sum()


def uplink_of(**changes: Any) -> SymbolUplink:
    """Four clients in Rayleigh fading, with power to spare and no jammer, unless changed."""
    given_settings: dict[str, Any] = {
        "sizes": SIZES,
        "coordinates": 301,
        "clip_norm": TAU,
        "record_bounded": False,
        "channel": RayleighChannel(len(SIZES)),
        "noise_std_real": 0.5,
        "limits": np.full(len(SIZES), 1e9),
        "jammer": JammerSettings(),
        "streams": partial(generator, 11),
    }
    power = {name: changes.pop(name) for name in ("alpha_u", "backoff", "rescale") if name in changes}
    rule = power.pop("alpha_u", 100.0)
    settings = PowerSettings(Fixed(rule) if isinstance(rule, float) else rule, **power)
    return SymbolUplink(power=settings, **{**given_settings, **changes})


def carry(uplink: SymbolUplink, plan: UplinkPlan, updates: Iterable[tuple[int, BoundedUpdate]]) -> Aggregate:
    """Exchange, authorised by nobody."""
    return uplink.exchange(plan, updates, lambda: None)


def channel_of(gains: list[complex], jammer: complex | None = None) -> FileChannel:
    table = GainsTable(
        np.array([gains], np.complex128), None if jammer is None else np.array([jammer], np.complex128), "test"
    )
    return FileChannel(table, clients=len(gains), uplinks=99, jammer_needed=jammer is not None)


def updates_of(uplink: SymbolUplink, scale: float = 1.0) -> list[BoundedUpdate]:
    rng = np.random.default_rng(5)
    return [
        clip_update((scale * rng.standard_normal(uplink.coordinates)).astype(np.float32), uplink.clip_norm)
        for _ in uplink.sizes
    ]


def sent_by(plan: UplinkPlan, updates: list[BoundedUpdate]) -> Iterator[tuple[int, BoundedUpdate]]:
    return ((client, updates[client]) for client in plan.senders)


@settings(max_examples=40, deadline=None)
@given(
    coordinates=st.integers(1, 40),
    number=st.integers(1, 1000),
    limit_db=st.floats(-40, 40),
    rescale=st.sampled_from(Rescale),
)
def test_without_noise_it_is_the_weighted_sum(coordinates: int, number: int, limit_db: float, rescale: Rescale) -> None:
    """sum_i (p_i/s_i) u_i, times 1/tau where taken literally; complex gains, odd and even d, with and without back-off.

    Oracle: the sum in float64. The tolerance is float32's, relative to the clip norm.
    """
    uplink = uplink_of(
        coordinates=coordinates,
        noise_std_real=1e-12,
        alpha_u=1.0,
        limits=np.full(len(SIZES), 10 ** (limit_db / 10)),
        rescale=rescale,
    )
    plan = uplink.plan(number)
    updates = updates_of(uplink)
    aggregate = carry(uplink, plan, sent_by(plan, updates))
    backoffs = [
        max(1.0, float(p / (abs(h) * math.sqrt(limit))))
        for p, h, limit in zip(WEIGHTS, plan.gains, uplink.limits, strict=True)
    ]
    expected = sum(p / s * u.values.astype(np.float64) for p, s, u in zip(WEIGHTS, backoffs, updates, strict=True))
    if rescale is Rescale.LITERAL:
        expected = expected / TAU
    assert aggregate.values.shape == (coordinates,)
    assert aggregate.values.dtype == np.float32
    np.testing.assert_allclose(aggregate.values, expected, rtol=0, atol=2e-6 * TAU)
    assert aggregate.signal_norm == pytest.approx(float(np.linalg.norm(expected)), rel=1e-4, abs=1e-5)
    assert aggregate.mechanism.received_gains == pytest.approx([1 / s for s in backoffs], rel=1e-12)


def noise_p_value(values: NDArray[np.float32], std: float) -> float:
    """Two-sided chi-square test of a known standard deviation, mean zero."""
    lower = float(stats.chi2.cdf(np.sum(np.square(values.astype(np.float64))) / std**2, values.size))
    return 2 * min(lower, 1 - lower)


@pytest.mark.parametrize("rescale", list(Rescale))
@pytest.mark.parametrize("role", [JammerRole.NONE, JammerRole.DEDICATED, JammerRole.ROTATING])
def test_the_aggregates_noise_is_what_the_mechanism_claims(role: JammerRole, rescale: Rescale) -> None:
    """Variance tau^2 sigma^2 per real coordinate, on I and on Q, accepted; a sigma 3 % off in either direction, and the
    complex variance taken for the real one, rejected. Oracle: the chi-square distribution of a sum of squares."""
    uplink = uplink_of(
        coordinates=60_000,
        rescale=rescale,
        channel=channel_of([0.9 + 0.1j, 1j, -1.2, 0.7 - 0.7j], jammer=0.3 - 0.4j),
        limits=np.full(len(SIZES), 1e12),
        jammer=JammerSettings(role=role, sigma_required=0.01 if role is not JammerRole.NONE else 0.0),
    )
    plan = uplink.plan(1)
    assert plan.jammer.needed == (role is not JammerRole.NONE)
    assert plan.mechanism.sigma == pytest.approx(0.01 if plan.jammer.needed else 0.5 / 100, rel=1e-12)
    silence = [clip_update(np.zeros(uplink.coordinates, np.float32), TAU)] * len(SIZES)
    aggregate = carry(uplink, plan, sent_by(plan, silence))
    std = plan.mechanism.sigma * (TAU if rescale is Rescale.RESCALED else 1.0)
    in_phase, quadrature = aggregate.values[0::2], aggregate.values[1::2]
    for axis in (in_phase, quadrature):
        assert noise_p_value(axis, std) > 1e-3
        assert stats.kstest(axis / std, "norm").pvalue > 1e-3
        for wrong in (0.97, 1.03, math.sqrt(0.5), math.sqrt(2.0)):
            assert noise_p_value(axis, wrong * std) < 1e-6
    assert abs(np.corrcoef(in_phase, quadrature)[0, 1]) < 4 / math.sqrt(30_000)
    assert aggregate.noise_norm == pytest.approx(float(np.linalg.norm(aggregate.values)), rel=1e-5)


def test_sigma_is_the_formula() -> None:
    """sigma^2 = (|h_CJ| alpha_CJ/alpha_u)^2 + sigma_c^2/alpha_u^2, with everything it is made of beside it."""
    uplink = uplink_of(
        channel=channel_of([1, 1, 1, 1], jammer=0.3 - 0.4j),
        jammer=JammerSettings(JammerRole.DEDICATED, sigma_required=0.02, factor=7.0, factor_on=FactorOn.VARIANCE),
    )
    mechanism = uplink.plan(1).mechanism
    assert mechanism.jammer_gain == pytest.approx(0.5)
    assert mechanism.alpha_cj == pytest.approx(100 / 0.5 * math.sqrt(0.02**2 - (0.5 / 100) ** 2) * math.sqrt(7.0))
    assert mechanism.sigma == pytest.approx(math.sqrt((0.5 * mechanism.alpha_cj / 100) ** 2 + (0.5 / 100) ** 2))
    assert (mechanism.alpha_u, mechanism.noise_std_real, mechanism.clip_norm) == (100.0, 0.5, TAU)
    assert mechanism.sigma_origin is SigmaOrigin.SIMULATED


def test_noise_does_not_depend_on_what_is_sent() -> None:
    uplink = uplink_of()
    plan = uplink.plan(3)
    loud, quiet = updates_of(uplink), updates_of(uplink, scale=1e-3)
    with_loud, with_quiet = (carry(uplink, plan, sent_by(plan, updates)).values for updates in (loud, quiet))
    difference = with_loud - with_quiet
    expected = sum(p * (a.values - b.values) for p, a, b in zip(WEIGHTS, loud, quiet, strict=True))
    np.testing.assert_allclose(difference, expected, atol=1e-5)


def test_noise_norm_counts_the_coordinates_that_are_handed_over() -> None:
    """An odd d leaves one Q empty: its noise is no part of the aggregate."""
    uplink = uplink_of(coordinates=1)
    plan = uplink.plan(1)
    silence = [clip_update(np.zeros(1, np.float32), TAU)] * len(SIZES)
    aggregate = carry(uplink, plan, sent_by(plan, silence))
    assert aggregate.noise_norm == pytest.approx(abs(float(aggregate.values[0])), rel=1e-6)


def test_the_scale_at_the_server_is_post_processing() -> None:
    rescaled, literal = (uplink_of(rescale=rescale) for rescale in (Rescale.RESCALED, Rescale.LITERAL))
    plan = rescaled.plan(1)
    assert literal.plan(1).mechanism == plan.mechanism
    updates = updates_of(rescaled)
    one, other = (carry(u, plan, sent_by(plan, updates)).values for u in (rescaled, literal))
    np.testing.assert_allclose(one, TAU * other, rtol=1e-5)


def test_everything_repeats_by_its_streams() -> None:
    def values(seed: int, number: int) -> NDArray[np.float32]:
        uplink = uplink_of(streams=partial(generator, seed))
        plan = uplink.plan(number)
        return carry(uplink, plan, sent_by(plan, updates_of(uplink))).values

    np.testing.assert_array_equal(values(1, 1), values(1, 1))
    assert not np.any(values(1, 1) == values(1, 2))
    assert not np.any(values(1, 1) == values(2, 1))


def test_the_jammers_noise_is_not_the_receivers() -> None:
    """Were they drawn from one stream they would add up in amplitude: (a + b)^2 instead of a^2 + b^2."""
    uplink = uplink_of(
        coordinates=20_000,
        channel=StaticChannel(len(SIZES)),
        jammer=JammerSettings(JammerRole.DEDICATED, sigma_required=0.005 * math.sqrt(2)),
    )
    plan = uplink.plan(1)
    assert plan.jammer.gain * plan.jammer.alpha == pytest.approx(0.5)
    silence = [clip_update(np.zeros(uplink.coordinates, np.float32), TAU)] * len(SIZES)
    values = carry(uplink, plan, sent_by(plan, silence)).values
    assert noise_p_value(values, TAU * 0.005 * math.sqrt(2)) > 1e-3
    assert noise_p_value(values, TAU * 0.005 * 2) < 1e-6


def test_a_plan_is_public() -> None:
    """It is made before there are updates, and neither preparing nor exchanging changes it or the next one."""
    uplink = uplink_of(backoff=Backoff.ACTUAL)
    before, after_before = uplink.plan(1), uplink.plan(2)
    for scale in (1e-6, 1e6):
        plan = uplink.plan(1)
        aggregate = carry(uplink, plan, sent_by(plan, updates_of(uplink, scale)))
        assert aggregate.mechanism == before.mechanism
        assert plan.powers == before.powers
        assert uplink.plan(2).mechanism == after_before.mechanism


def test_a_clients_decision_takes_nothing_of_the_others() -> None:
    """With alpha_u broadcast, another client's gain, limit or share among the others changes nothing for client 0."""
    gains: list[complex] = [0.2 + 0.1j, 1, 1j, -1]
    base = uplink_of(channel=channel_of(gains), limits=np.full(4, 30.0))
    assert base.plan(1).powers[0].backoff > 1
    for changes in (
        {"channel": channel_of([gains[0], 0.01, 100j, 0])},
        {"limits": np.array([30.0, 1.0, 1e-3, 1e5])},
        {"sizes": np.array([100, 400, 300, 200])},
    ):
        assert (
            uplink_of(**{"channel": channel_of(gains), "limits": np.full(4, 30.0), **changes}).plan(1).powers[0]
            == (base.plan(1).powers[0])
        )


@pytest.mark.parametrize("backoff", list(Backoff))
def test_transmitted_energy_keeps_the_limits(backoff: Backoff) -> None:
    """Oracle: ||x_i||^2 = |alpha_i|^2 ||u_i||^2; tight where a client backs off and its update has norm tau."""
    uplink = uplink_of(backoff=backoff, limits=np.array([30.0, 50.0, 1e5, 900.0]))
    for number in range(1, 20):
        plan = uplink.plan(number)
        updates = updates_of(uplink)
        sent = carry(uplink, plan, sent_by(plan, updates)).contributions
        assert np.all(sent.transmit_energy <= uplink.limits * (1 + 1e-5))
        for client, update in enumerate(updates):
            alpha = 100 * WEIGHTS[client] / (abs(plan.gains[client]) * TAU * sent.backoffs[client])
            norm = float(np.linalg.norm(update.values))
            assert sent.transmit_energy[client] == pytest.approx((alpha * norm) ** 2, rel=1e-4)
            if sent.backoffs[client] > 1:
                assert sent.transmit_energy[client] == pytest.approx(uplink.limits[client], rel=1e-4)
        assert sent.clipped == len(SIZES)


def test_actual_backoff_sends_more_of_a_short_update_and_claims_only_s_of_one() -> None:
    limits = np.full(4, 30.0)
    worst, actual = (uplink_of(backoff=backoff, limits=limits) for backoff in (Backoff.WORST_CASE, Backoff.ACTUAL))
    plan = actual.plan(1)
    assert max(power.backoff for power in plan.powers) > 1
    assert plan.mechanism.received_gains == (1.0, 1.0, 1.0, 1.0)
    assert worst.plan(1).mechanism.received_gains == tuple(power.received_gain for power in plan.powers)
    short = updates_of(actual, scale=TAU / (4 * math.sqrt(actual.coordinates)))
    used = carry(actual, plan, sent_by(plan, short)).contributions.backoffs
    planned = carry(worst, worst.plan(1), sent_by(plan, short)).contributions.backoffs
    np.testing.assert_array_equal(planned, [power.backoff for power in plan.powers])
    assert np.all(used <= planned)
    assert np.any(used < planned)
    long = updates_of(actual)
    np.testing.assert_allclose(carry(actual, plan, sent_by(plan, long)).contributions.backoffs, planned, rtol=1e-6)


def test_the_largest_alpha_u_keeps_every_backoff_at_one() -> None:
    """min_i |h_i| sqrt(P_i) / p_i, anew in each uplink; the weakest client then uses all of its power."""
    uplink = uplink_of(alpha_u=Largest(), limits=np.array([1.0, 5.0, 2.0, 30.0]))
    seen = set()
    for number in range(1, 30):
        plan = uplink.plan(number)
        expected = np.min(np.abs(plan.gains) * np.sqrt(uplink.limits) / WEIGHTS)
        assert plan.alpha_u == pytest.approx(float(expected), rel=1e-12)
        assert {power.backoff for power in plan.powers} == {1.0}
        assert plan.mechanism.received_gains == (1.0,) * 4
        assert plan.mechanism.sigma == pytest.approx(0.5 / plan.alpha_u)
        energies = [abs(power.alpha) ** 2 * TAU**2 for power in plan.powers]
        assert max(np.array(energies) / uplink.limits) == pytest.approx(1.0, rel=1e-9)
        seen.add(plan.alpha_u)
    assert len(seen) == 29


def test_alpha_u_on_target_needs_no_jammer_and_meets_the_target() -> None:
    """The paper's numbers: 1 dB, (6.52, 1e-5), 80 uplinks; channel noise alone is 7.41e-4 for 10,000 samples."""
    sizes = np.full(50, 200)
    target = PrivacyTarget(6.52, 1e-5, 80)
    uplink = uplink_of(
        sizes=sizes,
        channel=RayleighChannel(50),
        noise_std_real=1.0,
        limits=np.full(50, power_limit(1.0, 155_830, 1.0)),
        alpha_u=alpha_u_for_noise(1.0, target.sigma_required(sizes)),
        jammer=JammerSettings(JammerRole.DEDICATED, sigma_required=target.sigma_required(sizes)),
    )
    plans = [uplink.plan(number) for number in range(1, 81)]
    assert not any(plan.jammer.needed for plan in plans)
    assert all(plan.mechanism.sigma == pytest.approx(7.41e-4, rel=1e-3) for plan in plans)
    said = state_privacy(
        [plan.mechanism for plan in plans],
        sizes,
        label=Label.PAPER_CLAIM,
        neighbours=Neighbours.ZERO_OUT,
        delta=1e-5,
    )
    assert said.epsilon_without_backoff[Accountant.PAPER] == pytest.approx(6.52, rel=1e-9)
    assert said.epsilon[Accountant.PAPER] <= 6.52 * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(
    role=st.sampled_from([JammerRole.DEDICATED, JammerRole.EXTERNAL, JammerRole.ROTATING]),
    alpha_u=st.one_of(st.just(Largest()), st.floats(-2, 6).map(lambda exponent: Fixed(10.0**exponent))),
    epsilon=st.floats(0.1, 100),
    limit_db=st.floats(-60, 30),
    label=st.sampled_from([Label.CLIENT, Label.PAPER_CLAIM]),
    seed=st.integers(0, 1000),
)
def test_a_jammed_run_never_spends_more_than_its_target(
    role: JammerRole, alpha_u: AlphaU, epsilon: float, limit_db: float, label: Label, seed: int
) -> None:
    """Epsilon recomputed from the plans of a whole run, for any jammer with any limit in any fading."""
    target = PrivacyTarget(epsilon, 1e-5, 6, label)
    limit = 10 ** (limit_db / 20)
    uplink = uplink_of(
        alpha_u=alpha_u,
        limits=np.full(4, 301 * limit**2),
        jammer=JammerSettings(role, sigma_required=target.sigma_required(SIZES), amplitude_limit=limit),
        streams=partial(generator, seed),
    )
    plans = [uplink.plan(number) for number in range(1, 7)]
    for plan in plans:
        assert plan.jammer.alpha <= limit * (1 + 1e-15)
    said = state_privacy(
        [plan.mechanism for plan in plans], SIZES, label=label, neighbours=Neighbours.ZERO_OUT, delta=1e-5
    )
    assert said.epsilon_without_backoff[Accountant.PAPER] <= epsilon * (1 + 1e-9)


def test_a_jamming_client_does_not_send_and_keeps_its_power_limit() -> None:
    limits = np.array([40.0, 50.0, 60.0, 70.0])
    uplink = uplink_of(
        limits=limits,
        alpha_u=1000.0,
        jammer=JammerSettings(JammerRole.ROTATING, sigma_required=0.05, factor=7.0),
    )
    for number in range(1, 13):
        plan = uplink.plan(number)
        jamming = (number - 1) % 4
        assert plan.jammer.needed
        assert plan.silent == jamming
        assert plan.senders == tuple(client for client in range(4) if client != jamming)
        assert plan.jammer.gain == pytest.approx(abs(plan.gains[jamming]))
        # Its signal has alpha_CJ^2 of energy on each of d coordinates.
        assert plan.jammer.alpha**2 * uplink.coordinates <= limits[jamming] * (1 + 1e-12)
        assert plan.mechanism.received_gains[jamming] == 0.0
        assert plan.mechanism.sigma >= 0.05 * (1 - 1e-11)
        sent = carry(uplink, plan, sent_by(plan, updates_of(uplink))).contributions
        assert sent.transmit_energy[jamming] == 0.0
        assert sent.backoffs[jamming] == math.inf
        with pytest.raises(PrivacyError, match=f"client {jamming} is not the next sender"):
            carry(uplink, plan, ((jamming, update) for update in updates_of(uplink)))


def test_a_client_whose_turn_it_is_learns_where_channel_noise_suffices() -> None:
    uplink = uplink_of(jammer=JammerSettings(JammerRole.ROTATING, sigma_required=0.001))
    plan = uplink.plan(2)
    assert not plan.jammer.needed
    assert plan.silent is None
    assert plan.senders == (0, 1, 2, 3)


def test_an_absent_jammer_postpones_the_uplink() -> None:
    """Soundings until it is there are geometric: mean (1 - q)/q = 3 for q = 1/4; 4 sd over 400 uplinks are 0.7."""
    settings = JammerSettings(JammerRole.EXTERNAL, sigma_required=1.0, availability=0.25)
    uplink = uplink_of(jammer=settings)
    plans = [uplink.plan(number) for number in range(1, 401)]
    assert all(plan.jammer.needed and plan.mechanism.sigma >= 1.0 - 1e-11 for plan in plans)
    assert all(plan.mechanism.alpha_cj > 0 for plan in plans)
    assert np.mean([plan.postponed for plan in plans]) == pytest.approx(3.0, abs=0.7)
    assert min(plan.postponed for plan in plans) == 0
    assert uplink.plan(7).postponed == plans[6].postponed

    never = uplink_of(jammer=replace(settings, availability=1e-12))
    with pytest.raises(ConfigError, match=f"absent in {MAX_POSTPONED} soundings"):
        never.plan(1)


def test_an_absent_jammer_that_is_not_needed_postpones_nothing() -> None:
    uplink = uplink_of(jammer=JammerSettings(JammerRole.EXTERNAL, sigma_required=1e-6, availability=1e-12))
    assert [uplink.plan(number).postponed for number in range(1, 20)] == [0] * 19


@pytest.mark.parametrize("channel", [channel_of([1, 1, 1, 1], jammer=0j), channel_of([1, 1, 1, 1], jammer=1e-300)])
def test_a_jammer_that_is_not_heard_stops_the_uplink_or_lowers_alpha_u(channel: FileChannel) -> None:
    heard_by_limit = uplink_of(
        channel=channel, jammer=JammerSettings(JammerRole.DEDICATED, sigma_required=1.0, amplitude_limit=10.0)
    )
    plan = heard_by_limit.plan(1)
    assert plan.alpha_u == pytest.approx(0.5)
    assert plan.mechanism.sigma == pytest.approx(1.0)
    if channel.table.jammer_gains is not None and channel.table.jammer_gains[0] == 0:
        with pytest.raises(PrivacyError, match="no client may send"):
            uplink_of(channel=channel, jammer=JammerSettings(JammerRole.DEDICATED, sigma_required=1.0)).plan(1)


def test_a_client_without_a_channel_sends_nothing_and_loses_nothing() -> None:
    uplink = uplink_of(channel=channel_of([1, 0, 1j, -1]))
    plan = uplink.plan(1)
    assert plan.mechanism.received_gains == (1.0, 0.0, 1.0, 1.0)
    aggregate = carry(uplink, plan, sent_by(plan, updates_of(uplink)))
    assert aggregate.contributions.transmit_energy[1] == 0.0
    assert np.all(np.isfinite(aggregate.values))


def refused(uplink: SymbolUplink, updates: list[tuple[int, BoundedUpdate]], match: str) -> None:
    """With the reason, and before anything is authorised: training that fails costs no privacy."""
    authorised: list[None] = []
    with pytest.raises(PrivacyError, match=match):
        uplink.exchange(uplink.plan(1), iter(updates), lambda: authorised.append(None))
    assert not authorised


def test_updates_that_break_the_plans_promise_are_refused() -> None:
    uplink = uplink_of(coordinates=10)
    good = list(enumerate(updates_of(uplink)))
    carry(uplink, uplink.plan(1), iter(good))
    longer = clip_update(np.ones(10, np.float32), TAU * 1.0001)
    refused(uplink, [*good[:2], (2, longer), good[3]], "client 2 clipped to")
    for shape in (9, 11):
        other = clip_update(np.ones(shape, np.float32), TAU)
        refused(uplink, [*good[:1], (1, other), *good[2:]], rf"client 1 has an update of shape \({shape},\)")
    tighter = clip_update(np.ones(10, np.float32), TAU / 2)
    carry(uplink, uplink.plan(1), iter([*good[:3], (3, tighter)]))


def test_record_level_plans_take_only_means_of_clipped_samples() -> None:
    uplink = uplink_of(coordinates=10, record_bounded=True)
    mean = np.full(10, 0.1, np.float32)
    good = [(client, mean_of_clipped(mean, int(size), TAU)) for client, size in enumerate(SIZES)]
    carry(uplink, uplink.plan(1), iter(good))
    refused(uplink, [(0, clip_update(mean, TAU)), *good[1:]], "client 0 did not clip per sample")
    refused(uplink, [*good[:3], (3, mean_of_clipped(mean, 401, TAU))], "client 3 did not clip per sample")


def test_only_the_planned_clients_send_each_once_in_their_order() -> None:
    """A second update of a client doubles what it gives away, and the ledger would not know."""
    uplink = uplink_of(coordinates=10)
    good = list(enumerate(updates_of(uplink)))
    refused(uplink, [good[0], good[0], *good[1:]], "client 0 is not the next sender")
    refused(uplink, [*good, good[3]], "client 3 is not the next sender")
    refused(uplink, [good[1], good[0], *good[2:]], "client 1 is not the next sender")
    refused(uplink, [*good, (4, good[0][1])], "client 4 is not the next sender")
    refused(uplink, [(-1, good[0][1]), *good[1:]], "client -1 is not the next sender")
    refused(uplink, good[:3], "client 3 has no update")
    refused(uplink, [], "client 0 has no update")


def test_updates_are_taken_one_at_a_time() -> None:
    """Memory must not grow with the number of clients: at most the update at hand and the one before are alive."""
    sizes = np.full(40, 10)
    uplink = uplink_of(sizes=sizes, channel=RayleighChannel(40), limits=np.full(40, 1e9))
    plan = uplink.plan(1)
    alive: weakref.WeakSet[BoundedUpdate] = weakref.WeakSet()
    most = 0

    class Tracked(BoundedUpdate):
        """Hashable by identity, so that a weak set can hold it."""

        __hash__ = object.__hash__

    def produce() -> Iterator[tuple[int, BoundedUpdate]]:
        nonlocal most
        for client in plan.senders:
            update = clip_update(np.full(uplink.coordinates, client, np.float32), TAU)
            tracked = Tracked(update.values, update.norm_before, update.clipping)
            alive.add(tracked)
            most = max(most, len(alive))
            yield client, tracked
            del tracked, update

    sent = carry(uplink, plan, produce()).contributions
    assert 1 <= most <= 2
    assert len(alive) == 0
    assert np.all(sent.transmit_energy[1:] > 0)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        *(({"noise_std_real": bad}, ConfigError) for bad in (0.0, -1.0, math.nan, math.inf)),
        *(({"alpha_u": bad}, ConfigError) for bad in (0.0, -1.0, math.nan, math.inf)),
        *(({"clip_norm": bad}, PrivacyError) for bad in (0.0, -1.0, math.nan, math.inf)),
        ({"noise_std_real": 1e-44}, ConfigError),
    ],
)
def test_settings_without_meaning_are_refused(changes: dict[str, float], error: type[Exception]) -> None:
    with pytest.raises(error):
        uplink_of(**changes)


def test_the_quietest_noise_that_is_taken_is_really_made() -> None:
    """Below it float32 would make less noise than the mechanism claims, down to none at all."""
    uplink = uplink_of(noise_std_real=1e-30, alpha_u=1e-27, coordinates=20_000, rescale=Rescale.LITERAL)
    plan = uplink.plan(1)
    silence = [clip_update(np.zeros(uplink.coordinates, np.float32), TAU)] * len(SIZES)
    values = carry(uplink, plan, sent_by(plan, silence)).values
    assert noise_p_value(values, plan.mechanism.sigma) > 1e-3


def test_the_sum_does_not_depend_on_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one part it is the equation as it is written; an odd number of coordinates leaves the last Q empty."""
    sums = []
    for part_cells in (1 << 16, 7, 64):
        monkeypatch.setattr(fl.uplink.symbol, "PART_CELLS", part_cells)
        uplink = uplink_of(jammer=JammerSettings(role=JammerRole.DEDICATED, sigma_required=1.0))
        plan = uplink.plan(1)
        assert plan.jammer.needed
        sums.append(carry(uplink, plan, sent_by(plan, updates_of(uplink))))
    assert all(np.array_equal(one.values, sums[0].values) for one in sums)
    assert {round(one.noise_norm or 0.0, 4) for one in sums} == {round(sums[0].noise_norm or 0.0, 4)}
