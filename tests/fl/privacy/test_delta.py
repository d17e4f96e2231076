"""delta is total, and a claim is never made for a view that it does not hold for."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fl.errors import PrivacyError
from fl.privacy import ledger_rows
from fl.privacy.accountant import Accountant, epsilon_exact, epsilon_paper
from fl.privacy.conditions import JammerTrust, View
from fl.privacy.ledger import Ledger, LedgerHeader, read_ledger
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import PrivacyStatement, bounds_by_name, delta_left, state_privacy, strongest_view
from tests.fl.privacy.mechanisms import without_jammer

SIZES = np.array([40, 60])
DELTA = 1e-5
MEASURED = replace(
    without_jammer((1.0, 0.5), 0.2, SigmaOrigin.MEASURED), bounds=(("noise", 2e-8), ("client gains", 4e-8))
)


def stated(
    *mechanisms: RoundMechanism, delta: float = DELTA, view: View | None = None, jammer: JammerTrust = JammerTrust.NONE
) -> PrivacyStatement:
    return state_privacy(
        mechanisms,
        SIZES,
        label=Label.CLIENT,
        neighbours=Neighbours.ZERO_OUT,
        delta=delta,
        view=view,
        jammer=jammer,
        accountants=tuple(Accountant),
    )


def test_accountants_get_what_the_bounds_leave_of_delta() -> None:
    """Thirty uplinks whose bounds fail with 6e-8 each: 1.8e-6 of 1e-5 is theirs. Oracle: the closed forms at 8.2e-6."""
    said = stated(*[MEASURED] * 30)
    assert said.bounds == pytest.approx({"noise": 6e-7, "client gains": 1.2e-6})
    assert said.delta_bounds == pytest.approx(1.8e-6)
    assert said.delta_mechanism == pytest.approx(8.2e-6)
    assert said.delta_mechanism + (said.delta_bounds or 0.0) == said.delta == DELTA
    loss = said.total_loss
    assert said.epsilon[Accountant.PAPER] == pytest.approx(epsilon_paper(loss, 8.2e-6))
    assert said.epsilon[Accountant.EXACT] == pytest.approx(epsilon_exact(loss, 8.2e-6))
    free = stated(*[replace(MEASURED, bounds=())] * 30)
    for name in Accountant:
        assert said.epsilon[name] > free.epsilon[name]
    assert (free.bounds, free.delta_bounds) == ({}, 0.0)


def test_an_uplink_that_is_sent_again_costs_delta_again() -> None:
    once, twice = stated(MEASURED), stated(MEASURED, MEASURED)
    assert twice.delta_bounds == pytest.approx(2 * (once.delta_bounds or 0.0))


@pytest.mark.parametrize("probability", [DELTA / 3, 1e-3, 1.0])
def test_bounds_that_leave_nothing_make_epsilon_infinite(probability: float) -> None:
    said = stated(*[replace(MEASURED, bounds=(("noise", probability),))] * 3)
    assert all(value == math.inf for value in (*said.epsilon.values(), *said.epsilon_without_backoff.values()))
    assert "leaves nothing of delta 1e-05" in said.reason
    assert said.reason in said.conditions
    record = json.loads(json.dumps(said.to_json(), allow_nan=False))
    assert record["epsilon"]["exact"] == "inf"
    assert record["infinite_because"] == said.reason


def test_a_claim_for_samples_needs_mechanisms_that_hold_for_samples() -> None:
    """Whoever has samples can compute cells, so the strong claim implies the weak one and never the other way."""
    strong = replace(MEASURED, view=View.SAMPLES)
    for view in View:
        assert stated(strong, strong, view=view).epsilon == stated(strong, strong).epsilon
    refused = stated(strong, MEASURED, view=View.SAMPLES)
    assert refused.view is View.SAMPLES
    assert set(refused.epsilon.values()) == set(refused.epsilon_without_backoff.values()) == {math.inf}
    assert refused.reason == "1 of 2 uplinks are accounted for the view cells only"
    assert stated(strong, MEASURED, view=View.CELLS).reason == ""
    assert math.isfinite(stated(strong, MEASURED, view=View.CELLS).epsilon[Accountant.EXACT])


def test_where_no_view_is_asked_for_it_is_the_strongest_that_holds() -> None:
    strong = replace(MEASURED, view=View.SAMPLES)
    assert (strongest_view([strong]), strongest_view([strong, MEASURED])) == (View.SAMPLES, View.CELLS)
    assert (stated(strong).view, stated(MEASURED).view, strongest_view([])) == (View.SAMPLES, View.CELLS, View.CELLS)


def test_it_says_what_it_rests_on() -> None:
    jammed = replace(MEASURED, alpha_cj=1.0, jammer_gain=1.0)
    said = stated(jammed, jammer=JammerTrust.ROTATING)
    view, server, jammer = said.notes
    assert view.startswith("cells: against whoever has the demodulated sum")
    assert "honest about its receiver's noise" in server
    assert [note.split(":")[0] for note in stated(replace(jammed, view=View.SAMPLES)).notes][:2] == ["samples", "air"]
    assert "against the one whose turn it is only the receiver's noise protects" in jammer
    assert "delta 1e-05 (9.94e-06 mechanism, 6e-08 measured bounds)" in said.conditions
    record = said.to_json()
    assert (record["view"], record["jammer"], record["trust"]) == ("cells", "rotating", list(said.notes))
    assert record["confidence"] == pytest.approx(1 - 6e-8)
    assert record["delta_split"]["by_bound"] == {"noise": 2e-8, "client gains": 4e-8}
    # A jammer that never sent is not trusted with anything.
    assert stated(MEASURED, jammer=JammerTrust.DEDICATED).jammer is JammerTrust.NONE


def test_unknown_bounds_are_said_to_be_unknown() -> None:
    said = stated(MEASURED, replace(MEASURED, bounds=None))
    assert (said.bounds, said.delta_bounds) == (None, None)
    assert "of the mechanism alone: how measured bounds may fail is not recorded" in said.conditions
    record = json.loads(json.dumps(said.to_json(), allow_nan=False))
    assert (record["confidence"], record["delta_split"]["bounds"]) == (None, None)
    assert bounds_by_name([]) == {}
    assert delta_left(DELTA, [replace(MEASURED, bounds=None)]) == DELTA


@pytest.mark.parametrize("probability", [-1e-9, 1.1, math.nan])
def test_what_is_no_probability_is_refused(probability: float) -> None:
    with pytest.raises(PrivacyError, match="expected a probability"):
        replace(MEASURED, bounds=(("noise", probability),))


@pytest.mark.parametrize("bounds", [3, [["noise"]], [["noise", "much"]], [[1, 0.5]], [["noise", True]]])
def test_bounds_of_another_kind_are_refused(bounds: object) -> None:
    with pytest.raises(PrivacyError, match="not the record of an uplink"):
        RoundMechanism.from_json({**MEASURED.to_json(), "bounds": bounds})


def test_view_and_bounds_survive_json() -> None:
    for mechanism in (MEASURED, replace(MEASURED, view=View.SAMPLES), replace(MEASURED, bounds=None)):
        assert RoundMechanism.from_json(json.loads(json.dumps(mechanism.to_json()))) == mechanism


# Ledgers.

HEADER = LedgerHeader(
    (40, 60),
    DELTA,
    Label.CLIENT,
    Neighbours.ZERO_OUT,
    "c0ffee",
    view=View.SAMPLES,
    jammer=JammerTrust.EXTERNAL,
    delta_bounds=1e-6,
    confidence=1 - 1e-9,
)


def test_the_header_keeps_view_jammer_and_split(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.jsonl", HEADER)
    ledger.account(ledger.authorise(MEASURED), MEASURED)
    contents = read_ledger(tmp_path / "ledger.jsonl")
    assert contents.header == HEADER
    assert contents.mechanisms == (MEASURED,)
    # The file alone says in words what its numbers rest on, and a statement says the same.
    opened = json.loads((tmp_path / "ledger.jsonl").read_text().splitlines()[0])
    jammed = replace(MEASURED, alpha_cj=0.5)
    assert opened["trust"] == list(stated(jammed, view=View.SAMPLES, jammer=JammerTrust.EXTERNAL).notes)
    assert [said.split(":")[0] for said in opened["trust"]] == ["samples", "air", "server", "jammer"]


def test_a_ledger_of_format_1_is_about_cells_and_its_bounds_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was written then: neither header nor mechanisms have the new keys. What was simulated has no bounds."""
    old, simulated = MEASURED.to_json(), replace(MEASURED, sigma_origin=SigmaOrigin.SIMULATED).to_json()
    for row in (old, simulated):
        del row["view"], row["bounds"]
    append = Ledger._append

    def appending(self: Ledger, kind: str, fields: dict[str, object]) -> int:
        new = ("view", "jammer", "delta_bounds", "confidence")
        if kind == "open":
            fields = {**{key: value for key, value in fields.items() if key not in new}, "format": 1}
        return append(self, kind, fields)

    monkeypatch.setattr(Ledger, "_append", appending)
    ledger = Ledger.create(tmp_path / "ledger.jsonl", HEADER)
    for row in (old, simulated):
        seq = appending(ledger, "authorise", {"mechanism": row})
        appending(ledger, "account", {"authorised_seq": seq, "mechanism": row})
    contents = read_ledger(tmp_path / "ledger.jsonl")
    header = contents.header
    assert (header.view, header.jammer) == (View.CELLS, JammerTrust.UNKNOWN)
    assert (header.delta_bounds, header.confidence) == (None, None)
    assert [mechanism.bounds for mechanism in contents.mechanisms] == [None, ()]
    assert {mechanism.view for mechanism in contents.mechanisms} == {View.CELLS}
    assert ledger_rows.FORMAT == 2
