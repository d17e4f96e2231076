"""A statement is the worst client's, and carries what its number means."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl.errors import PrivacyError
from fl.privacy.accountant import Accountant, epsilon_exact, epsilon_paper
from fl.privacy.converters import LARGEST_EPSILON
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import json_number, state_privacy
from tests.fl.privacy.mechanisms import without_jammer

SIZES = np.array([100, 300, 600])
DELTA = 1e-5


def mechanism(
    gains: tuple[float, ...] = (1.0, 1.0, 1.0),
    sigma: float = 0.01,
    origin: SigmaOrigin = SigmaOrigin.SIMULATED,
    *,
    record_bounded: bool = False,
) -> RoundMechanism:
    return without_jammer(gains, sigma, origin, record_bounded=record_bounded)


def test_the_papers_experiment_as_the_ledger_would_state_it() -> None:
    """50 clients with 200 samples each, 80 uplinks, sigma 7.41e-4: the paper's 6.52, exactly 5.45."""
    uplinks = [mechanism((1.0,) * 50, 7.41e-4)] * 80
    said = state_privacy(uplinks, np.full(50, 200), label=Label.PAPER_CLAIM, neighbours=Neighbours.ZERO_OUT, delta=1e-5)
    assert said.epsilon[Accountant.PAPER] == pytest.approx(6.52, abs=0.01)
    assert said.epsilon[Accountant.EXACT] == pytest.approx(5.45, abs=0.01)
    assert said.total_loss == pytest.approx(0.728, abs=0.001)
    assert said.mu == pytest.approx(math.sqrt(2 * said.total_loss))
    assert said.uplinks == 80
    assert said.epsilon_without_backoff == said.epsilon


def test_the_worst_client_is_found_over_all_uplinks_together() -> None:
    """Client 1 is never the worst of an uplink but is over both: by hand, (p_i g_i / sigma)^2 / 2 summed."""
    uplinks = [mechanism((1.0, 0.3, 0.0)), mechanism((0.0, 0.3, 0.16))]
    said = state_privacy(uplinks, SIZES, label=Label.CLIENT, neighbours=Neighbours.ZERO_OUT, delta=DELTA)
    assert said.worst_client == 1
    assert said.total_loss == pytest.approx(2 * 0.5 * (0.3 * 0.3 / 0.01) ** 2, rel=1e-13)
    assert said.epsilon[Accountant.PAPER] == pytest.approx(epsilon_paper(said.total_loss, DELTA), rel=1e-13)
    assert said.epsilon[Accountant.EXACT] == pytest.approx(epsilon_exact(said.total_loss, DELTA), rel=1e-9)


