"""Canaries in a run: orthogonal, clipped like records, and never showing more than was claimed."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fl.audit.runs.canaries import Canaries, hadamard
from fl.audit.runs.evidence import Evidence, UplinkEvidence
from fl.errors import ConfigError, PrivacyError
from tests.conftest import Outcome

SIZES = (40, 25, 35)


def test_the_transform_is_orthonormal_and_its_own_inverse() -> None:
    values = np.random.default_rng(1).standard_normal(64)
    assert np.linalg.norm(hadamard(values)) == pytest.approx(np.linalg.norm(values))
    assert hadamard(hadamard(values)) == pytest.approx(values)


def test_projections_find_the_canaries_that_are_there() -> None:
    canaries = Canaries(60, 300, SIZES, seed=3)
    total = sum((canaries.mixture(client) for client in range(3)), np.zeros(300))
    assert canaries.project(total) == pytest.approx(canaries.present.astype(float), abs=1e-12)
    assert sorted(canaries.owners) == sorted(
        client for client in range(3) for _ in range(len(canaries.records(client)))
    )
    for client, size in enumerate(SIZES):
        records = canaries.records(client)
        assert len(set(records)) == len(records)
        assert all(0 <= record < size for record in records)


def test_more_canaries_than_records_or_directions_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"audit\.canaries is 101"):
        Canaries(101, 300, SIZES, seed=1)
    with pytest.raises(ConfigError, match="expected 1 to 32"):
        Canaries(33, 40, SIZES, seed=1)


def test_uplinks_are_weighted_by_what_they_show() -> None:
    """mu^2 adds up over uplinks, as the accountants say."""
    rng = np.random.default_rng(2)
    present = rng.random(4000) < 0.5
    uplinks = [
        UplinkEvidence(shift * present + sigma * rng.standard_normal(4000), np.full(4000, shift), sigma)
        for shift, sigma in ((1.0, 2.0), (0.5, 0.6))
    ]
    evidence = Evidence.of(uplinks, present)
    assert evidence.mu == pytest.approx(np.hypot(0.5, 0.5 / 0.6))
    found = evidence.to_json()
    assert found["mean_inside"] - found["mean_outside"] == pytest.approx(evidence.mu, abs=5 * 2 / np.sqrt(4000))
    assert found["deviation"] == pytest.approx(1.0, abs=0.06)


def test_nothing_to_audit_is_said() -> None:
    with pytest.raises(PrivacyError):
        Evidence.of([], np.zeros(0, bool))
    with pytest.raises(PrivacyError):
        Evidence.of([UplinkEvidence(np.zeros(1), np.ones(1), 0.0)], np.ones(1, bool))


RUN = ["--set", "local.mode=record", "--set", "uplink.uplinks=6", "--set", "model.hidden=20", "--set", "local.lr=0.5"]


@pytest.mark.parametrize("config", ["quickstart", "loopback"])
def test_a_run_with_canaries(tmp_path: Path, airdp: Callable[..., Outcome], config: str) -> None:
    out = tmp_path / "run"
    arguments = [*RUN, "--set", "audit.canaries=1000", "--set", "privacy.epsilon=8"]
    ran = airdp("run", config, *arguments, "--out", str(out), "--json")
    assert ran.code == 0, ran.err
    outcome = airdp("audit", str(out), "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["verdict"] == "holds"
    assert found["canaries"] == 1000
    assert 0.0 < found["lower_bound"] <= found["claimed_epsilon"]
    # The separation is what was claimed, but for the claim's margins and the back-off of single clients.
    measured = (found["mean_inside"] - found["mean_outside"]) / found["deviation"]
    assert measured == pytest.approx(found["mu_expected"], rel=0.35, abs=5 * 2 / np.sqrt(1000))
    assert found["mu_expected"] <= found["claimed_mu"] * 1.001
    text = airdp("audit", str(out))
    assert "not above the exact claim" in text.out.replace("\n", " ")


def test_a_run_without_canaries_says_how_to_get_them(tmp_path: Path, airdp: Callable[..., Outcome]) -> None:
    out = tmp_path / "run"
    assert airdp("run", "quickstart", *RUN, "--out", str(out)).code == 0
    outcome = airdp("audit", str(out))
    assert outcome.code == 2
    assert "audit.canaries=M" in outcome.err


def test_canaries_need_records(airdp: Callable[..., Outcome], tmp_path: Path) -> None:
    outcome = airdp("run", "quickstart", "--set", "audit.canaries=10", "--out", str(tmp_path / "run"))
    assert outcome.code == 2
    assert "needs local.mode = 'record'" in outcome.err
