"""Runs from start to end: what they reach, what they leave in the folder, and what they say about privacy."""

import hashlib
import itertools
import json
import math
import random
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl.errors import ConfigError, DataError, ModelError, PrivacyError, RunFolderError
from fl.privacy.accountant import Accountant, epsilon_paper
from fl.privacy.ledger import LedgerContents, read_ledger
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import state_privacy
from fl.run import run
from fl.run.config import load_config, parse_config
from fl.run.course.metrics import UplinkMetrics
from fl.run.course.result import BUDGET_SPENT, FINISHED, RunResult
from fl.run.folder import RunFolder
from fl.uplink.contract import Aggregate
from fl.uplink.symbol import SymbolUplink
from phy.errors import AirdpError

Tiny = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")


def model_of(result: RunResult) -> bytes:
    checkpoint = RunFolder(result.out).load_checkpoint()
    assert checkpoint is not None
    content = checkpoint.model.tobytes()
    assert hashlib.sha256(content).hexdigest() == result.model_sha256
    return content


def ledger_of(result: RunResult) -> LedgerContents:
    return read_ledger(result.out / "ledger.jsonl")


def recomputed(result: RunResult, label: Label, accountant: Accountant) -> float:
    """From the file alone."""
    contents = ledger_of(result)
    header = contents.header
    return state_privacy(
        contents.mechanisms, header.sizes_array, label=label, neighbours=header.neighbours, delta=header.delta
    ).epsilon[accountant]


def test_quickstart_learns(tmp_path: Path) -> None:
    """A third of the shipped quickstart is enough for the accuracy that the whole promises."""
    result = run(load_config("quickstart", ["uplink.stop_after=10"]), tmp_path / "run")
    assert result.accuracy > 0.8
    assert (result.uplinks, result.rounds, result.status) == (10, 20, FINISHED)
    assert 0 < result.privacy[0].epsilon[Accountant.EXACT] < result.privacy[0].epsilon[Accountant.PAPER] < 5.0


def test_what_a_result_says(tmp_path: Path, tiny: Tiny) -> None:
    result = run(tiny(), tmp_path / "run")
    said = result.to_json()
    assert {"accuracy", "loss", "rounds", "uplinks", "epsilon", "label", "delta", "out"} <= set(said)
    assert {"paper", "exact"} <= set(said["epsilon"])
    # An epsilon never without its label, its neighbours, delta, and where sigma comes from.
    assert (said["label"], said["neighbours"], said["delta"]) == ("paper-claim", "zero-out", 1e-5)
    assert said["sigma_origin"] == "simulated"
    assert (said["uplinks"], said["rounds"], said["transmissions_charged"]) == (4, 8, 4)
    assert 0 <= said["accuracy"] <= 1
    assert [statement["label"] for statement in said["privacy"]] == ["paper-claim", "record", "client"]
    assert said["privacy"][0]["epsilon"] == said["epsilon"]
    assert json.loads((result.out / "result.json").read_text()) == said
    assert json.loads(json.dumps(said, allow_nan=False)) == said


def test_what_a_folder_holds(tmp_path: Path, tiny: Tiny) -> None:
    result = run(tiny(), tmp_path / "run")
    names = {path.name for path in result.out.iterdir()}
    expected = {
        "config.toml",
        "versions.json",
        "inputs.json",
        "partition.json",
        "ledger.jsonl",
        "metrics.jsonl",
        "checkpoint.npz",
    }
    assert expected | {"result.json"} <= names
    assert not [name for name in names if name.endswith(".tmp")]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    folder = RunFolder(result.out)
    assert folder.config() == parse_config(tiny())
    partition = folder.read_json("partition.json")
    assert (partition["clients"], partition["samples"], sum(partition["sizes"])) == (3, 300, 300)
    assert len(partition["data_sha256"]) == 64
    assert {"python", "packages"} <= set(folder.read_json("versions.json"))
    rows = folder.metrics()
    assert [row["uplink"] for row in rows] == [1, 2, 3, 4]
    assert [row["rounds"] for row in rows] == [2, 4, 6, 8]
    assert set(rows[0]) == set(UplinkMetrics.__dataclass_fields__)
    assert rows[-1]["accuracy"] == result.accuracy
    assert rows[-1]["epsilon"] == pytest.approx(result.privacy[0].epsilon[Accountant.PAPER], rel=1e-12)


