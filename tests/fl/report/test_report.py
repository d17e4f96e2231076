"""`airdp report` on real small sweeps: every number is recomputed here by other means."""

import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

import fl.report.writing
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.report.page import deviation, estimate, number, percent, plain, quantiles, seconds, span
from fl.report.privacy import Span, delta_meaning, meanings, privacy_rows, without_factor
from fl.report.sources import digest_as_written, read_study
from fl.report.statistics import band
from fl.run.config import JammerConfig
from fl.run.folder import RunFolder
from fl.sweep.estimate import Estimate
from fl.uplink.jammer import FactorOn, JammerRole, size_jammer
from tests.fl.report.report_material import (
    NAMES,
    SLUGS,
    exact,
    losses,
    make_sweep,
    paper,
    results,
    table,
    tables_of,
    without_pictures,
)

Command = Callable[..., Any]
# Quantiles of Student's t at 97.5 % for 1 and 2 degrees of freedom, from tables.
T_1, T_2 = 12.7062, 4.30265


@pytest.fixture(scope="module")
def page(algorithms: Path) -> str:
    return without_pictures(algorithms)


@pytest.fixture(scope="module")
def jammer_page(jammer: Path) -> str:
    return without_pictures(jammer)


@pytest.fixture
def own(algorithms: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(algorithms, tmp_path / "own"))


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fl.report.writing, "draw_study", lambda study, key: [])


