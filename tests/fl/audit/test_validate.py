"""Validation of a lab: the sum holds what is claimed of it, and a claim that is wrong is refuted."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl.audit.attack import Attack
from fl.audit.parts import Part, PartFinding
from fl.audit.trials import make_trials
from fl.audit.verdict import Direction, Finding, Validation, View, judge
from fl.nodes.coordinator import Coordinator
from fl.nodes.transmitter import Transmitter
from fl.privacy.mechanism import RoundMechanism
from fl.uplink.jammer import JammerRole
from hardware.lab.file import find_lab, parse_lab
from hardware.lab.opened import open_lab
from phy.dither import limited
from tests.conftest import Outcome
from tests.fl.audit.formats import short_format

UPLINKS = 80
"""Fewer than the command makes by default, which is 250."""


def validated(
    lab: str, client: int = 0, uplinks: int = UPLINKS, noise_var_complex: float | None = None, **changes: object
) -> Validation:
    small = Attack(client, uplinks, short_format(lab), jammer=JammerRole.DEDICATED)
    attack = replace(small, **changes)  # type: ignore[arg-type]
    tables = find_lab(lab).to_tables()
    if noise_var_complex is not None:
        tables["medium"]["noise_var_complex"] = noise_var_complex
    with open_lab(parse_lab(tables), attack.seed) as opened:
        return judge([make_trials(opened, attack)])


def overstate_sigma(monkeypatch: pytest.MonkeyPatch) -> None:
    """By 10 %."""
    account = Coordinator.account

    def overstated(self: Coordinator, *arguments: object) -> RoundMechanism:
        mechanism = account(self, *arguments)  # type: ignore[arg-type]
        return replace(mechanism, sigma=1.1 * mechanism.sigma)

    monkeypatch.setattr(Coordinator, "account", overstated)


def refuted(validation: Validation, view: View) -> bool:
    return any(isinstance(found, Finding) and found.view is view for found in validation.refuted_by)


def refuted_parts(validation: Validation) -> set[Part]:
    return {found.part for found in validation.refuted_by if isinstance(found, PartFinding)}


@pytest.mark.parametrize(("lab", "client", "least"), [("loopback", 0, 0.88), ("loopback-harsh", 1, 0.7)])
def test_the_claim_holds_and_is_not_idle(lab: str, client: int, least: float) -> None:
    validation = validated(lab, client)
    assert validation.holds
    best = next(found for found in validation.findings if found.direction is Direction.EVERY)
    assert least < best.ratio < 1.0
    assert best.estimate.trials == UPLINKS // 2 * 256
    # What the trials cannot see is the claim's own margin and the error of what they measure, less than a lie of 10 %.
    assert 0.0 < validation.resolution < 0.1
    energy = next(found for found in validation.findings if found.direction is Direction.ENERGY)
    assert abs(energy.estimate.mu) < 5 * energy.estimate.std


@pytest.mark.parametrize(("lab", "client"), [("loopback", 0), ("loopback-harsh", 1)])
def test_noise_that_is_overstated_is_refuted(monkeypatch: pytest.MonkeyPatch, lab: str, client: int) -> None:
    """By 10 %, which the margins of gains would hide on a lab with notches; sigma is measured for itself."""
    overstate_sigma(monkeypatch)
    validation = validated(lab, client)
    assert Part.NOISE in refuted_parts(validation)
    assert refuted_parts(validation) <= {Part.NOISE, Part.PAYLOAD}
    assert validation.resolution == 0.0


def test_noise_that_is_overstated_is_refuted_where_clients_jam_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """By 10 %. Notches of some of them leave a margin above that, and so has the mean; one of them has less."""
    overstate_sigma(monkeypatch)
    validation = validated("loopback-harsh", 1, 40, noise_var_complex=3e-7, jammer=JammerRole.ROTATING, jamming=0.6)
    wrong = [found for found in validation.refuted_by if isinstance(found, PartFinding)]
    assert {found.part for found in wrong} == {Part.NOISE}
    assert "client-3" in {found.jammer for found in wrong}
    assert validation.resolution == 0.0


def test_gain_that_is_understated_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By 10 %: what arrives is more than is charged."""
    account = Coordinator.account

    def understated(self: Coordinator, *arguments: object) -> RoundMechanism:
        mechanism = account(self, *arguments)  # type: ignore[arg-type]
        return replace(mechanism, received_gains=tuple(0.9 * gain for gain in mechanism.received_gains))

    monkeypatch.setattr(Coordinator, "account", understated)
    assert refuted_parts(validated("loopback")) == {Part.GAIN}


