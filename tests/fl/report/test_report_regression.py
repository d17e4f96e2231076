"""Runs whose targets are numbers: their score is R², no percentage, and their loss is not in nats."""

import json
from pathlib import Path

import pytest

from fl.report import build_report
from fl.sweep.score import score_of
from tests.fl.own.regressions import regression_settings
from tests.fl.report.report_material import make_sweep

POINTS = [
    {"name": "FedProx", "set": {"algorithm.name": "fedprox"}},
    {"name": "FedAvg", "set": {"algorithm.name": "fedavg"}},
]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("regression")
    settings = {**regression_settings(folder), "model.hidden": 128, "data.train_samples": 90}
    axis = [{"name": "algorithm", "point": POINTS}]
    return make_sweep(
        folder / "sweep", {"name": "numbers", "title": "Numbers", "trials": 1, "set": settings, "axis": axis}
    )


def test_a_report_gives_r_squared_as_it_is(sweep: Path, tmp_path: Path) -> None:
    page = build_report([sweep], tmp_path / "report.html", bound=False).page
    held = {name: json.loads(next(sweep.glob(f"{name}/*/result.json")).read_text()) for name in ("fedavg", "fedprox")}
    assert "accuracy in %" not in page
    assert "in nats" not in page
    assert "Test R² against uplinks" in page
    for result in held.values():
        assert result["score"] == "R²"
        assert f"{result['accuracy']:.4f}" in page
    gap = held["fedprox"]["accuracy"] - held["fedavg"]["accuracy"]
    assert f"{abs(gap):.4f}" in page


def test_a_sweeps_table_gives_r_squared_as_it_is(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fl.cli.experiments.sweep import _print
    from fl.sweep.plan import SweepFolder

    folder = SweepFolder(sweep)
    _print(folder, folder.plan(), as_json=False)
    said = capsys.readouterr().out
    result = json.loads(next(sweep.glob("fedavg/*/result.json")).read_text())
    assert "test R²" in said
    assert f"{result['accuracy']:.4f}" in said
    assert " % │" not in said


def test_what_is_not_alike_is_no_percentage() -> None:
    assert score_of(["accuracy", "accuracy"]).title == "test accuracy in %"
    assert score_of(["R²"]).number(-1.5) == "-1.5000"
    assert score_of(["R²", "accuracy"]).title == "test score"