def test_the_bound_without_backoff_has_its_own_worst_client() -> None:
    """Quiet as it is, client 2 holds most samples: with s = 1 it would be the worst."""
    said = state_privacy(
        [mechanism((1.0, 0.1, 0.1))], SIZES, label=Label.CLIENT, neighbours=Neighbours.ZERO_OUT, delta=DELTA
    )
    assert said.worst_client == 0
    assert said.epsilon_without_backoff[Accountant.PAPER] == pytest.approx(
        epsilon_paper(0.5 * (0.6 / 0.01) ** 2, DELTA), rel=1e-13
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(
            mechanism,
            gains=st.tuples(*[st.floats(0, 1)] * 3),
            sigma=st.floats(1e-3, 10),
            record_bounded=st.booleans(),
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(Label),
    st.sampled_from(Neighbours),
)
def test_laws(mechanisms: list[RoundMechanism], label: Label, neighbours: Neighbours) -> None:
    said = state_privacy(mechanisms, SIZES, label=label, neighbours=neighbours, delta=DELTA)
    losses = sum(m.losses(SIZES, label, neighbours) for m in mechanisms)
    assert said.total_loss == pytest.approx(float(np.max(losses)), rel=1e-12)
    for accountant, epsilon in said.epsilon.items():
        assert epsilon <= said.epsilon_without_backoff[accountant] * (1 + 1e-9)
    assert said.epsilon[Accountant.EXACT] <= said.epsilon[Accountant.PAPER]
    backwards = state_privacy(mechanisms[::-1], SIZES, label=label, neighbours=neighbours, delta=DELTA)
    assert backwards.epsilon[Accountant.PAPER] == pytest.approx(said.epsilon[Accountant.PAPER], rel=1e-12)
    fewer = state_privacy(mechanisms[1:], SIZES, label=label, neighbours=neighbours, delta=DELTA)
    assert fewer.epsilon[Accountant.PAPER] <= said.epsilon[Accountant.PAPER] * (1 + 1e-12)
    if label is Label.RECORD and any(max(m.received_gains) > 0 and not m.record_bounded for m in mechanisms):
        assert said.epsilon[Accountant.EXACT] == math.inf


def test_beyond_what_dither_vouches_for_rounding_is_charged_without_it() -> None:
    """A record's ratio of 0.1 in 100 uplinks is mu = 1 and epsilon 4.4; of 0.7, mu = 7 and epsilon 53: there each
    uplink's rounding of 2 counts whole, (0.7 + 2)^2 for 0.7^2."""
    said = {}
    for sigma in (0.01, 0.01 / 7):
        uplinks = [replace(mechanism(sigma=sigma, record_bounded=True), rounding=2.0 * sigma)] * 100
        said[sigma] = state_privacy(uplinks, SIZES, label=Label.RECORD, neighbours=Neighbours.ZERO_OUT, delta=DELTA)
    usual, weak = said.values()
    assert usual.mu == pytest.approx(1.0, rel=1e-4)
    assert usual.epsilon[Accountant.EXACT] == pytest.approx(epsilon_exact(0.5, DELTA), rel=1e-4)
    assert weak.mu == pytest.approx(27.0, rel=1e-9)
    assert weak.epsilon[Accountant.EXACT] > epsilon_exact(7.0**2 / 2, DELTA) > LARGEST_EPSILON


def test_one_uplink_with_unknown_noise_is_enough_for_infinity() -> None:
    uplinks = [mechanism(), mechanism(sigma=0.0, origin=SigmaOrigin.UNKNOWN), mechanism()]
    for label in (Label.CLIENT, Label.PAPER_CLAIM):
        said = state_privacy(uplinks, SIZES, label=label, neighbours=Neighbours.ZERO_OUT, delta=DELTA)
        assert set(said.epsilon.values()) == {math.inf}
        assert set(said.epsilon_without_backoff.values()) == {math.inf}
        assert said.sigma_origin == "simulated+unknown"


def test_nothing_sent_costs_nothing() -> None:
    said = state_privacy([], SIZES, label=Label.CLIENT, neighbours=Neighbours.ZERO_OUT, delta=DELTA)
    assert set(said.epsilon.values()) == {0.0}
    assert said.worst_client is None
    assert said.uplinks == 0
    assert said.sigma_origin == "none"


def test_it_says_all_that_the_number_means() -> None:
    said = state_privacy(
        [mechanism(), mechanism(origin=SigmaOrigin.MEASURED)],
        SIZES,
        label=Label.CLIENT,
        neighbours=Neighbours.REPLACE_ONE,
        delta=DELTA,
    )
    assert said.conditions == "replace-one neighbours, view cells, delta 1e-05, sigma measured+simulated"
    record = json.loads(json.dumps(said.to_json(), allow_nan=False))
    assert record["label"] == "client"
    assert record["neighbours"] == "replace-one"
    assert record["delta"] == DELTA
    assert record["sigma_origin"] == "measured+simulated"
    assert record["epsilon"] == {"paper": said.epsilon[Accountant.PAPER], "exact": said.epsilon[Accountant.EXACT]}
    assert record["uplinks"] == 2
    assert record["worst_client"] == 2


def test_infinity_survives_json() -> None:
    unearned = state_privacy([mechanism()], SIZES, label=Label.RECORD, neighbours=Neighbours.ZERO_OUT, delta=DELTA)
    record = json.loads(json.dumps(unearned.to_json(), allow_nan=False))
    for number in (record["epsilon"]["exact"], record["epsilon_without_backoff"]["paper"], record["S"], record["mu"]):
        assert float(number) == math.inf
    assert json_number(1.5) == 1.5
    assert json_number(math.nan) == "inf", "what is not known is never finite"


def test_bad_input_is_refused() -> None:
    with pytest.raises(PrivacyError, match="delta"):
        state_privacy([], SIZES, label=Label.CLIENT, neighbours=Neighbours.ZERO_OUT, delta=0.0)
    with pytest.raises(PrivacyError, match="3 gains for 2 clients"):
        state_privacy([mechanism()], SIZES[:2], label=Label.CLIENT, neighbours=Neighbours.ZERO_OUT, delta=DELTA)


def test_second_opinions_can_be_asked_for() -> None:
    said = state_privacy(
        [replace(mechanism((1.0, 1.0, 1.0), 0.002), uplink=number) for number in (1, 2)],
        SIZES,
        label=Label.PAPER_CLAIM,
        neighbours=Neighbours.ZERO_OUT,
        delta=DELTA,
        accountants=tuple(Accountant),
    )
    assert list(said.epsilon) == list(Accountant)
    assert said.epsilon[Accountant.PLD] == pytest.approx(said.epsilon[Accountant.EXACT], rel=1e-3)
    assert said.epsilon[Accountant.EXACT] < said.epsilon[Accountant.RDP] < said.epsilon[Accountant.PAPER]


def test_what_was_cut_off_is_part_of_the_conditions() -> None:
    uplinks = [mechanism()] * 3
    said = {
        count: state_privacy(
            uplinks, SIZES, label=Label.CLIENT, neighbours=Neighbours.ZERO_OUT, delta=DELTA, unaccounted=count
        )
        for count in (0, 2)
    }
    assert "without account" not in said[0].conditions
    assert "2 of 3 uplinks without account and so without a jammer's noise" in said[2].conditions
    assert [one.to_json()["unaccounted"] for one in said.values()] == [0, 2]