def test_progress_is_told_after_each_uplink(tmp_path: Path, tiny: Tiny) -> None:
    told: list[UplinkMetrics] = []
    run(tiny(), tmp_path / "run", on_uplink=told.append)
    assert [metrics.uplink for metrics in told] == [1, 2, 3, 4]
    assert all(a.epsilon < b.epsilon for a, b in itertools.pairwise(told))


def test_the_ledger_alone_gives_the_same_epsilon(tmp_path: Path, tiny: Tiny) -> None:
    result = run(tiny(), tmp_path / "run")
    contents = ledger_of(result)
    assert (contents.authorised, contents.accounted) == (4, 4)
    for statement in result.privacy:
        for accountant, epsilon in statement.epsilon.items():
            assert recomputed(result, statement.label, accountant) == pytest.approx(epsilon, rel=1e-12)
    # By hand, from the rows: S = 1/2 sum (1/(n s_i sigma))^2 for the worst client, epsilon = S + 2 sqrt(S log 1/delta).
    rows = [json.loads(line) for line in (result.out / "ledger.jsonl").read_text().splitlines()]
    losses = np.zeros(3)
    for row in rows:
        if row["kind"] == "account":
            gains = np.array(row["mechanism"]["received_gains"])
            losses += 0.5 * (gains / (300 * row["mechanism"]["sigma"])) ** 2
    worst = float(losses.max())
    by_hand = worst + 2 * math.sqrt(worst * math.log(1e5))
    assert result.privacy[0].epsilon[Accountant.PAPER] == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("accountant", ["paper", "exact"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"privacy": {"neighbours": "replace-one"}},
        {"privacy": {"label": "client"}},
        {"local": {"mode": "record"}},
        {"jammer": {"role": "dedicated"}, "power": {"alpha_u": 1e6}},
        {"jammer": {"role": "dedicated"}, "power": {"channel_epsilon": 50.0}},
    ],
    ids=["plain", "replace-one", "client", "record", "jammer for all", "jammer for some"],
)
def test_the_target_is_met_exactly(tmp_path: Path, tiny: Tiny, accountant: str, more: dict[str, Any]) -> None:
    """On a static channel with power enough for s_i = 1 nothing is lost: epsilon is the target itself."""
    sections = tiny(**more)
    sections["channel"] = {"fading": "static", "snr_db": 120.0}
    sections["privacy"] = {**sections.get("privacy", {}), "epsilon": 3.25, "accountant": accountant}
    result = run(sections, tmp_path / "run")
    assert result.privacy[0].epsilon[Accountant(accountant)] == pytest.approx(3.25, abs=1e-6)


def test_fading_only_makes_it_more_private_and_the_bound_without_backoff_is_the_target(
    tmp_path: Path, tiny: Tiny
) -> None:
    claimed = run(tiny(privacy={"epsilon": 3.25}), tmp_path / "run").privacy[0]
    assert claimed.epsilon[Accountant.PAPER] < 3.25
    assert claimed.epsilon_without_backoff[Accountant.PAPER] == pytest.approx(3.25, abs=1e-6)


def test_a_budget_stops_before_the_uplink_that_would_exceed_it(tmp_path: Path, tiny: Tiny) -> None:
    free = run(tiny(uplink={"uplinks": 8}), tmp_path / "free")
    epsilons = [row["epsilon"] for row in RunFolder(free.out).metrics()]
    budget = (epsilons[4] + epsilons[5]) / 2
    held = run(tiny(uplink={"uplinks": 8}, privacy={"budget_epsilon": budget}), tmp_path / "held")
    assert (held.status, held.uplinks, held.transmissions_charged) == (BUDGET_SPENT, 5, 5)
    assert recomputed(held, Label.PAPER_CLAIM, Accountant.PAPER) <= budget
    assert recomputed(held, Label.PAPER_CLAIM, Accountant.PAPER) == pytest.approx(epsilons[4], rel=1e-12)
    # It cannot be had by asking again.
    again = run(tiny(uplink={"uplinks": 8}, privacy={"budget_epsilon": budget}), tmp_path / "held", resume=True)
    assert (again.status, again.uplinks, again.transmissions_charged) == (BUDGET_SPENT, 5, 5)
    assert again.model_sha256 == held.model_sha256