def test_a_prefix_that_is_put_back_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The burst's last samples are sent twice: energy that sits there can be told better than its cells say."""
    send = Transmitter.send

    def earlier(self: Transmitter, cells: np.ndarray, scale: float, conditions: Any, start_sample: int) -> Any:
        return send(self, cells, scale, conditions, start_sample - 64)

    def prefixed(samples: np.ndarray, *limits: Any) -> tuple[np.ndarray, int]:
        shortened, count = limited(samples, *limits)
        return np.concatenate([shortened[-64:], shortened]), count

    monkeypatch.setattr(Transmitter, "send", earlier)
    monkeypatch.setattr("fl.nodes.transmitter.limited", prefixed)
    validation = validated("loopback", jammer=JammerRole.NONE)
    assert refuted(validation, View.SAMPLES)
    assert not refuted(validation, View.CELLS)


def test_a_jammer_whose_noise_has_structure_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that comes twice in each symbol is subtracted: it protects no longer in every direction."""
    send_noise = Transmitter.send_noise

    def repeated(self: Transmitter, noise: np.ndarray, *rest: Any) -> int:
        blocks = noise[: noise.size // 320 * 320].reshape(-1, 320)
        blocks[:, :64] = blocks[:, 256:]
        return send_noise(self, noise, *rest)

    monkeypatch.setattr(Transmitter, "send_noise", repeated)
    validation = validated("loopback")
    assert refuted(validation, View.SAMPLES)


def test_what_algebra_predicts_is_measured() -> None:
    """The worst changes are apart by what linear algebra says of the first of them, or a little less."""
    validation = validated("loopback-harsh", 1)
    found = next(found for found in validation.findings if found.direction is Direction.WORST)
    predicted = validation.clients[0].predicted_mu
    # Converters and the soundings' errors cost the attacker some percent.
    assert 0.85 * predicted - 5 * found.estimate.std < found.estimate.mu < predicted + 5 * found.estimate.std
    fitted = validation.clients[0].fitted
    assert 0.9 * predicted - 5 * fitted.std < fitted.mu < predicted + 5 * fitted.std


def test_a_rotating_jammer() -> None:
    assert validated("loopback", 1, 20, jammer=JammerRole.ROTATING).holds


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command attacks has a third of its coordinates."""
    monkeypatch.setattr("fl.audit.attack.SYMBOLS", 1)


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
def test_an_observer_nearer_than_the_server_hears_more(tmp_path: Path, command: Callable[..., Outcome]) -> None:
    """Twice the amplitude and the same noise of its own, without a jammer: mu doubles."""
    lab = ear(tmp_path, 20 * math.log10(2.0))
    arguments = ["--trials", "64", "--client", "client-1", "--jammer", "none", "--json"]
    outcome = command("validate", str(lab), "--observer", "ear", *arguments)
    assert outcome.code == 3, outcome.err
    near = json.loads(outcome.out)
    assert near["receiver"] == "ear"
    assert near["observer"]["factor"] > 1.8
    far = json.loads(command("validate", str(lab), *arguments).out)
    assert near["clients"][0]["predicted_mu"] == pytest.approx(2 * far["clients"][0]["predicted_mu"], rel=0.03)


