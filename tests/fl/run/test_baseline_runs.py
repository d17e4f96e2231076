"""Runs under Liu and Simeone's power control: what they spend and say, and what they cannot be mixed with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl.errors import ConfigError
from fl.privacy.accountant import Accountant, epsilon_liu_simeone, epsilon_paper
from fl.privacy.ledger import read_ledger
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import state_privacy
from fl.run import run
from fl.run.config import load_config, parse_config
from fl.run.course.metrics import UplinkMetrics
from fl.run.course.result import FINISHED, RunResult
from fl.run.folder import RunFolder
from phy.errors import AirdpError

Tiny = Callable[..., dict[str, Any]]
Command = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")
EPSILON, DELTA = 6.52, 1e-5
UPLINKS = 8
BINDING, FREE = {"snr_db": 8.0}, {"snr_db": -20.0}


def baseline(tiny: Tiny, power: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    """Three clients, eight uplinks, and power with which the budget binds in some and the weakest channel in others."""
    defaults: dict[str, Any] = {
        "channel": BINDING,
        "algorithm": {"name": "fedavg"},
        "uplink": {"uplinks": UPLINKS},
        "local": {"epochs": 1},
    }
    return tiny(power={"control": "liu-simeone", **(power or {})}, **{**defaults, **sections})


def alphas(result: RunResult) -> list[float]:
    return [row["alpha_u"] for row in RunFolder(result.out).metrics()]


def from_the_file(result: RunResult, label: Label, neighbours: Neighbours, accountant: Accountant) -> float:
    contents = read_ledger(result.out / "ledger.jsonl")
    return state_privacy(
        contents.mechanisms,
        contents.header.sizes_array,
        label=label,
        neighbours=neighbours,
        delta=DELTA,
        accountants=[accountant],
    ).epsilon[accountant]


@pytest.mark.parametrize("contraction", [0.0, 0.1])
def test_a_budget_that_binds_is_spent_to_the_last_digit(tmp_path: Path, tiny: Tiny, contraction: float) -> None:
    result = run(baseline(tiny, {"contraction": contraction}), tmp_path / "run")
    spent = from_the_file(result, Label.PAPER_CLAIM, Neighbours.ZERO_OUT, Accountant.PAPER)
    assert spent == pytest.approx(EPSILON, rel=1e-9)
    assert result.privacy[0].epsilon[Accountant.PAPER] == spent
    plan = result.allocation
    assert plan is not None
    assert not plan.free
    assert 0 < np.count_nonzero(plan.limited) < UPLINKS
    assert alphas(result) == plan.alpha_u.tolist()
    # Nobody backs off, nobody jams: the weakest channel limits all.
    for row in RunFolder(result.out).metrics():
        assert (row["backoff_max"], row["backed_off"], row["alpha_cj"]) == (1.0, 0, 0.0)
        assert row["weight_received"] == pytest.approx(1.0)
    unlimited = plan.alpha_u[~plan.limited]
    assert (np.ptp(unlimited) < 1e-9 * unlimited[0]) == (contraction == 0.0)


def test_where_power_keeps_the_budget_privacy_is_free(tmp_path: Path, tiny: Tiny) -> None:
    """As loud as the weakest channel allows, exactly as with power.alpha_u = "largest", and below the target."""
    result = run(baseline(tiny, channel=FREE), tmp_path / "free")
    largest = run(baseline(tiny, {"control": "adaptive", "alpha_u": "largest"}, channel=FREE), tmp_path / "largest")
    assert result.allocation is not None
    assert result.allocation.free
    assert result.privacy[0].epsilon[Accountant.PAPER] < EPSILON
    assert alphas(result) == alphas(largest)
    assert result.model_sha256 == largest.model_sha256
    assert largest.allocation is None
    assert largest.published is None


def test_the_published_budget_and_the_published_epsilon(tmp_path: Path, tiny: Tiny) -> None:
    """Each is met under its own relation and accountant, and each run says both."""
    ours = run(baseline(tiny), tmp_path / "ours")
    theirs = run(baseline(tiny, {"baseline_accountant": "published"}), tmp_path / "theirs")
    assert ours.published is not None
    assert theirs.published is not None
    assert theirs.published.epsilon[Accountant.LIU_SIMEONE] == pytest.approx(EPSILON, rel=1e-9)
    assert theirs.privacy[0].epsilon[Accountant.PAPER] < 0.6 * EPSILON
    # For ours the sum is S of zero-out neighbours, times four.
    loss = ours.privacy[0].total_loss
    assert epsilon_paper(loss, DELTA) == pytest.approx(EPSILON, rel=1e-9)
    assert ours.published.epsilon[Accountant.LIU_SIMEONE] == pytest.approx(epsilon_liu_simeone(4 * loss, DELTA))
    for result in (ours, theirs):
        said = result.published
        assert said is not None
        assert (said.neighbours, said.label) == (Neighbours.REPLACE_ONE, Label.PAPER_CLAIM)
        assert said.epsilon[Accountant.LIU_SIMEONE] == from_the_file(
            result, Label.PAPER_CLAIM, Neighbours.REPLACE_ONE, Accountant.LIU_SIMEONE
        )


@pytest.mark.parametrize(
    ("privacy", "label"),
    [
        ({"neighbours": "replace-one"}, Label.PAPER_CLAIM),
        ({"label": "client", "epsilon": 900.0}, Label.CLIENT),
        ({"accountant": "exact"}, Label.PAPER_CLAIM),
    ],
)
def test_ours_is_the_accountant_relation_and_label_of_the_config(
    tmp_path: Path, tiny: Tiny, privacy: dict[str, Any], label: Label
) -> None:
    config = parse_config(baseline(tiny, privacy=privacy, channel={"snr_db": 40.0}))
    result = run(config, tmp_path / "run")
    said = from_the_file(result, label, config.privacy.neighbours, config.privacy.accountant)
    assert said == pytest.approx(config.privacy.epsilon, rel=1e-9)


def test_per_sample_clipping_earns_the_published_claim(tmp_path: Path, tiny: Tiny) -> None:
    result = run(baseline(tiny, local={"mode": "record"}), tmp_path / "run")
    assert result.published is not None
    assert result.published.label is Label.RECORD
    assert result.privacy[0].label is Label.RECORD
    assert result.privacy[0].epsilon[Accountant.PAPER] == pytest.approx(EPSILON, rel=1e-9)


def test_a_run_that_stops_early_has_the_plan_for_all(tmp_path: Path, tiny: Tiny) -> None:
    whole = run(baseline(tiny), tmp_path / "whole")
    part = run(baseline(tiny, uplink={"uplinks": UPLINKS, "stop_after": 5}), tmp_path / "part")
    assert alphas(part) == alphas(whole)[:5]
    assert part.allocation is not None
    assert part.allocation.to_json() == RunFolder(whole.out).read_json("allocation.json")
    assert part.privacy[0].epsilon[Accountant.PAPER] < EPSILON


def test_a_budget_of_the_same_epsilon_stops_nothing(tmp_path: Path, tiny: Tiny) -> None:
    result = run(baseline(tiny, privacy={"budget_epsilon": EPSILON}), tmp_path / "run")
    assert (result.status, result.uplinks) == (FINISHED, UPLINKS)


def test_the_seed_makes_the_plan_and_a_resumed_run_makes_it_again(tmp_path: Path, tiny: Tiny) -> None:
    class Stop(BaseException):
        pass

    def stop_after_three(metrics: UplinkMetrics) -> None:
        if metrics.uplink == 3:
            raise Stop

    whole = run(baseline(tiny), tmp_path / "whole")
    with pytest.raises(Stop):
        run(baseline(tiny), tmp_path / "stopped", on_uplink=stop_after_three)
    planned = (tmp_path / "stopped" / "allocation.json").read_bytes()
    resumed = run(baseline(tiny), tmp_path / "stopped", resume=True)
    assert resumed.model_sha256 == whole.model_sha256
    assert alphas(resumed) == alphas(whole)
    assert planned == (tmp_path / "whole" / "allocation.json").read_bytes()
    assert resumed.privacy[0].epsilon == whole.privacy[0].epsilon
    other = run(baseline(tiny, seed=2), tmp_path / "other")
    assert alphas(other) != alphas(whole)


def test_what_result_and_ledger_say(tmp_path: Path, tiny: Tiny, command: Command) -> None:
    """The same in result.json, in the ledger's JSON and, for people, in both tables."""
    import tomli_w

    (tmp_path / "baseline.toml").write_text(tomli_w.dumps(baseline(tiny)))
    folder = tmp_path / "run"
    outcome = command("run", tmp_path / "baseline.toml", "--out", folder)
    assert outcome.code == 0
    said = json.loads((folder / "result.json").read_text())
    plan, published = said["allocation"], said["published"]
    assert plan == json.loads((folder / "allocation.json").read_text())
    assert (plan["control"], plan["privacy_free"], plan["uplinks"]) == ("liu-simeone", False, UPLINKS)
    assert 0 < plan["uplinks_limited_by_power"] < UPLINKS
    assert plan["zeta"] > 0
    assert plan["planned_S"] == pytest.approx(plan["budget_S"], rel=1e-12)
    assert plan["budget"] == {
        "epsilon": EPSILON,
        "delta": DELTA,
        "label": "paper-claim",
        "neighbours": "zero-out",
        "accountant": "paper",
    }
    assert (published["neighbours"], published["label"], published["delta"]) == ("replace-one", "paper-claim", DELTA)
    ledger = command("ledger", folder, "--json").json
    assert (ledger["allocation"], ledger["published"]) == (plan, published)
    epsilon = f"epsilon {published['epsilon']['liu-simeone']:.4g}"
    for text in (outcome.out, command("ledger", folder).out):
        for part in ("Liu and Simeone", epsilon, "replace-one neighbours", "all gains in advance", "budget binds"):
            assert part in text
        assert f"limits {plan['uplinks_limited_by_power']} of {UPLINKS} uplinks" in text