@pytest.mark.parametrize("accountant", ["paper", "exact"])
def test_a_budget_of_exactly_the_target_is_enough(tmp_path: Path, tiny: Tiny, accountant: str) -> None:
    sections = tiny(channel={"fading": "static", "snr_db": 120.0})
    sections["privacy"] = {"epsilon": 3.25, "budget_epsilon": 3.25, "accountant": accountant}
    assert run(sections, tmp_path / "run").status == FINISHED


def test_a_budget_too_small_for_one_uplink_sends_nothing(tmp_path: Path, tiny: Tiny) -> None:
    result = run(tiny(privacy={"budget_epsilon": 1e-3}), tmp_path / "run")
    assert (result.status, result.uplinks, result.transmissions_charged) == (BUDGET_SPENT, 0, 0)
    assert set(result.privacy[0].epsilon.values()) == {0.0}
    assert RunFolder(result.out).load_checkpoint() is None


def test_the_budget_is_kept_under_the_claimed_label(tmp_path: Path, tiny: Tiny) -> None:
    sections = tiny(channel={"fading": "static", "snr_db": 120.0})
    sections["privacy"] = {"label": "client", "epsilon": 8.0, "budget_epsilon": 6.0}
    result = run(sections, tmp_path / "run")
    assert result.status == BUDGET_SPENT
    # Four equal uplinks give epsilon 8, and it grows about as the root of their number: 2 fit into 6, not 3.
    assert result.uplinks == 2
    assert recomputed(result, Label.CLIENT, Accountant.PAPER) <= 6.0
    assert recomputed(result, Label.PAPER_CLAIM, Accountant.PAPER) < 1.0


def test_the_ideal_uplink_is_not_private(tmp_path: Path, tiny: Tiny) -> None:
    result = run(tiny(uplink={"kind": "ideal"}), tmp_path / "run")
    for statement in result.privacy:
        assert set(statement.epsilon.values()) == {math.inf}
    said = result.to_json()
    assert said["epsilon"] == {"paper": "inf", "exact": "inf"}
    assert said["sigma_origin"] == "none"
    assert [row["epsilon"] for row in RunFolder(result.out).metrics()] == ["inf"] * 4
    assert RunFolder(result.out).metrics()[0]["noise_norm"] == 0.0


def test_the_ideal_uplink_and_a_budget_do_not_go_together(tmp_path: Path, tiny: Tiny) -> None:
    result = run(tiny(uplink={"kind": "ideal"}, privacy={"budget_epsilon": 100.0}), tmp_path / "run")
    assert (result.status, result.uplinks) == (BUDGET_SPENT, 0)


def test_record_mode_earns_its_label_and_sgd_does_not(tmp_path: Path, tiny: Tiny) -> None:
    earned = run(tiny(local={"mode": "record"}), tmp_path / "record")
    by_label = {statement.label: statement.epsilon[Accountant.PAPER] for statement in earned.privacy}
    assert earned.privacy[0].label is Label.RECORD
    assert by_label[Label.RECORD] == by_label[Label.PAPER_CLAIM] < 6.52
    claimed = run(tiny(), tmp_path / "sgd")
    by_label = {statement.label: statement.epsilon[Accountant.PAPER] for statement in claimed.privacy}
    assert by_label[Label.RECORD] == math.inf
    assert by_label[Label.CLIENT] > by_label[Label.PAPER_CLAIM]


NETS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, 10))

    def forward(self, x):
        return self.layers(x)