@pytest.mark.usefixtures("small")
def test_an_observer_near_a_client_and_far_from_the_jammer(tmp_path: Path, command: Callable[..., Outcome]) -> None:
    """5 m from the client, where the ps is 10 m away, and 20.6 m from the jammer instead of 10: twice the signal, and
    of the jammer's noise, which is 1.2 times the receiver's, less than half."""
    places = {"ps": (0, 0), "jammer": (-10, 0), "ear": (10, 5), "client-1": (10, 0)}
    places |= {f"client-{number}": (10 * math.cos(number), 10 * math.sin(number)) for number in range(2, 6)}
    lab = tmp_path / "places.toml"
    content = Path(find_lab("loopback").source).read_text()
    content = content.replace('fading = "rayleigh"', 'fading = "static"').replace("gain_db = -12.0", "gain_db = 8.0")
    content += '\n[[radio]]\nname = "ear"\nrole = "observer"\n'
    content += "".join(f"[medium.radio.{name}]\nposition_m = [{x:.6f}, {y:.6f}]\n" for name, (x, y) in places.items())
    lab.write_text(content)
    arguments = ["--trials", "64", "--client", "client-1", "--json"]
    near = json.loads(command("validate", str(lab), "--observer", "ear", *arguments).out)
    far = json.loads(command("validate", str(lab), *arguments).out)
    ratio = near["clients"][0]["predicted_mu"] / far["clients"][0]["predicted_mu"]
    jamming = near["jammer_over_receiver"]
    expected = 2.0 * math.hypot(1.0, jamming) / math.hypot(1.0, jamming * 10 / math.hypot(20, 5))
    assert jamming == pytest.approx(1.2, rel=0.02)
    assert ratio == pytest.approx(expected, rel=0.05)
    assert near["observer"]["factor"] > 2.3


@pytest.mark.usefixtures("small")
def test_the_command(tmp_path: Path, command: Callable[..., Outcome]) -> None:
    out = tmp_path / "page"
    quieter = ["--set", "medium.noise_var_complex=8e-6"]
    arguments = ["--trials", "70", "--client", "client-2", "--jammer", "none", "--json", "--out", str(out)]
    outcome = command("validate", "loopback", *quieter, *arguments)
    found = json.loads(outcome.out)
    assert (found["uplinks"], found["trials"] >= 70) == (10, True)
    assert outcome.code == {"holds": 0, "refuted": 3}[found["verdict"]]
    assert set(found["views"]) == {"samples", "cells"}
    for view in found["views"].values():
        low, high = view["ci"]
        assert low < view["measured_mu"] < high
        assert view["claimed_mu"] > 0
    assert [client["client"] for client in found["clients"]] == ["client-2"]
    assert {part["part"] for part in found["clients"][0]["parts"]} == {"receiver", "noise", "payload", "gain"}
    page = (out / "index.html").read_text()
    assert "data:image/png;base64," in page
    # Among the letters that a picture is written in those four may stand by chance.
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]*", "", page).replace("http-equiv", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--client", "nobody"], "has no client 'nobody'"),
        (["--trials", "3"], "--trials is 3"),
        (["--jamming", "0"], "--jamming is 0"),
        (["--sounding-symbols", "1"], "radio.sounding_symbols"),
        (["--observer", "ps"], "has no observer 'ps'"),
        (["--blocks", "0"], "--blocks is 0"),
        (["--blocks", "1", "--out", "page"], "--blocks has no page"),
        (["--jamming", "1000"], "times the receiver's at its largest amplitude, not 1000 times"),
        (["--set", "medium.noise_var_complx=1"], "noise_var_complx"),
    ],
)
def test_what_cannot_be_is_refused(command: Callable[..., Outcome], arguments: list[str], message: str) -> None:
    outcome = command("validate", "loopback", *arguments)
    assert outcome.code == 2
    assert message in outcome.err