def test_the_ledger_at_another_delta_and_after_the_plan_was_damaged(
    tmp_path: Path, tiny: Tiny, command: Command
) -> None:
    result = run(baseline(tiny, channel=FREE), tmp_path / "run")
    assert "privacy is free" in command("ledger", result.out).out
    said = command("ledger", result.out, "--delta", "0.01", "--json").json["published"]
    assert result.published is not None
    assert said["epsilon"]["liu-simeone"] == epsilon_liu_simeone(result.published.total_loss, 0.01)
    for damaged in ("{", '{"zeta": 1}', "[]"):
        (result.out / "allocation.json").write_text(damaged)
        outcome = command("ledger", result.out)
        assert outcome.code == 2
        assert "allocation.json" in outcome.err
        assert outcome.err.count("\n") == 1


def test_other_runs_say_nothing_of_it(tmp_path: Path, tiny: Tiny, command: Command) -> None:
    result = run(tiny(), tmp_path / "run")
    assert not (result.out / "allocation.json").exists()
    assert not {"allocation", "published"} & set(result.to_json())
    assert not {"allocation", "published"} & set(command("ledger", result.out, "--json").json)
    assert "Simeone" not in command("ledger", result.out).out


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"uplink": {"kind": "ideal"}}, "uplink.kind"),
        ({"uplink": {"kind": "radio"}}, "uplink.kind"),
        ({"jammer": {"role": "dedicated"}}, "jammer.role"),
        ({"jammer": {"role": "rotating"}}, "jammer.role"),
        ({"power": {"alpha_u": 100.0}}, "power.alpha_u"),
        ({"power": {"alpha_u": "largest"}}, "power.alpha_u"),
        ({"power": {"channel_epsilon": 3.0}}, "power.channel_epsilon"),
    ],
)
def test_what_it_cannot_be_mixed_with(sections: dict[str, dict[str, Any]], key: str) -> None:
    control = {"control": "liu-simeone"}
    assert parse_config({"power": control}).power.control.value == "liu-simeone"
    with pytest.raises(ConfigError, match=rf"power\.control = 'liu-simeone'.*{key}"):
        parse_config({**sections, "power": {**sections.get("power", {}), **control}})
    # The same without the baseline is no problem.
    parse_config(sections)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("control", "liu"),
        ("control", 1),
        ("contraction", 1.0),
        ("contraction", -0.1),
        ("contraction", float("nan")),
        ("contraction", "0.1"),
        ("baseline_accountant", "exact"),
    ],
)
def test_values_that_mean_nothing_are_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"power.{key}"):
        parse_config({"power": {key: value}})


