"""Uplinks in fading of their own: what linear algebra finds in them, composed."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fl.audit.composed import Composed, Composition, compose
from fl.errors import ConfigError
from fl.nodes.coordinator import Coordinator
from fl.privacy.mechanism import RoundMechanism
from fl.uplink.jammer import JammerRole
from hardware.lab.file import find_lab
from hardware.lab.opened import open_lab
from tests.conftest import Outcome
from tests.fl.audit.formats import short_format

SMALL = Composition(2, (1,), JammerRole.DEDICATED, short_format("loopback", first_quiet_samples=2**19))


def composed(lab: str, wanted: Composition = SMALL) -> Composed:
    with open_lab(find_lab(lab), wanted.seed) as opened:
        return compose(opened, wanted)


def test_squares_of_mu_add_up_and_the_worst_client_comes_first() -> None:
    found = Composed(("one", "two"), np.array([[3.0, 1.0], [4.0, 1.0]]), np.array([[0.3, 0.9], [0.4, 0.9]]))
    assert found.holds
    report = found.to_json()
    assert report["composed"]["client"] == "two"
    assert report["blocks_above_claim"] == []
    assert replace(found, attacked=np.array([[0.3, 0.9], [0.4, 1.05]])).above == [2]
    assert report["clients"][1]["claimed"]["mu"] == pytest.approx(5.0)
    assert report["clients"][1]["attacked"]["mu"] == pytest.approx(0.5)
    assert not replace(found, attacked=np.array([[0.3, 1.1], [0.4, 1.1]])).holds


def test_each_block_has_its_own_fading_and_its_claim_covers_it() -> None:
    found = composed("loopback-harsh")
    assert found.clients == ("client-2",)
    assert found.holds
    ratios = found.attacked / found.claimed
    assert np.all((ratios > 0.7) & (ratios < 1.0))
    assert abs(ratios[0, 0] - ratios[1, 0]) > 1e-4


def test_noise_that_is_overstated_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Coordinator.account

    def overstated(self: Coordinator, *arguments: object) -> RoundMechanism:
        mechanism = account(self, *arguments)  # type: ignore[arg-type]
        return replace(mechanism, sigma=1.1 * mechanism.sigma)

    monkeypatch.setattr(Coordinator, "account", overstated)
    assert not composed("loopback").holds


def test_a_client_that_jams_sends_nothing_in_its_turn() -> None:
    found = composed("loopback", replace(SMALL, jammer=JammerRole.ROTATING))
    assert found.claimed[1, 0] == found.attacked[1, 0] == 0.0
    assert 0.0 < found.attacked[0, 0] < found.claimed[0, 0]


def test_air_that_is_elsewhere_is_refused() -> None:
    with open_lab(find_lab("loopback"), 1) as opened, pytest.raises(ConfigError, match="not in this process"):
        compose(replace(opened, air=None), SMALL)


def test_the_command(command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fl.audit.composed.SYMBOLS", 1)
    outcome = command("validate", "loopback", "--blocks", "1", "--client", "client-3", "--jammer", "none", "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert (found["verdict"], found["blocks"], found["label"]) == ("holds", 1, "paper-claim")
    row = found["clients"][0]
    assert row["client"] == "client-3"
    assert 0 < row["attacked"]["epsilon"] < row["claimed"]["epsilon"]
    assert command("validate", "loopback", "--blocks", "0").code == 2
