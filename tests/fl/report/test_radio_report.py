"""What a report of a radio run has more than others, and how a run is done again."""

import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from fl.cli.main import main
from fl.report import build_report
from fl.report.page import estimate
from fl.run import run
from fl.run.config import load_config
from fl.run.folder import RunFolder
from fl.sweep.estimate import Estimate

SMALL = {"model.hidden": 4, "local.epochs": 1, "uplink.uplinks": 2}


@pytest.fixture(scope="module")
def radio_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run("loopback", tmp_path_factory.mktemp("radio") / "my run", overrides=SMALL).out


def test_the_page_of_a_radio_run_has_its_radio_pictures_and_its_epsilon(radio_run: Path, tmp_path: Path) -> None:
    report = build_report([radio_run], tmp_path / "report.html", bound=False)
    for name in ("accuracy", "epsilon", "spectrum", "channel", "error-budget"):
        assert report.files[f"report-files/loopback-{name}.png"].startswith(b"\x89PNG")
    assert "Where the error of the received sum comes from. Uplink 2." in report.page
    # No epsilon without what it means.
    assert "Epsilon is for paper-claim, zero-out neighbours, delta 1e-05, accountant paper, target 5" in report.page
    assert "<image" not in report.page
    ids = [part.split('"')[0] for part in report.page.split(' id="')[1:]]
    assert len(ids) == len(set(ids))


def test_the_command_that_does_it_again_works_anywhere(
    radio_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names a config that ships and the keys that differ, and so needs no file of this run."""
    page = build_report([radio_run], tmp_path / "report.html", bound=False).page
    line = next(line for line in page.splitlines() if "airdp run " in line)
    words = shlex.split(line[line.index("airdp run ") :])
    overrides = [word for before, word in pairwise(words) if before == "--set"]
    assert words[:3] == ["airdp", "run", "loopback"]
    assert sorted(overrides) == sorted(f"{key}={value}" for key, value in SMALL.items())
    assert load_config("loopback", overrides).digest() == RunFolder(radio_run).config().digest()
    monkeypatch.chdir(tmp_path)
    assert main([*words[1:], "--dry-run"]) == 0


def test_a_ledger_under_every_accountant_fits_80_columns(
    radio_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["ledger", str(radio_run), "--all"]) == 0
    table = [line for line in capsys.readouterr().out.splitlines() if line[:1] in "┏┃┡│├└"]
    assert max(map(len, table)) <= 80
    text = "\n".join(table)
    for name in ("paper-claim", "record", "client", "liu-simeone", "rdp", "pld", "infinite"):
        assert name in text
    assert "…" not in text


def test_two_trials_have_no_interval() -> None:
    """Theirs would be 38.73 to 54.59 = 46.66 +- 100.75."""
    assert estimate(Estimate.of([0.3873, 0.5459]), 100) == "46.66"
    assert estimate(Estimate.of([0.45, 0.46, 0.47]), 100) == "46.00\u00a0±\u00a02.48"