"""


@pytest.mark.parametrize("mode", ["sgd", "record"])
def test_a_users_module(tmp_path: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    (tmp_path / "users_own_nets.py").write_text(textwrap.dedent(NETS))
    monkeypatch.syspath_prepend(tmp_path)
    model = {"module": "users_own_nets:Net", "arguments": {"width": 9}}
    sections = tiny(model=model, local={"mode": mode, "workers": 1})
    one = run(sections, tmp_path / "one")
    assert len(model_of(one)) == 4 * (64 * 9 + 9 + 9 * 10 + 10)
    sections["local"]["workers"] = 3
    assert model_of(run(sections, tmp_path / "three")) == model_of(one)


OPTIONS: dict[str, dict[str, Any]] = {
    "fedavg": {"algorithm": {"name": "fedavg"}},
    "fedprox": {"algorithm": {"name": "fedprox"}},
    "upcycled": {"algorithm": {"name": "upcycled", "schedule": [[1, 0.5], [3, 2.0]]}},
    "jammer dedicated": {"jammer": {"role": "dedicated", "factor": 7.0}, "power": {"channel_epsilon": 50.0}},
    "jammer on variance": {
        "jammer": {"role": "dedicated", "factor": 7.0, "factor_on": "variance"},
        "power": {"channel_epsilon": 50.0},
    },
    "jammer external": {
        "jammer": {"role": "external", "availability": 0.3, "gain_db": -10.0},
        "power": {"channel_epsilon": 50.0},
    },
    "jammer rotating": {"jammer": {"role": "rotating"}, "power": {"channel_epsilon": 50.0}},
    "jammer with a limit": {"jammer": {"role": "dedicated", "snr_limit_db": -10.0}, "power": {"channel_epsilon": 50.0}},
    "jammer not needed": {"jammer": {"role": "rotating"}},
    "alpha_u a number": {"power": {"alpha_u": 20.0}},
    "alpha_u largest": {"power": {"alpha_u": "largest"}},
    "alpha_u for its own target": {"power": {"channel_epsilon": 2.0}},
    "backoff actual": {"power": {"backoff": "actual"}},
    "literal aggregate": {"power": {"aggregate": "literal"}, "privacy": {"clip_norm": 0.5}},
    "static gains": {"channel": {"fading": "static", "static_gain": 0.5}},
    "exact accountant": {"privacy": {"accountant": "exact", "neighbours": "replace-one"}},
    "client label": {"privacy": {"label": "client", "epsilon": 50.0}},
    "classes": {"partition": {"kind": "classes", "classes_per_client": 4}},
    "one client": {"partition": {"clients": 1}},
    "synthetic iid": {"data": {"set": "synthetic", "synthetic_max_client_samples": 60, "train_samples": 0}},
    "synthetic natural": {
        "data": {"set": "synthetic", "synthetic_iid": False, "synthetic_max_client_samples": 60, "train_samples": 0},
        "partition": {"kind": "natural"},
    },
    "odd number of parameters": {"model": {"hidden": 15}},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_runs_from_start_to_end(tmp_path: Path, tiny: Tiny, name: str) -> None:
    sections = tiny(**OPTIONS[name])
    result = run(sections, tmp_path / "run")
    assert (result.status, result.uplinks, result.transmissions_charged) == (FINISHED, 4, 4)
    claimed = result.privacy[0]
    config = parse_config(sections)
    epsilon = claimed.epsilon[config.privacy.accountant]
    assert 0 < epsilon < math.inf
    rows = RunFolder(result.out).metrics()
    if name not in {"alpha_u largest", "alpha_u a number"}:
        assert epsilon <= config.privacy.epsilon * (1 + 1e-9)
    if name.startswith("jammer ") and name != "jammer not needed":
        assert any(row["alpha_cj"] > 0 for row in rows)
    if name == "jammer not needed":
        assert {row["jamming_client"] for row in rows} == {None}
        assert {row["alpha_cj"] for row in rows} == {0.0}
    if name == "jammer rotating":
        assert [row["jamming_client"] for row in rows] == [0, 1, 2, 0]
        contents = ledger_of(result)
        for mechanism, row in zip(contents.mechanisms, rows, strict=True):
            assert mechanism.received_gains[row["jamming_client"]] == 0.0
    if name == "jammer external":
        assert sum(row["postponed"] for row in rows) > 0
    if name == "alpha_u largest":
        assert {row["backed_off"] for row in rows} == {0}
    if name == "backoff actual":
        # It looks at the data, so only the bound with s_i = 1 is claimed.
        assert claimed.epsilon == claimed.epsilon_without_backoff
    for row in rows:
        assert 0 < row["weight_received"] <= 1 + 1e-9


def gains(path: Path, uplinks: int, clients: int = 3, jammer: bool = True) -> Path:
    rng = np.random.default_rng(1)
    lines = ["uplink,transmitter,re,im"]
    for uplink in range(1, uplinks + 1):
        for sender in [*map(str, range(clients)), *(["jammer"] if jammer else [])]:
            re, im = rng.standard_normal(2)
            lines.append(f"{uplink},{sender},{re},{im}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("uplinks", [1, 4, 9])
def test_gains_from_a_file(tmp_path: Path, tiny: Tiny, uplinks: int) -> None:
    path = gains(tmp_path / "gains.csv", uplinks)
    sections = tiny(
        channel={"fading": "file", "path": str(path)},
        jammer={"role": "dedicated"},
        power={"channel_epsilon": 50.0},
    )
    result = run(sections, tmp_path / "run")
    contents = ledger_of(result)
    heard = {mechanism.jammer_gain for mechanism in contents.mechanisms}
    assert len(heard) == (1 if uplinks == 1 else 4)
    assert result.privacy[0].epsilon[Accountant.PAPER] <= 6.52 * (1 + 1e-9)


def test_a_client_without_a_channel_is_silent(tmp_path: Path, tiny: Tiny) -> None:
    path = tmp_path / "gains.csv"
    path.write_text("uplink,transmitter,re,im\n1,0,1,0\n1,1,0,0\n1,2,0,1\n")
    result = run(tiny(channel={"fading": "file", "path": str(path)}), tmp_path / "run")
    assert {mechanism.received_gains[1] for mechanism in ledger_of(result).mechanisms} == {0.0}
    assert RunFolder(result.out).metrics()[0]["backoff_max"] == "inf"
    with pytest.raises(ConfigError, match="gain 0"):
        run(tiny(channel={"fading": "file", "path": str(path)}, power={"alpha_u": "largest"}), tmp_path / "largest")


@pytest.mark.parametrize("more", [{}, {"local": {"mode": "record"}}], ids=["sgd", "record"])
def test_a_seed_decides_everything_and_workers_nothing(tmp_path: Path, tiny: Tiny, more: dict[str, Any]) -> None:
    def model(name: str, seed: int, workers: int) -> bytes:
        sections = tiny(seed=seed, **more)
        sections["local"] = {**sections["local"], "workers": workers}
        return model_of(run(sections, tmp_path / name))

    first = model("a", 1, 1)
    assert model("b", 1, 2) == first
    assert model("c", 1, 7) == first
    assert model("d", 2, 1) != first


def test_stop_after_is_the_beginning_of_the_whole_run(tmp_path: Path, tiny: Tiny) -> None:
    whole = run(tiny(), tmp_path / "whole")
    part = run(tiny(uplink={"uplinks": 4, "stop_after": 2}), tmp_path / "part")
    drop = ("seconds",)
    rows, beginning = (RunFolder(result.out).metrics() for result in (whole, part))
    assert len(beginning) == 2
    for row, same in zip(rows, beginning, strict=False):
        assert {k: v for k, v in row.items() if k not in drop} == {k: v for k, v in same.items() if k not in drop}


def test_ways_to_give_a_config(tmp_path: Path, tiny: Tiny, tiny_file: Path) -> None:
    expected = run(tiny(), tmp_path / "mapping").model_sha256
    assert run(parse_config(tiny()), tmp_path / "config").model_sha256 == expected
    assert run(str(tiny_file), str(tmp_path / "text")).model_sha256 == expected
    assert run(tiny_file, tmp_path / "path").model_sha256 == expected


def test_a_run_without_a_folder_gets_one(tmp_path: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    results = [run(tiny(uplink={"uplinks": 1})) for _ in range(2)]
    assert len({result.out for result in results}) == 2
    for result in results:
        assert result.out.parent == Path("runs")
        assert result.out.name.startswith("tiny-")
    with pytest.raises(RunFolderError, match="--resume needs --out"):
        run(tiny(), resume=True)


def test_two_processes_cannot_share_a_folder(tmp_path: Path, tiny: Tiny) -> None:
    met: list[str] = []

    def second(metrics: UplinkMetrics) -> None:
        if metrics.uplink == 2:
            with pytest.raises(RunFolderError, match="another process is running") as caught:
                run(tiny(), tmp_path / "run", resume=True)
            met.append(str(caught.value))

    result = run(tiny(), tmp_path / "run", on_uplink=second)
    assert len(met) == 1
    assert result.transmissions_charged == 4


def test_updates_that_are_not_finite_are_not_sent(tmp_path: Path, tiny: Tiny) -> None:
    sections = tiny(local={"lr": 1e8, "epochs": 5})
    with pytest.raises(PrivacyError, match=r"client \d's update for uplink 1 has .* NaN or infinite"):
        run(sections, tmp_path / "run")
    assert read_ledger(tmp_path / "run" / "ledger.jsonl").authorised == 0
    assert RunFolder(tmp_path / "run").metrics() == []


def test_a_model_that_is_not_finite_ends_the_run_and_is_charged(
    tmp_path: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = SymbolUplink.exchange

    def broken(self: SymbolUplink, plan: Any, *rest: Any) -> Aggregate:
        got = exchange(self, plan, *rest)
        if plan.uplink == 3:
            got.values[0] = np.inf
        return got

    monkeypatch.setattr(SymbolUplink, "exchange", broken)
    with pytest.raises(ModelError, match="not finite after uplink 3"):
        run(tiny(), tmp_path / "run")
    contents = read_ledger(tmp_path / "run" / "ledger.jsonl")
    assert (contents.authorised, contents.accounted) == (3, 3)
    monkeypatch.undo()


def test_numbers_that_json_has_not_do_not_stop_a_run(
    tmp_path: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = SymbolUplink.exchange

    def odd(self: SymbolUplink, plan: Any, *rest: Any) -> Aggregate:
        got = exchange(self, plan, *rest)
        return replace(got, noise_norm=math.inf, diagnostics={"snr_db": -math.inf, "cfo_hz": 1.5})

    monkeypatch.setattr(SymbolUplink, "exchange", odd)
    result = run(tiny(), tmp_path / "run")
    rows = RunFolder(result.out).metrics()
    assert {row["noise_norm"] for row in rows} == {"inf"}
    assert rows[0]["diagnostics"] == {"snr_db": "-inf", "cfo_hz": 1.5}


def test_the_sizes_in_the_ledger_are_the_partitions(tmp_path: Path, tiny: Tiny) -> None:
    result = run(tiny(partition={"kind": "classes", "classes_per_client": 3}), tmp_path / "run")
    header = ledger_of(result).header
    assert list(header.sizes) == RunFolder(result.out).read_json("partition.json")["sizes"]
    assert (header.neighbours, header.delta, header.label) == (Neighbours.ZERO_OUT, 1e-5, Label.PAPER_CLAIM)
    assert header.config_sha256 == RunFolder(result.out).config().digest()


def test_metrics_add_up(tmp_path: Path, tiny: Tiny) -> None:
    result = run(tiny(), tmp_path / "run")
    losses = np.zeros(3)
    for row, mechanism in zip(RunFolder(result.out).metrics(), ledger_of(result).mechanisms, strict=True):
        gains_ = np.array(mechanism.received_gains)
        losses += 0.5 * (gains_ / (300 * mechanism.sigma)) ** 2
        assert row["epsilon"] == pytest.approx(epsilon_paper(float(losses.max()), 1e-5), rel=1e-12)
        assert row["sigma"] == mechanism.sigma
        assert row["backoff_max"] == pytest.approx(1 / gains_.min())
        assert row["weight_received"] == pytest.approx(gains_.sum() / 3)
        # d = 1210 coordinates of N(0, sigma tau) each: the norm is sigma sqrt(d), within five standard deviations.
        assert row["noise_norm"] == pytest.approx(mechanism.sigma * math.sqrt(1210), rel=5 / math.sqrt(2 * 1210))


@pytest.mark.parametrize(
    ("sections", "error"),
    [
        ({"partition": {"clients": 301}}, DataError),
        ({"partition": {"kind": "classes", "clients": 200, "classes_per_client": 10}}, DataError),
        ({"partition": {"kind": "classes", "classes_per_client": 11}}, DataError),
        ({"data": {"train_samples": 1797}}, DataError),
        ({"data": {"train_samples": 10**6}}, DataError),
        ({"data": {"set": "emnist", "path": "/no/such/file.npz"}}, DataError),
        ({"data": {"set": "synthetic", "synthetic_max_client_samples": 1}}, DataError),
        ({"model": {"module": "no_such_package_here:Net"}}, ModelError),
        ({"algorithm": {"schedule": [[5, 0.1], [4, 0.1]]}}, ConfigError),
        ({"algorithm": {"schedule": [[5, math.nan]]}}, ConfigError),
        ({"channel": {"fading": "file", "path": "/no/such/gains.csv"}}, AirdpError),
    ],
    ids=lambda value: "" if isinstance(value, type) else next(iter(value)),
)
def test_what_cannot_run_makes_no_folder(
    tmp_path: Path, tiny: Tiny, sections: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        run(tiny(**sections), tmp_path / "deep" / "run")
    assert list(tmp_path.iterdir()) == []


EXTREMES: dict[str, list[Any]] = {
    "channel.noise_std_real": [1e-9, 1e9],
    "channel.snr_db": [-120, 120],
    "channel.static_gain": [1e-9, 1e9],
    "channel.fading": ["static", "rayleigh"],
    "privacy.clip_norm": [1e-9, 1e9],
    "privacy.epsilon": [1e-6, 1e9],
    "privacy.delta": [1e-300, 0.999999],
    "privacy.label": ["auto", "client"],
    "privacy.accountant": ["paper", "exact"],
    "power.alpha_u": [1e-9, "target", "largest", 1e9],
    "power.backoff": ["worst-case", "actual"],
    "power.aggregate": ["rescaled", "literal"],
    "jammer.role": ["none", "dedicated", "rotating", "external"],
    "jammer.gain_db": [-120, 120],
    "jammer.snr_limit_db": [-120, "none", 120],
    "jammer.factor": [1.0, 1e9],
    "local.lr": [1e-9, 1e9],
    "local.mode": ["sgd", "record"],
    "algorithm.mu": [1e-9, 1e9],
}


@pytest.mark.parametrize("number", range(25))
def test_values_at_the_ends_of_their_ranges_run_or_are_refused(tmp_path: Path, number: int) -> None:
    """Nothing but a result or an error that the user can act on; a warning would be a failure too."""
    draw = random.Random(number)
    sections: dict[str, Any] = {
        "data": {"train_samples": 40},
        "partition": {"clients": 2},
        "model": {"hidden": 4},
        "local": {"epochs": 3, "batch_size": 8},
        "uplink": {"uplinks": 2},
    }
    for place in draw.sample(list(EXTREMES), draw.choice([2, 4, 8, 14])):
        section, key = place.split(".")
        sections.setdefault(section, {})[key] = draw.choice(EXTREMES[place])
    try:
        result = run(sections, tmp_path / "run")
    except AirdpError:
        return
    contents = ledger_of(result)
    assert contents.authorised == contents.accounted == 2
    json.dumps(result.to_json(), allow_nan=False)