def test_the_paper_comparison_is_one_override_away() -> None:
    config = load_config("emnist", ["power.control=liu-simeone", "algorithm.name=fedavg"])
    assert (config.power.contraction, config.power.baseline_accountant.value) == (0.0, "ours")


def test_gains_from_a_file_must_reach_to_the_last_planned_uplink(tmp_path: Path, tiny: Tiny) -> None:
    """Rows for the uplinks that are made do not do: the plan is over all of them."""
    rng = np.random.default_rng(1)
    gains = rng.standard_normal((UPLINKS, 3)) + 1j * rng.standard_normal((UPLINKS, 3))
    path = tmp_path / "gains.npz"
    sections: dict[str, Any] = {
        "channel": {**BINDING, "fading": "file", "path": str(path)},
        "uplink": {"uplinks": UPLINKS, "stop_after": 2},
    }
    np.savez(path, client_gains=gains)
    result = run(baseline(tiny, **sections), tmp_path / "whole")
    assert result.allocation is not None
    assert result.allocation.alpha_u.size == UPLINKS
    np.savez(path, client_gains=gains[:-1])
    with pytest.raises(AirdpError, match=f"the run needs {UPLINKS}"):
        run(baseline(tiny, **sections), tmp_path / "short")
    run(baseline(tiny, {"control": "adaptive"}, **sections), tmp_path / "adaptive")
    gains[4, 1] = 0
    np.savez(path, client_gains=gains)
    with pytest.raises(ConfigError, match="client 1 has gain 0 in uplink 5"):
        run(baseline(tiny, **sections), tmp_path / "deaf")
    assert not (tmp_path / "short").exists()
    assert not (tmp_path / "deaf").exists()
