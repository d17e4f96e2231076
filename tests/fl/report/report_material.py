"""Small sweeps for the tests of the report, a reader of its tables, and epsilon from a ledger without airdp's code."""

import json
import math
import os
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from scipy.optimize import brentq
from scipy.stats import norm

import fl.report.writing
import fl.run.charging
import fl.run.figures
from fl.learning.workforce import single_threaded_torch
from fl.report import build_report
from fl.run import run
from fl.sweep.plan import SweepFolder, load_plan

TINY = {
    "data.train_samples": 300,
    "partition.clients": 3,
    "model.hidden": 8,
    "local.epochs": 1,
    "uplink.uplinks": 4,
    "privacy.epsilon": 5.0,
}
ALGORITHMS = [
    {"name": "Upcycled-FL", "set": {"algorithm.name": "upcycled"}},
    {"name": "FedProx", "set": {"algorithm.name": "fedprox"}},
    {"name": "FedAvg", "set": {"algorithm.name": "fedavg"}},
]
NAMES = [entry["name"] for entry in ALGORITHMS]
SLUGS = ["upcycled-fl", "fedprox", "fedavg"]


def make_sweep(folder: Path, table: dict[str, Any], leave_out: Sequence[tuple[str, int]] = ()) -> Path:
    """Run the sweep that `table` describes (over the quickstart, made tiny) into `folder`, as `airdp sweep` would.

    leave_out: (slug, trial) pairs that are not run.
    """
    folder.mkdir(parents=True)
    file = folder / "plan.toml"
    whole = {"base": "quickstart", **table, "set": {**TINY, **table.get("set", {})}}
    file.write_text(tomli_w.dumps(whole))
    plan = load_plan(str(file))
    file.unlink()
    sweep = SweepFolder(folder)
    sweep.plan_path.write_text(json.dumps(plan.to_json()))
    timing = []
    with pytest.MonkeyPatch.context() as patch, single_threaded_torch():
        patch.setattr(fl.run.figures, "draw_run", lambda folder: None)
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr(fl.run.charging, "versions", lambda: {"python": "3.x", "packages": {"numpy": "1.x"}})
        for point in plan.points:
            for trial in range(1, plan.trials + 1):
                if (point.slug, trial) in leave_out:
                    continue
                result = run(point.trial_config(trial), sweep.run_folder(point, trial).path)
                times = {"wall_seconds": 2.0 + trial, "cpu_seconds": 1.0 + trial, "uplinks": result.uplinks}
                timing.append({"point": point.slug, "trial": trial, **times})
    (folder / "timing.json").write_text(json.dumps({"cores": 2, "jobs": 2, "wall_seconds": 100.0, "trials": timing}))
    return folder


def algorithms_sweep(folder: Path, **changes: Any) -> Path:
    """One axis with three algorithms, three trials."""
    table = {
        "name": "algorithms",
        "title": "Three algorithms",
        "trials": 3,
        "claims": [[5.0, 1e-5], [3.33, 0.01]],
        "axis": [{"name": "algorithm", "point": ALGORITHMS}],
    }
    return make_sweep(folder, {**table, **changes})


def jammer_sweep(folder: Path) -> Path:
    """Two axes, and a jammer that sends seven times its bound's amplitude; two trials."""
    epsilons = [{"name": f"ε = {e:g}", "set": {"privacy.epsilon": e}, "claims": [[e, 1e-5]]} for e in (2.0, 1.0)]
    table = {
        "name": "jammer-test",
        "title": "A jammer with a factor",
        "trials": 2,
        "set": {"jammer.factor": 7.0, "power.channel_epsilon": 6.52},
        "axis": [{"name": "algorithm", "point": ALGORITHMS[:2]}, {"name": "epsilon", "point": epsilons}],
    }
    return make_sweep(folder, table)


def results(folder: Path, slug: str) -> list[dict[str, Any]]:
    """What the trials of one point of a sweep ended with."""
    return [json.loads(path.read_text()) for path in sorted((folder / slug).glob("trial-*/result.json"))]


def without_pictures(folder: Path, *more: Path) -> str:
    """The page about sweeps or runs, without figures and bound, which take longest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fl.report.writing, "draw_study", lambda study, key: [])
        return build_report([folder, *more], folder / "report.html", bound=False).page


def losses(ledger: Path, *, client: bool = False, backoff: bool = True, factor: float = 1.0) -> float:
    """S of the worst client from a ledger's lines: zero-out neighbours, alpha_CJ divided by `factor`."""
    rows = [json.loads(line) for line in ledger.read_text().splitlines()]
    sizes = rows[0]["sizes"]
    spent = {}
    for row in rows:
        if row["kind"] in ("authorise", "account"):
            spent[row.get("authorised_seq", row["seq"])] = row["mechanism"]
    total = [0.0] * len(sizes)
    for uplink in spent.values():
        jammer = uplink["jammer_gain"] * uplink["alpha_cj"] / factor
        sigma = math.sqrt(jammer**2 + uplink["noise_std_real"] ** 2) / uplink["alpha_u"]
        for number, (size, gain) in enumerate(zip(sizes, uplink["received_gains"], strict=True)):
            delta = (size if client else 1) / sum(sizes) * (gain if backoff else 1.0)
            total[number] += 0.5 * (delta / sigma) ** 2
    return max(total)


def paper(loss: float, delta: float) -> float:
    """Theorem 1."""
    return loss + 2 * math.sqrt(loss * math.log(1 / delta))


def exact(loss: float, delta: float) -> float:
    """Balle and Wang 2018, theorem 8, solved for epsilon."""
    mu = math.sqrt(2 * loss)

    def excess(epsilon: float) -> float:
        second = math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
        return float(norm.cdf(mu / 2 - epsilon / mu) - second - delta)

    return float(brentq(excess, 0.0, paper(loss, delta)))


class _Tables(HTMLParser):
    """Text of every table by its caption, row by row; a cell that spans rows is repeated in each."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self._caption, self._text, self._in = "", "", ""
        self._spans: dict[int, tuple[int, str]] = {}
        self._row: list[str] = []
        self._height = 1

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._spans = {}
        elif tag == "tr":
            self._row = []
            self._fill()
        elif tag in ("caption", "td", "th"):
            self._in, self._text = tag, ""
            self._height = int(dict(attrs).get("rowspan") or 1)

    def handle_data(self, data: str) -> None:
        if self._in:
            self._text += data

    def handle_endtag(self, tag: str) -> None:
        text = " ".join(self._text.split())
        if tag == "caption":
            self._caption = text
            self.tables[text] = []
        elif tag in ("td", "th"):
            if self._height > 1:
                self._spans[len(self._row)] = (self._height - 1, text)
            self._row.append(text)
            self._fill()
        elif tag == "tr":
            self.tables[self._caption].append(self._row)
        if tag == self._in:
            self._in = ""

    def _fill(self) -> None:
        while self._spans.get(len(self._row), (0, ""))[0] > 0:
            left, text = self._spans[len(self._row)]
            self._spans[len(self._row)] = (left - 1, text)
            self._row.append(text)


def tables_of(page: str) -> dict[str, list[list[str]]]:
    """Rows of text by caption."""
    reader = _Tables()
    reader.feed(page)
    return reader.tables


def table(page: str, start: str) -> list[list[str]]:
    """Body and head rows of the only table whose caption begins with `start`."""
    (rows,) = (rows for caption, rows in tables_of(page).items() if caption.startswith(start))
    return rows
