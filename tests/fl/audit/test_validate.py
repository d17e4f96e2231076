"""Validation of a lab: the sum holds what is claimed of it, and a claim that is wrong is refuted."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl.audit.trials import Attack, make_trials
from fl.audit.verdict import Direction, Validation, View, judge
from fl.nodes.coordinator import Coordinator
from fl.nodes.transmitter import Transmitter
from fl.privacy.mechanism import RoundMechanism
from fl.uplink.jammer import JammerRole
from hardware.lab.file import find_lab
from hardware.lab.opened import open_lab
from phy.dither import limited
from tests.conftest import Outcome

UPLINKS = 80
"""Fewer than the command makes by default, which is 250."""


def validated(lab: str, client: int = 0, uplinks: int = UPLINKS, **changes: object) -> Validation:
    small = Attack(client, uplinks, symbols=1, jammer=JammerRole.DEDICATED)
    attack = replace(small, **changes)  # type: ignore[arg-type]
    with open_lab(find_lab(lab), attack.seed) as opened:
        return judge([make_trials(opened, attack)])


def cells_refuted(validation: Validation) -> bool:
    return any(found.view is View.CELLS for found in validation.refuted_by)


def test_the_claim_holds_and_is_not_idle() -> None:
    validation = validated("loopback")
    assert validation.holds
    best = next(found for found in validation.findings if found.direction is Direction.EVERY)
    assert 0.88 < best.ratio < 1.0
    assert best.estimate.trials == UPLINKS // 2 * 256
    # What the trials cannot see is the claim's own margin and the error of mu, together less than a lie of 10 %.
    assert 0.0 < validation.resolution < 0.1
    energy = next(found for found in validation.findings if found.direction is Direction.ENERGY)
    assert abs(energy.estimate.mu) < 5 * energy.estimate.std


def test_noise_that_is_overstated_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By 10 %, of which the claim's own margins hide a part."""
    account = Coordinator.account

    def overstated(self: Coordinator, *arguments: object) -> RoundMechanism:
        mechanism = account(self, *arguments)  # type: ignore[arg-type]
        return replace(mechanism, sigma=1.1 * mechanism.sigma)

    monkeypatch.setattr(Coordinator, "account", overstated)
    validation = validated("loopback")
    assert cells_refuted(validation)
    assert validation.resolution == 0.0


def test_a_prefix_that_is_put_back_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The burst's last samples are sent twice: energy that sits there can be told better than its cells say."""
    send = Transmitter.send

    def earlier(self: Transmitter, cells: np.ndarray, scale: float, conditions: Any, start_sample: int) -> Any:
        return send(self, cells, scale, conditions, start_sample - 64)

    def prefixed(samples: np.ndarray, limit: float) -> tuple[np.ndarray, int]:
        shortened, count = limited(samples, limit)
        return np.concatenate([shortened[-64:], shortened]), count

    monkeypatch.setattr(Transmitter, "send", earlier)
    monkeypatch.setattr("fl.nodes.transmitter.limited", prefixed)
    validation = validated("loopback", jammer=JammerRole.NONE)
    assert any(found.view is View.SAMPLES for found in validation.refuted_by)
    assert not cells_refuted(validation)


def test_a_jammer_whose_noise_has_structure_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that comes twice in each symbol is subtracted: it protects no longer in every direction."""
    send_noise = Transmitter.send_noise

    def repeated(self: Transmitter, noise: np.ndarray, *rest: Any) -> int:
        blocks = noise[: noise.size // 320 * 320].reshape(-1, 320)
        blocks[:, :64] = blocks[:, 256:]
        return send_noise(self, noise, *rest)

    monkeypatch.setattr(Transmitter, "send_noise", repeated)
    validation = validated("loopback")
    assert any(found.view is View.SAMPLES for found in validation.refuted_by)


def test_what_algebra_predicts_is_measured() -> None:
    """The worst changes are apart by what linear algebra says of the first of them, or a little less."""
    validation = validated("loopback-harsh", 1)
    found = next(found for found in validation.findings if found.direction is Direction.WORST)
    predicted = validation.predicted["client-2"]
    # Converters and the soundings' errors cost the attacker some percent.
    assert 0.85 * predicted - 5 * found.estimate.std < found.estimate.mu < predicted + 5 * found.estimate.std


def test_a_rotating_jammer() -> None:
    assert not cells_refuted(validated("loopback", 1, 20, jammer=JammerRole.ROTATING))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command attacks has a third of its coordinates."""
    monkeypatch.setattr("fl.audit.trials.Attack", partial(Attack, symbols=1, first_quiet_samples=2**19))


def ear(tmp_path: Path, gain_db: float) -> Path:
    """The lab `loopback` without fading, with an observer that hears everybody so much better than the ps."""
    text = find_lab("loopback").source
    lab = tmp_path / "ear.toml"
    content = Path(text).read_text().replace('fading = "rayleigh"', 'fading = "static"')
    lab.write_text(
        content + f'\n[medium.radio.ear]\nreceive_gain_db = {gain_db}\n[[radio]]\nname = "ear"\nrole = "observer"\n'
    )
    return lab


@pytest.mark.usefixtures("small")
def test_an_observer_nearer_than_the_server_hears_more(tmp_path: Path, airdp: Callable[..., Outcome]) -> None:
    """Twice the amplitude and the same noise of its own, without a jammer: mu doubles."""
    lab = ear(tmp_path, 20 * math.log10(2.0))
    arguments = ["--trials", "64", "--client", "client-1", "--jammer", "none", "--json"]
    outcome = airdp("validate", str(lab), "--observer", "ear", *arguments)
    assert outcome.code == 3, outcome.err
    near = json.loads(outcome.out)
    assert near["receiver"] == "ear"
    assert near["observer"]["factor"] > 1.8
    far = json.loads(airdp("validate", str(lab), *arguments).out)
    assert near["clients"][0]["predicted_mu"] == pytest.approx(2 * far["clients"][0]["predicted_mu"], rel=0.03)


@pytest.mark.usefixtures("small")
def test_the_command(tmp_path: Path, airdp: Callable[..., Outcome]) -> None:
    out = tmp_path / "page"
    quieter = ["--set", "medium.noise_var_complex=8e-6"]
    arguments = ["--trials", "64", "--client", "client-2", "--jammer", "none", "--json", "--out", str(out)]
    outcome = airdp("validate", "loopback", *quieter, *arguments)
    found = json.loads(outcome.out)
    assert outcome.code == {"holds": 0, "refuted": 3}[found["verdict"]]
    assert set(found["views"]) == {"samples", "cells"}
    for view in found["views"].values():
        low, high = view["ci"]
        assert low < view["measured_mu"] < high
        assert view["claimed_mu"] > 0
    assert [client["client"] for client in found["clients"]] == ["client-2"]
    page = (out / "index.html").read_text()
    assert "data:image/png;base64," in page
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--client", "nobody"], "has no client 'nobody'"),
        (["--trials", "3"], "--trials is 3"),
        (["--jamming", "0"], "--jamming is 0"),
        (["--observer", "ps"], "has no observer 'ps'"),
        (["--blocks", "0"], "--blocks is 0"),
        (["--blocks", "1", "--out", "page"], "--blocks has no page"),
        (["--jamming", "1000"], "times the receiver's at its largest amplitude, not 1000 times"),
        (["--set", "medium.noise_var_complx=1"], "noise_var_complx"),
    ],
)
def test_what_cannot_be_is_refused(airdp: Callable[..., Outcome], arguments: list[str], message: str) -> None:
    outcome = airdp("validate", "loopback", *arguments)
    assert outcome.code == 2
    assert message in outcome.err
