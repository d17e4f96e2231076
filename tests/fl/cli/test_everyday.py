"""What a user of `airdp run` is told: before, meanwhile without a terminal, when it is interrupted, and at the end."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

import fl.run.course.uplinks
from fl.cli.experiments.run import _columns
from fl.cli.main import main
from fl.run import run
from fl.run.config import load_config
from fl.run.folder import RunFolder
from hardware.radio.errors import HardwareError

SMALL_KEYS = ("local.epochs=1", "model.hidden=4", "uplink.uplinks=3", "radio.attempts=1")
SMALL = [part for key in SMALL_KEYS for part in ("--set", key)]
STRONG = ["--set", "channel.snr_db=90.0", "--set", "jammer.factor=1.0"]
"""So much power that nobody backs off: epsilon is what noise is sized for."""


@pytest.mark.parametrize("config", ["quickstart", "loopback"])
def test_a_dry_run_says_what_would_be_and_writes_nothing(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", config, *SMALL, "--dry-run", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    # 64-4-10: 64*4 + 4 + 4*10 + 10.
    assert (facts["coordinates"], facts["uplinks"], facts["epsilon"]) == (310, 3, 5.0)
    assert "paper-claim" in facts["epsilon_is_for"]
    # Both have no air but this process's: uplinks were tried.
    assert facts["run_seconds_about"] > facts["training_seconds_about"] > 0
    assert ("air_seconds" in facts) == (config == "loopback")
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_radios_in_real_time_tries_none(capsys: pytest.CaptureFixture[str]) -> None:
    """And of records, whose stand-ins must be what the uplink accepts for them."""
    assert (
        main(["run", "loopback", *SMALL, "--lab", "pluto", "--set", "partition.clients=2", "--dry-run", "--json"]) == 0
    )
    facts = json.loads(capsys.readouterr().out)
    assert facts["run_seconds_at_least"] == pytest.approx(facts["training_seconds_about"] + facts["air_seconds"])
    assert "run_seconds_about" not in facts
    assert main(["run", "quickstart", *SMALL, "--set", "local.mode=record", "--dry-run", "--json"]) == 0
    assert "record" in json.loads(capsys.readouterr().out)["epsilon_is_for"]


def test_a_dry_run_of_a_thousand_million_epochs_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """And an infinite epsilon is JSON too."""
    arguments = [*SMALL, "--set", "local.epochs=1000000000", "--set", "uplink.kind=ideal"]
    assert main(["run", "quickstart", *arguments, "--dry-run", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["epsilon"] == "inf"
    assert facts["training_seconds_about"] > 1e4


def test_without_a_terminal_there_is_a_line_for_each_uplink(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "quickstart", *SMALL, "--out", str(tmp_path / "run")]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("uplink ")]
    assert [line.split(":")[0] for line in lines] == ["uplink 1/3", "uplink 2/3", "uplink 3/3"]
    assert re.search(r"accuracy +\d+\.\d %  epsilon \d+\.\d+ \(paper-claim\)$", lines[-1])


def test_the_progress_bar_cuts_no_number_in_a_window_of_80_columns() -> None:
    console = Console(width=80, force_terminal=True, color_system=None, file=io.StringIO())
    progress = Progress(*_columns(), console=console)
    progress.add_task("quickstart", total=300, completed=3, state="accuracy  85.5 %  epsilon 0.4595 (paper-claim)")
    with console.capture() as shown:
        console.print(progress.get_renderable())
    assert re.search(
        r"^quickstart .* 3/300 accuracy  85.5 %  epsilon 0.4595 \(paper-claim\) -:--:--$", shown.get(), re.M
    )


@pytest.mark.parametrize(
    ("end", "code"),
    [(KeyboardInterrupt(), 130), (SystemExit(143), None), (HardwareError("client-1 may not be parked"), 2)],
    ids=["ctrl-c", "sigterm", "a failing radio"],
)
def test_who_ends_a_run_is_told_how_it_goes_on(
    end: BaseException,
    code: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = RunFolder.append_metrics

    def interrupted(self: Any, row: dict[str, Any]) -> None:
        if row["uplink"] == 3:
            raise end
        kept(self, row)

    monkeypatch.setattr(RunFolder, "append_metrics", interrupted)
    out = tmp_path / "my run"
    if code is not None:
        arguments = ["run", "quickstart", *SMALL, *STRONG, "--out", str(out)]
        assert main(arguments) == code
    else:
        with pytest.raises(SystemExit):
            main(["run", "quickstart", *SMALL, *STRONG, "--out", str(out)])
    said = capsys.readouterr().err
    assert f"airdp run quickstart {' '.join([*SMALL, *STRONG])} --out '{out}' --resume" in said
    assert (out / "figures" / "learning.png").exists()
    monkeypatch.setattr(RunFolder, "append_metrics", kept)
    assert main(["run", "quickstart", *SMALL, *STRONG, "--out", str(out), "--resume", "--json"]) == 0
    # The uplink that was cut off was charged twice: more was spent than was asked for, and that is said.
    assert "WARNING: the run has spent epsilon" in capsys.readouterr().err


def test_a_run_that_never_sent_is_not_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config("quickstart", SMALL[1::2])

    def fail(*_: Any) -> None:
        raise HardwareError("no radio answers")

    with monkeypatch.context() as patch:
        patch.setattr(fl.run.course.uplinks, "attempt_uplink", fail)
        with pytest.raises(HardwareError):
            run(config, tmp_path / "run")
    assert (tmp_path / "run" / "ledger.jsonl").exists()
    assert run(config, tmp_path / "run").uplinks == 3