def change_plan(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    plan = json.loads((folder / "sweep.json").read_text())
    change(plan)
    (folder / "sweep.json").write_text(json.dumps(plan))


def numbers(text: str) -> list[float]:
    """What a reader sees in a cell, as numbers."""
    return [float(part) for part in re.findall(r"-?\d[\d.]*(?:e-?\d+)?", text.replace("\u2212", "-").replace(",", ""))]


class TestLearning:
    def test_means_and_intervals_of_the_last_models(self, algorithms: Path, page: str) -> None:
        rows = {row[0]: row for row in table(page, "The last model")}
        for name, slug in zip(NAMES, SLUGS, strict=True):
            accuracies = 100 * np.array([result["accuracy"] for result in results(algorithms, slug)])
            mean, half = accuracies.mean(), T_2 * accuracies.std(ddof=1) / math.sqrt(3)
            assert rows[name][1] == "3"
            assert numbers(rows[name][2]) == pytest.approx([mean, half], abs=0.0051)
            assert numbers(rows[name][3].replace("–", " ")) == pytest.approx(
                [min(accuracies), max(accuracies)], abs=0.0051
            )
            trained = [result["loss"] for result in results(algorithms, slug)]
            assert numbers(rows[name][4])[0] == pytest.approx(np.mean(trained), abs=0.00051)
        assert [rows[name][6:8] for name in NAMES] == [["4", "8"], ["4", "4"], ["4", "4"]]

    def test_differences_are_paired_by_trial(self, algorithms: Path, page: str) -> None:
        rows = table(page, "Final accuracy")[1:]
        pairs = [(0, 1), (0, 2), (1, 2)]
        assert [tuple(row[:2]) for row in rows] == [(NAMES[a], NAMES[b]) for a, b in pairs]
        for row, (a, b) in zip(rows, pairs, strict=True):
            first, second = ([r["accuracy"] for r in results(algorithms, SLUGS[k])] for k in (a, b))
            gaps = 100 * (np.array(first) - np.array(second))
            mean, half = gaps.mean(), T_2 * gaps.std(ddof=1) / math.sqrt(3)
            assert numbers(row[3]) == pytest.approx([mean, half], abs=0.0051)
            assert row[4].startswith(f"{int((gaps > 0).sum())} of 3")
            decided = abs(mean) > half
            assert row[5] == (f"{NAMES[a] if mean > 0 else NAMES[b]} ahead" if decided else "open")

    def test_two_axes_are_compared_one_at_a_time(self, jammer_page: str) -> None:
        rows = table(jammer_page, "Final accuracy")[1:]
        assert [tuple(row[:3]) for row in rows] == [
            ("ε = 2", "Upcycled-FL", "FedProx"),
            ("ε = 1", "Upcycled-FL", "FedProx"),
            ("Upcycled-FL", "ε = 2", "ε = 1"),
            ("FedProx", "ε = 2", "ε = 1"),
        ]

    def test_trials_with_other_seeds_are_not_paired(self, tmp_path: Path) -> None:
        points = [{"name": "a", "set": {"seed": 1}}, {"name": "b", "set": {"seed": 2}}]
        folder = make_sweep(
            tmp_path / "seeds", {"name": "seeds", "trials": 1, "axis": [{"name": "seed", "point": points}]}
        )
        page = without_pictures(folder)
        assert not any(caption.startswith("Final accuracy") for caption in tables_of(page))
        assert "A curve of one or two trials has no interval" in page

    def test_curves_hold_mean_and_interval(self, algorithms: Path) -> None:
        curve = read_study(algorithms).curves[1]
        rows = [RunFolder(algorithms / "fedprox" / f"trial-0{trial}").metrics() for trial in (1, 2, 3)]
        losses_ = np.array([[row["loss"] for row in trial] for trial in rows])
        found = band(curve, "loss")
        np.testing.assert_allclose(found.mean, losses_.mean(axis=0))
        np.testing.assert_allclose(found.half, T_2 * losses_.std(axis=0, ddof=1) / math.sqrt(3), rtol=1e-4)
        assert found.uplinks.tolist() == found.rounds.tolist() == [1, 2, 3, 4]
        assert band(read_study(algorithms).curves[0], "loss").rounds.tolist() == [2, 4, 6, 8]

    def test_trials_that_end_early_count_as_far_as_they_came(self, tmp_path: Path) -> None:
        """A budget that one channel meets sooner than another."""
        folder = make_sweep(
            tmp_path / "budget",
            {
                "name": "budget",
                "trials": 4,
                "set": {"privacy.budget_epsilon": 1.2, "power.alpha_u": "largest", "jammer.role": "none"},
            },
        )
        (curve,) = read_study(folder).curves
        lengths = [trial.uplinks for trial in curve.trials]
        assert len(set(lengths)) > 1
        found = band(curve, "accuracy")
        assert len(found.mean) == max(lengths)
        assert found.trials.tolist() == [sum(length >= uplink for length in lengths) for uplink in found.uplinks]
        last = [trial.metrics["accuracy"][-1] for trial in curve.trials if trial.uplinks == max(lengths)]
        assert found.mean[-1] == pytest.approx(np.mean(last))
        page = without_pictures(folder)
        assert table(page, "The last model")[1][6] == f"{min(lengths)}–{max(lengths)}"


class TestPrivacy:
    def test_epsilons_are_the_ledgers(self, algorithms: Path, page: str) -> None:
        rows = table(page, "Epsilon")[2:]
        assert [row[0] for row in rows] == [name for name in NAMES for _ in range(2)]
        for row in rows:
            ledgers = sorted((algorithms / SLUGS[NAMES.index(row[0])]).glob("*/ledger.jsonl"))
            claim, delta = {"1e\u22125": (5.0, 1e-5), "0.01": (3.33, 0.01)}[row[1]]
            assert float(row[2]) == claim
            own = [losses(ledger) for ledger in ledgers]
            free = [losses(ledger, backoff=False) for ledger in ledgers]
            client = [losses(ledger, client=True) for ledger in ledgers]
            for cell, formula, spent in (
                (row[3], paper, own),
                (row[4], paper, free),
                (row[5], exact, own),
                (row[6], paper, client),
                (row[7], exact, client),
            ):
                values = [formula(loss, delta) for loss in spent]
                shown = numbers(cell.replace("–", " "))[: 1 if "–" not in cell else 2]
                assert shown == pytest.approx(sorted({min(values), max(values)})[: len(shown)], rel=6e-4)
                assert max(values) == pytest.approx(shown[-1], rel=6e-4)
            assert row[8] == "paper-claimzero-outσ simulated"
            off = max(abs(paper(loss, delta) / claim - 1) for loss in own)
            assert row[3].endswith("✓" if off <= 0.005 else "✗")
            # Noise is sized for the claim at s = 1.
            assert row[4].endswith("✓")

    def test_a_wrong_claim_is_marked(self, own: Path) -> None:
        change_plan(own, lambda plan: plan["points"][0].update(claims=[[5.03, 1e-5]]))
        change_plan(own, lambda plan: plan["points"][1].update(claims=[[5.02, 1e-5]]))
        rows = table(without_pictures(own), "Epsilon")[2:]
        # 5 is 0.6 % below 5.03 and 0.4 % below 5.02.
        assert rows[0][4].endswith("\u22120.6 % ✗")
        assert rows[1][4].endswith("\u22120.4 % ✓")

    def test_the_summary_counts_them(self, own: Path) -> None:
        """One claim that is what all ledgers give, one that only the s-free bound is, and one that is neither."""
        for trial in ("trial-02", "trial-03"):
            shutil.rmtree(own / "upcycled-fl" / trial)
        same = paper(losses(own / "upcycled-fl" / "trial-01" / "ledger.jsonl"), 1e-5)
        ledgers = list(own.glob("fedprox/*/ledger.jsonl"))
        free = paper(losses(ledgers[0], backoff=False), 1e-5)
        # Back-off takes some trial more than 0.5 % below the bound; else this test shows nothing.
        assert min(paper(losses(path), 1e-5) for path in ledgers) < 0.995 * free

        def claim(plan: dict[str, Any]) -> None:
            for point, epsilon in zip(plan["points"], (same, free, 6.0), strict=True):
                point["claims"] = [[epsilon, 1e-5]]

        change_plan(own, claim)
        text = " ".join(without_pictures(own).split())
        assert "Epsilons claimed: 3;" in text
        assert "<strong>1 of them is what the ledgers give.</strong>" in text
        assert "For 1 of them the s‑free bound is the claim" in text
        assert "<strong>1 of them is not what the ledgers give</strong> (✗)" in text

    def test_a_factor_is_shown_both_ways(self, jammer: Path, jammer_page: str) -> None:
        rows = table(jammer_page, "Epsilon")[2:]
        assert [row[3] for row in rows] == ["at the bound (factor removed)", "as sent"] * 4
        for row in rows:
            slug = row[0].lower().replace(", ε = ", "_epsilon-")
            ledgers = list((jammer / slug).glob("*/ledger.jsonl"))
            assert len(ledgers) == 2
            factor = 7.0 if row[3] != "as sent" else 1.0
            values = [paper(losses(path, factor=factor), 1e-5) for path in ledgers]
            free = max(paper(losses(path, factor=factor, backoff=False), 1e-5) for path in ledgers)
            assert numbers(row[4].replace("–", " "))[0] == pytest.approx(min(values), rel=6e-4)
            assert numbers(row[5])[0] == pytest.approx(free, rel=6e-4)
            if row[3] == "as sent":
                # Nothing is claimed for it.
                assert "%" not in row[4] + row[5]
                assert free < 0.5 * float(row[2])
            else:
                assert row[5].endswith("+0.0 % ✓")

    @pytest.mark.parametrize("factor_on", list(FactorOn))
    def test_taking_the_factor_out_is_the_bound(self, factor_on: FactorOn) -> None:
        size = {"sigma_required": 0.02, "alpha_u": 90.0, "gain": 0.7, "noise_std_real": 1.0}
        sent = size_jammer(**size, factor=7.0, factor_on=factor_on)
        mechanism = RoundMechanism(
            uplink=1,
            received_gains=(1.0,),
            sigma=math.hypot(sent.gain * sent.alpha, 1.0) / 90.0,
            sigma_origin=SigmaOrigin.SIMULATED,
            record_bounded=False,
            clip_norm=1.0,
            alpha_u=90.0,
            alpha_cj=sent.alpha,
            jammer_gain=sent.gain,
            noise_std_real=1.0,
        )
        config = JammerConfig(role=JammerRole.DEDICATED, factor=7.0, factor_on=factor_on)
        assert mechanism.sigma > 0.021
        assert without_factor(mechanism, config).sigma == pytest.approx(0.02, rel=1e-12)

    def test_no_epsilon_without_what_it_means(self, jammer_page: str) -> None:
        text = " ".join(re.sub(r"<[^>]*>", " ", jammer_page).split())
        assert "paper-claim The number that the published theorem gives" in text
        assert "It is not a guarantee for these runs" in text
        assert "client Holds for everything that one client owns" in text
        assert "zero-out Two data sets are neighbours" in text
        assert "σ simulated The noise came from a seeded generator" in text
        assert "at the bound (factor removed) The jammer sent more than its bound asks for" in text

    def test_without_noise_epsilon_is_infinite(self, tmp_path: Path) -> None:
        folder = make_sweep(
            tmp_path / "ideal", {"name": "ideal", "trials": 1, "set": {"uplink.kind": "ideal", "jammer.role": "none"}}
        )
        page = without_pictures(folder)
        (row,) = table(page, "Epsilon")[2:]
        assert row[3:8] == ["infinite"] * 5
        assert row[2] == "none sized for 5"
        assert row[8].endswith("σ none")
        assert "No epsilon is claimed" in page
        assert "No curve has a jammer" in page


class TestBaseline:
    def test_epsilon_as_its_authors_count(self, tmp_path: Path) -> None:
        """S + 2 C sqrt(S) with twice the sensitivity, C sqrt(pi) exp(C^2) = 1/delta (Liu and Simeone 2020)."""
        points = [
            {"name": "ours"},
            {"name": "theirs", "set": {"power.control": "liu-simeone"}},
        ]
        folder = make_sweep(
            tmp_path / "rules",
            {
                "name": "rules",
                "trials": 2,
                "claims": [[5.0, 1e-5]],
                "set": {"jammer.role": "none", "power.channel_epsilon": 0},
                "axis": [{"name": "rule", "point": points}],
            },
        )
        (row,) = table(without_pictures(folder), "Liu and Simeone")[1:]
        c = brentq(lambda x: math.log(math.sqrt(math.pi) * x) + x * x - math.log(1e5), 1e-3, 10)
        spent = [4 * losses(path) for path in folder.glob("theirs/*/ledger.jsonl")]
        values = [loss + 2 * c * math.sqrt(loss) for loss in spent]
        assert row[:3] == ["theirs", "1e\u22125", "5"]
        assert numbers(row[3].replace("–", " "))[0] == pytest.approx(min(values), rel=6e-4)
        assert row[4] == "paper-claim, replace-one"
        plans = [json.loads(path.read_text()) for path in folder.glob("theirs/*/allocation.json")]
        assert row[5] == f"{sum(plan['privacy_free'] for plan in plans)} of 2"
        assert row[6] == f"{sum(plan['uplinks_limited_by_power'] for plan in plans)} of 8"

    def test_only_where_it_is_used(self, page: str) -> None:
        assert not any(caption.startswith("Liu") for caption in tables_of(page))


class TestPower:
    def test_shares_are_those_of_the_metrics(self, algorithms: Path, page: str) -> None:
        rows = {row[0]: row for row in table(page, "Power control")[1:]}
        for name, slug in zip(NAMES, SLUGS, strict=True):
            lines = [
                json.loads(x) for p in algorithms.glob(f"{slug}/*/metrics.jsonl") for x in p.read_text().splitlines()
            ]
            assert rows[name][1] == "12"
            assert numbers(rows[name][2])[0] == pytest.approx(100 * sum(x["backed_off"] for x in lines) / 36, abs=0.051)
            assert numbers(rows[name][4])[0] == pytest.approx(max(x["backoff_max"] for x in lines), rel=6e-3)
            weights = sorted(x["weight_received"] for x in lines)
            assert numbers(rows[name][5])[0] == pytest.approx(weights[5], rel=6e-3)
            assert numbers(rows[name][7])[0] == pytest.approx(100 * sum(x["clipped"] for x in lines) / 36, abs=0.051)

    def test_jammer_activity(self, jammer: Path, jammer_page: str) -> None:
        rows = {row[0]: row for row in table(jammer_page, "Jammer")[1:]}
        row = rows["FedProx, ε = 1"]
        lines = [
            json.loads(line)
            for path in jammer.glob("fedprox_epsilon-1/*/metrics.jsonl")
            for line in path.read_text().splitlines()
        ]
        alphas = sorted(line["alpha_cj"] for line in lines)
        assert row[1:4] == ["dedicated", "7 on amplitude", "8"]
        assert numbers(row[4])[0] == pytest.approx(100 * np.mean(np.array(alphas) > 0), abs=0.051)
        assert numbers(row[5].replace("–", " "))[:3] == pytest.approx([alphas[3], alphas[0], alphas[7]], rel=6e-3)

    def test_a_jamming_client_does_not_count_as_a_sender(self, tmp_path: Path) -> None:
        folder = make_sweep(
            tmp_path / "rotating",
            {"name": "rotating", "trials": 1, "set": {"jammer.role": "rotating", "power.channel_epsilon": 50.0}},
        )
        (trial,) = read_study(folder).curves[0].trials
        lines = trial.folder.metrics()
        assert trial.senders.tolist() == [3 - (line["jamming_client"] is not None) for line in lines]
        assert trial.senders.min() == 2


@pytest.mark.usefixtures("no_pictures")
class TestCommand:
    def test_json_holds_the_numbers(self, algorithms: Path, tmp_path: Path, command: Command) -> None:
        out = tmp_path / "r.html"
        said = command("report", algorithms, "--out", out, "--no-bound", "--json").json
        assert said["report"] == str(out)
        assert (said["files"], out.is_file()) == ([], True)
        (study,) = said["studies"]
        accuracies = [result["accuracy"] for result in results(algorithms, "fedprox")]
        entry = study["outcomes"][1]
        assert entry["curve"] == "FedProx"
        assert entry["accuracy"]["mean"] == pytest.approx(np.mean(accuracies), rel=1e-12)
        assert entry["accuracy"]["half"] == pytest.approx(T_2 * np.std(accuracies, ddof=1) / math.sqrt(3), rel=1e-5)
        row = study["privacy"][2]
        assert (row["curve"], row["delta"], row["claim"]) == ("FedProx", 1e-5, 5.0)
        values = [paper(losses(path), 1e-5) for path in algorithms.glob("fedprox/*/ledger.jsonl")]
        assert row["paper"] == pytest.approx({"low": min(values), "high": max(values)}, rel=1e-9)
        assert row["deviation"]["low"] == pytest.approx(min(values) / 5 - 1, abs=1e-9)
        assert row["agrees"] == (max(abs(value / 5 - 1) for value in values) <= 0.005)
        assert row["label"] == "paper-claim"
        assert study["bounds"] is None
        assert study["missing"] == []

    def test_a_single_run(self, own: Path, command: Command) -> None:
        folder = own / "fedavg" / "trial-02"
        outcome = command("report", folder, "--no-bound")
        assert (outcome.code, outcome.err) == (0, "")
        assert str(folder / "report.html") in outcome.out
        page = (folder / "report.html").read_text()
        assert table(page, "The last model")[1][:3] == [
            "quickstart",
            "1",
            f"{100 * results(own, 'fedavg')[1]['accuracy']:.2f}",
        ]
        assert table(page, "Epsilon")[2][2] == "none sized for 5"
        again = re.search(r"airdp run quickstart (--set .*) --out AGAIN", page)
        assert again is not None
        assert "seed=2" in again[1]
        assert f"# in the folder that holds {folder.name}:\nairdp ledger {folder.name}" in page
        # A page in its folder does not keep a run from being reported again.
        assert command("report", folder, "--no-bound").code == 0

    def test_the_bound_of_each_curve(self, own: Path, command: Command) -> None:
        """The same terms as `airdp bound` gives for the first trial."""
        change_plan(own, lambda plan: plan.update(points=plan["points"][1:]))
        (study,) = command("report", own, "--json").json["studies"]
        expected = command("bound", own / "fedprox" / "trial-01", "--json").json
        entry = study["bounds"][0]
        assert (entry["curve"], entry["trial"], entry["holds"]) == ("FedProx", 1, expected["holds"])
        for form in entry["forms"]:
            there = expected["bounds"][form["form"]]
            assert form["dominant"] == there["dominant"]
            assert form["void"] == there["void"]
            assert form["terms"]["c6"] == pytest.approx(there["terms"]["c6"], rel=1e-9)
        page = (own / "report.html").read_text()
        rows = table(page, "Terms, means over the uplinks")
        assert [row[:2] for row in rows[1:]] == [[n, f] for n in NAMES[1:] for f in ("paper", "mended")]
        assert "mu = 0: without a proximal term the theorem has nothing to say" in page

    def test_without_the_data_the_bound_says_why(self, own: Path, command: Command) -> None:
        for path in own.glob("*/*/partition.json"):
            path.write_text(json.dumps({**json.loads(path.read_text()), "data_sha256": "0" * 64}))
        outcome = command("report", own)
        assert outcome.code == 0
        page = (own / "report.html").read_text()
        assert page.count(": not computed.") == 3
        assert "was run on other data than is here now" in page
        assert str(own) not in page


def test_a_digest_as_written_is_the_runs(algorithms: Path) -> None:
    folder = RunFolder(algorithms / "fedavg" / "trial-01")
    assert digest_as_written(folder.config_path) == folder.config().digest()


def test_the_page_says_against_whom_and_how_delta_is_divided(page: str, algorithms: Path) -> None:
    rows = [row for curve in read_study(algorithms).curves for row in privacy_rows(curve)]
    said = dict(meanings(rows))
    for view in {view for row in rows for view in row.views}:
        assert f"view {view.value}" in said
        assert f"view {view.value}" in page
    assert said[f"δ = {rows[0].delta:g}"] == delta_meaning(rows[0])
    assert f"δ = {rows[0].delta:g}" in page
    measured = replace(rows[0], delta=1e-5, delta_bounds=Span(1e-6, 1e-6))
    assert "1e-06 is set aside" in delta_meaning(measured)
    assert "9e-06 is left" in delta_meaning(measured)
    assert "older format" in delta_meaning(replace(rows[0], delta_bounds=None))


def test_how_numbers_read() -> None:
    assert [number(x) for x in (5.0, 6.5219, 0.1, 38123.4, 1e-5, 2e8, 0.0, math.inf, math.nan)] == [
        "5.000", "6.522", "0.1000", "38,120", "1.000e\u22125", "2.000e8", "0", "infinite", "–",
    ]  # fmt: skip
    assert [plain(x) for x in (6.52, 1e-5, 0.01, 7.0)] == ["6.52", "1e\u22125", "0.01", "7"]
    assert percent(-0.0001) == "0.0\u00a0%"
    assert percent(-0.0123, sign=True) == "\u22121.2\u00a0%"
    assert estimate(Estimate(0.5, 0.01, 0.4, 0.6, 3), 100) == "50.00\u00a0±\u00a01.00"
    assert estimate(Estimate(0.5, None, 0.5, 0.5, 1), 100) == "50.00"
    assert span(Span(6.5201, 6.5202)) == "6.520"
    assert span(Span(6.51, 6.52)) == "6.510–6.520"
    assert deviation(Span(-0.01, 0.0)) == "\u22121.0\u00a0% to +0.0\u00a0%"
    assert quantiles((1.0, 2.0, 3.0)) == ("2.00", "1.00–3.00")
    assert quantiles((2.0, 2.0, 2.0)) == ("2.00", "")
    assert quantiles(None) == ("–", "")
    assert [seconds(x) for x in (0.0123, 5.0, 300.0, 9000.0)] == [
        "12.3\u00a0ms", "5.0\u00a0s", "5.0\u00a0min", "2.5\u00a0h",
    ]  # fmt: skip
