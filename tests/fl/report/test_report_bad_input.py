"""`airdp report` on folders that are unfinished, damaged or something else: it says what, and leaves nothing behind."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fl.report.writing
from fl.run.folder import RunFolder
from tests.fl.report.report_material import make_sweep, table

Command = Callable[..., Any]
Snapshot = Callable[[Path], dict[str, str]]


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fl.report.writing, "draw_study", lambda study, key: [])


@pytest.fixture
def own(algorithms: Path, tmp_path: Path) -> Path:
    """Three algorithms, three trials; a copy that a test may change."""
    return Path(shutil.copytree(algorithms, tmp_path / "sweep"))


def refused(command: Command, snapshot: Snapshot, folder: Path, *arguments: object) -> str:
    """What is said where nothing may be written."""
    before = snapshot(folder)
    outcome = command("report", *(arguments or (folder,)), "--no-bound")
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert snapshot(folder) == before
    return str(outcome.err)


def page_of(command: Command, folder: Path) -> str:
    outcome = command("report", folder, "--no-bound")
    assert (outcome.code, outcome.err) == (0, "")
    return " ".join((folder / "report.html").read_text().split())


def edit(path: Path, change: Callable[[Any], object]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_something_else(tmp_path: Path, command: Command, snapshot: Snapshot) -> None:
    assert "is neither the folder of a sweep" in refused(command, snapshot, tmp_path)
    assert "nowhere is neither" in refused(command, snapshot, tmp_path, tmp_path / "nowhere")


def test_no_or_the_same_folder(own: Path, tmp_path: Path, command: Command, snapshot: Snapshot) -> None:
    assert command("report").code == 2
    assert "given twice" in refused(command, snapshot, own, own, own / ".." / own.name, "--out", tmp_path / "x.html")
    other = Path(shutil.copytree(own, tmp_path / "other"))
    assert "needs --out" in refused(command, snapshot, tmp_path, own, other)


def test_a_place_that_cannot_be_written(own: Path, tmp_path: Path, command: Command, snapshot: Snapshot) -> None:
    (tmp_path / "file").write_text("")
    assert "is a folder" in refused(command, snapshot, tmp_path, own, "--out", tmp_path)
    said = refused(command, snapshot, tmp_path, own, "--out", tmp_path / "file" / "page.html")
    assert "is no folder that can be written to" in said


def test_missing_trials_are_named_and_left_out(own: Path, command: Command) -> None:
    (own / "fedprox" / "trial-02" / "result.json").unlink()
    shutil.rmtree(own / "fedavg" / "trial-03")
    page = page_of(command, own)
    assert "<strong>Unfinished.</strong> 2 of 9 planned trials are missing." in page
    assert "<li>FedProx, trial 2: stopped or running, 4 of 4 uplinks made</li>" in page
    assert "<li>FedAvg, trial 3: not begun</li>" in page
    assert [row[:2] for row in table(page, "The last model")[1:]] == [
        ["Upcycled-FL", "3"],
        ["FedProx", "2"],
        ["FedAvg", "2"],
    ]
    # Trials 1 and 3 of one, 1 and 2 of the other: they share the first.
    assert [row[2] for row in table(page, "Final accuracy")[1:]] == ["2", "2", "1"]


def test_a_curve_without_trials(own: Path, command: Command) -> None:
    shutil.rmtree(own / "fedprox")
    page = page_of(command, own)
    assert [row[0] for row in table(page, "The last model")[1:]] == ["Upcycled-FL", "FedAvg"]
    assert page.count("<li>FedProx, trial") == 3
    # It is planned, so its settings are shown.
    assert [row[0] for row in table(page, "Where the curves differ")[1:]] == ["Upcycled-FL", "FedProx", "FedAvg"]


def test_a_damaged_trial_that_is_not_finished_does_not_matter(own: Path, command: Command) -> None:
    folder = own / "fedprox" / "trial-02"
    (folder / "result.json").unlink()
    (folder / "metrics.jsonl").write_text("{]\n")
    assert "FedProx, trial 2: stopped, and its metrics.jsonl is damaged" in page_of(command, own)


def test_no_trial_at_all(own: Path, command: Command, snapshot: Snapshot) -> None:
    for path in own.glob("*/*/result.json"):
        path.unlink()
    assert "no trial of the sweep" in refused(command, snapshot, own)


def test_an_unfinished_run_is_shown_as_far_as_it_came(own: Path, command: Command, snapshot: Snapshot) -> None:
    folder = own / "fedavg" / "trial-01"
    (folder / "result.json").unlink()
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:2]) + lines[2][:40])
    page = page_of(command, folder)
    assert "the run: stopped or running, 2 of 4 uplinks made" in page
    assert table(page, "The last model")[1][6] == "2"
    # What was sent is charged, whether its metrics are there or not.
    assert table(page, "A trial that is run again")[1][3:6] == ["unfinished", "2", "4"]
    (folder / "metrics.jsonl").unlink()
    assert "has not finished an uplink" in refused(command, snapshot, folder)


def test_a_run_that_its_budget_kept_from_sending(tmp_path: Path, command: Command) -> None:
    folder = make_sweep(tmp_path / "budget", {"name": "budget", "trials": 1, "set": {"privacy.budget_epsilon": 1e-3}})
    page = page_of(command, folder)
    assert table(page, "The last model")[1][6:8] == ["0", "0"]
    assert table(page, "Power control")[1] == ["no uplink was made"]
    assert table(page, "Epsilon")[2][3] == "0"


@pytest.mark.parametrize("damage", ["edited", "torn", "empty", "missing"])
def test_a_damaged_ledger_is_named(own: Path, command: Command, snapshot: Snapshot, damage: str) -> None:
    path = own / "fedprox" / "trial-03" / "ledger.jsonl"
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        edited = content.replace(b'"sigma":0.', b'"sigma":9.', 1)
        assert edited != content
        path.write_bytes({"edited": edited, "torn": content[:-20], "empty": b""}[damage])
    assert str(path) in refused(command, snapshot, own)


def test_a_ledger_that_was_cut_at_a_line(own: Path, command: Command, snapshot: Snapshot) -> None:
    path = own / "fedprox" / "trial-03" / "ledger.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-2]))
    assert f"ledger {path} was cut or replaced: uplink 4 is not in it" in refused(command, snapshot, own)
    # A run that has not finished has no result to compare with, but it has metrics.
    folder = own / "fedprox" / "trial-03"
    result = (folder / "result.json").read_text()
    (folder / "result.json").unlink()
    assert "uplink 4 is not in it" in refused(command, snapshot, folder)
    (folder / "result.json").write_text(result)
    # With a transmission that was charged twice, no uplink is missing.
    path.write_text("".join(lines))
    edit(folder / "result.json", lambda result: result.update(transmissions_charged=5))
    assert "it has 4 transmissions, result.json says 5" in refused(command, snapshot, own)


def test_the_ledger_of_another_run(own: Path, command: Command, snapshot: Snapshot) -> None:
    path = own / "fedprox" / "trial-03" / "ledger.jsonl"
    shutil.copy(own / "fedprox" / "trial-02" / "ledger.jsonl", path)
    assert f"ledger {path} belongs to a run with another config" in refused(command, snapshot, own)


def test_the_folder_of_another_run(own: Path, command: Command, snapshot: Snapshot) -> None:
    shutil.rmtree(own / "fedprox" / "trial-03")
    shutil.copytree(own / "fedavg" / "trial-03", own / "fedprox" / "trial-03")
    assert "was not run with the config that its sweep plans" in refused(command, snapshot, own)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("result.json", lambda data: data.pop("model_sha256")),
        ("result.json", lambda data: data.update(uplinks=3)),
        ("partition.json", lambda data: data.pop("data_sha256")),
    ],
)
def test_files_that_lack_something(
    own: Path, command: Command, snapshot: Snapshot, name: str, change: Callable[[Any], object]
) -> None:
    edit(own / "fedavg" / "trial-01" / name, change)
    said = refused(command, snapshot, own)
    assert str(own / "fedavg" / "trial-01") in said
    assert "damaged" in said


@pytest.mark.parametrize("name", ["result.json", "partition.json", "versions.json"])
@pytest.mark.parametrize("content", ["{", "[]", "3"])
def test_files_that_are_no_objects(own: Path, command: Command, snapshot: Snapshot, name: str, content: str) -> None:
    path = own / "fedavg" / "trial-01" / name
    path.write_text(content)
    assert str(path) in refused(command, snapshot, own)


def test_metrics_without_a_column(own: Path, command: Command, snapshot: Snapshot) -> None:
    folder = RunFolder(own / "fedavg" / "trial-01")
    rows = folder.metrics()
    del rows[2]["noise_norm"]
    folder.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "'noise_norm'" in refused(command, snapshot, own)


def test_metrics_with_infinite_values(own: Path, command: Command) -> None:
    folder = RunFolder(own / "fedavg" / "trial-01")
    rows = folder.metrics()
    rows[-1].update(loss="inf", test_loss="inf", backoff_max="inf", noise_norm="nan")
    folder.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = page_of(command, own)
    assert table(page, "The last model")[3][4:6] == ["infinite", "infinite"]
    assert table(page, "Power control")[3][4] == "infinite"


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"trials": [{"point": "fedavg"}], "wall_seconds": 1}', '{"trials": 3}']
)
def test_a_damaged_timing(own: Path, command: Command, snapshot: Snapshot, content: str) -> None:
    (own / "timing.json").write_text(content)
    assert "timing.json" in refused(command, snapshot, own)


def test_without_a_timing_the_metrics_tell(own: Path, command: Command) -> None:
    (own / "timing.json").unlink()
    assert "Time spent within uplinks." in page_of(command, own)


@pytest.mark.parametrize("content", ["", "{}", '{"name": 3}'])
def test_a_damaged_plan(own: Path, command: Command, snapshot: Snapshot, content: str) -> None:
    (own / "sweep.json").write_text(content)
    assert "is not the folder of a sweep" in refused(command, snapshot, own)
