"""What clipping proves and what the ledger charges are one Delta, and neither can be changed without the other."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.privacy import mechanism as mechanism_module
from fl.privacy.clipping import MOST_TERMS, BoundedUpdate, clip_update, mean_of_clipped, per_sample_scales
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.sensitivity import Clipping, Label, Neighbours
from fl.privacy.target import PrivacyTarget
from tests.fl.privacy.mechanisms import without_jammer

TAU = 0.3
SIGMA = 0.01


def uplink_of(gains: list[float], *, record_bounded: bool) -> RoundMechanism:
    return without_jammer(gains, SIGMA, record_bounded=record_bounded, clip_norm=TAU)


def update_of(samples: int, *, record_bounded: bool) -> BoundedUpdate:
    values = np.full(3, 0.1, np.float32)
    return mean_of_clipped(values, samples, TAU) if record_bounded else clip_update(values, TAU)


gains = st.just(0.0) | st.floats(1e-6, 4)
clients = st.lists(st.tuples(st.integers(1, MOST_TERMS), gains), min_size=1, max_size=6)


def check_that_one_delta_is_proven_and_charged(
    sizes: NDArray[np.int64], gains: list[float], label: Label, neighbours: Neighbours, *, record_bounded: bool
) -> None:
    """Delta_i = g_i p_i Delta(u_i)/tau, from an update that a client made and an uplink that takes it."""
    uplink = uplink_of(gains, record_bounded=record_bounded)
    charged = uplink.noise_ratios(sizes, label, neighbours) * SIGMA
    for size, gain, delta in zip(sizes.tolist(), gains, charged, strict=True):
        clipping = update_of(size, record_bounded=record_bounded).clipping
        assert clipping == uplink.clipping(size)
        proven = clipping.sensitivity(label, neighbours)
        expected = 0.0 if gain == 0 else gain * size / sizes.sum() * proven / TAU
        assert delta == pytest.approx(expected, rel=1e-12)


@settings(max_examples=200, deadline=None)
@given(
    clients=clients,
    neighbours=st.sampled_from(Neighbours),
    case=st.sampled_from([(Label.CLIENT, True), (Label.CLIENT, False), (Label.RECORD, True), (Label.RECORD, False)]),
)
def test_what_is_charged_is_what_clipping_proves_times_weight_and_gain(
    clients: list[tuple[int, float]], neighbours: Neighbours, case: tuple[Label, bool]
) -> None:
    sizes, gains = np.array([size for size, _ in clients]), [gain for _, gain in clients]
    check_that_one_delta_is_proven_and_charged(sizes, gains, case[0], neighbours, record_bounded=case[1])


def _halved(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(*args, **kwargs) / 2


def test_neither_can_be_changed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    case = (np.array([100, 300]), [1.0, 0.5], Label.RECORD, Neighbours.ZERO_OUT)
    check_that_one_delta_is_proven_and_charged(*case, record_bounded=True)
    for owner, name in ((mechanism_module, "charged_sensitivity"), (Clipping, "sensitivity")):
        with monkeypatch.context() as changed:
            changed.setattr(owner, name, _halved(getattr(owner, name)))
            with pytest.raises(AssertionError):
                check_that_one_delta_is_proven_and_charged(*case, record_bounded=True)


def test_the_papers_claim_is_the_records_whether_it_is_earned_or_not() -> None:
    sizes = np.array([100, 300])
    earned, other = (uplink_of([1.0, 0.5], record_bounded=bounded) for bounded in (True, False))
    claimed = other.noise_ratios(sizes, Label.PAPER_CLAIM, Neighbours.ZERO_OUT)
    np.testing.assert_array_equal(claimed, earned.noise_ratios(sizes, Label.RECORD, Neighbours.ZERO_OUT))
    # What an update proves is another matter.
    whole, each = (update_of(100, record_bounded=bounded).clipping for bounded in (False, True))
    assert whole.sensitivity(Label.PAPER_CLAIM, Neighbours.ZERO_OUT) == math.inf
    assert each.sensitivity(Label.PAPER_CLAIM, Neighbours.ZERO_OUT) == TAU / 100


@pytest.mark.parametrize("label", list(Label))
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_noise_is_sized_for_what_is_charged(label: Label, neighbours: Neighbours) -> None:
    sizes = np.array([7, 300, 93])
    target = PrivacyTarget(5.0, 1e-5, 10, label, neighbours)
    charged = uplink_of([1.0] * 3, record_bounded=True).noise_ratios(sizes, label, neighbours) * SIGMA
    assert target.sensitivity(sizes) == pytest.approx(charged.max(), rel=1e-15)


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
    record_bounded=st.booleans(),
    neighbours=st.sampled_from(Neighbours),
)
def test_no_neighbour_moves_the_sum_by_more_than_is_charged(
    sizes: list[int], seed: int, scale: float, record_bounded: bool, neighbours: Neighbours
) -> None:
    """The law itself: the sum of g_i p_i u_i from samples, with one record or one client set to zero or replaced."""
    rng = np.random.default_rng(seed)
    gains = rng.uniform(0, 2, len(sizes)).tolist()
    terms = [scale * rng.standard_normal((size, 3)) for size in sizes]
    which = int(rng.integers(len(sizes)))
    label = Label.RECORD if record_bounded else Label.CLIENT
    changed = [client.copy() for client in terms]
    touched = slice(0, 1) if record_bounded else slice(None)
    changed[which][touched] = 0.0 if neighbours is Neighbours.ZERO_OUT else -2 * changed[which][touched]

    def total(clients: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        return sum(
            gain * size / sum(sizes) * _update(client, record_bounded=record_bounded)
            for gain, size, client in zip(gains, sizes, clients, strict=True)
        )  # type: ignore[return-value]

    charged = uplink_of(gains, record_bounded=record_bounded).noise_ratios(np.array(sizes), label, neighbours) * SIGMA
    moved = float(np.linalg.norm(total(terms) - total(changed)))
    # float32 rounds each coordinate of an update once.
    assert moved <= TAU * charged[which] + 1e-6 * TAU * max(gains)


def _update(terms: NDArray[np.float64], *, record_bounded: bool) -> NDArray[np.float64]:
    if not record_bounded:
        return clip_update(terms.mean(axis=0).astype(np.float32), TAU).values.astype(np.float64)
    scales = per_sample_scales(np.linalg.norm(terms, axis=1), TAU, terms=len(terms)).astype(np.float64)
    mean = (scales[:, None] * terms).mean(axis=0).astype(np.float32)
    return mean_of_clipped(mean, len(terms), TAU).values.astype(np.float64)


@pytest.mark.parametrize(
    ("update", "promised", "client", "record"),
    [
        (Clipping.whole(1.0), Clipping.whole(1.0), True, True),
        (Clipping.whole(0.5), Clipping.whole(1.0), True, True),
        (Clipping.whole(1.1), Clipping.whole(1.0), False, True),
        (Clipping.whole(1.0), Clipping.each_of(3, 1.0), True, False),
        # A mean of one term says more than the same numbers clipped as a whole.
        (Clipping.whole(1.0), Clipping.each_of(1, 1.0), True, False),
        (Clipping.each_of(3, 1.0), Clipping.whole(1.0), True, True),
        (Clipping.each_of(49, 0.7), Clipping.whole(0.7), True, True),
        (Clipping.each_of(3, 1.0), Clipping.each_of(3, 1.0), True, True),
        (Clipping.each_of(2, 1.0), Clipping.each_of(3, 1.0), True, False),
        (Clipping.each_of(4, 1.0), Clipping.each_of(3, 1.0), True, True),
    ],
)
def test_what_covers_what(update: Clipping, promised: Clipping, client: bool, record: bool) -> None:
    assert update.covers(promised, Label.CLIENT) is client
    assert update.covers(promised, Label.RECORD) is record


@pytest.mark.parametrize(("terms", "per_sample"), [(0, True), (-1, True), (0, False), (2, False)])
def test_what_is_no_mean_cannot_exist(terms: int, per_sample: bool) -> None:
    with pytest.raises(PrivacyError, match="terms"):
        Clipping(1.0, terms, per_sample)
