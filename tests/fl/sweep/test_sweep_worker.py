"""What a worker of a sweep does, without Dask: trials that finish, stop, fail, wait for each other, and keep time."""

import fcntl
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fl.sweep.worker
from fl.privacy.ledger import read_ledger
from fl.run import run
from fl.run.cluster.expectation import expect
from fl.run.config import RunConfig, parse_config
from fl.run.folder import RunFolder
from fl.sweep.worker import Ending, Failed, Finished, Stopped, TrialTask, run_trial

pytestmark = pytest.mark.usefixtures("no_figures", "no_waiting")
Events = list[dict[str, Any]]
FINISHED, STOPPED = Finished(), Stopped()


@pytest.fixture
def config(tiny: Callable[..., dict[str, Any]]) -> RunConfig:
    return parse_config(tiny(local={"workers": 1}))


@pytest.fixture
def trial(tmp_path: Path, config: RunConfig) -> TrialTask:
    (tmp_path / "point").mkdir()
    (tmp_path / "flag").touch()
    return TrialTask("point", 1, config, RunFolder(tmp_path / "point" / "trial-01"), tmp_path / "flag", None)


def result_of(trial: TrialTask) -> Any:
    return trial.folder.read_json("result.json")


def failure_of(trial: TrialTask) -> str:
    ending = run_trial(trial, lambda event: None)
    assert isinstance(ending, Failed)
    return ending.reason


def test_a_trial_is_the_run_of_its_config(trial: TrialTask, tmp_path: Path) -> None:
    events: Events = []
    assert run_trial(trial, events.append) == FINISHED
    assert result_of(trial)["model_sha256"] == run(trial.config, tmp_path / "alone").model_sha256
    assert [event["uplink"] for event in events] == [0, 1, 2, 3, 4]
    assert {(event["slug"], event["trial"]) for event in events} == {("point", 1)}
    assert [event["accuracy"] for event in events] == [None, *(row["accuracy"] for row in trial.folder.metrics())]
    # Nothing but the run folder is left.
    assert sorted(path.name for path in trial.folder.path.parent.iterdir()) == ["trial-01"]


def test_a_finished_trial_is_not_touched(trial: TrialTask, snapshot: Callable[[Path], dict[str, str]]) -> None:
    run_trial(trial, lambda event: None)
    before, events = snapshot(trial.folder.path.parent), Events()
    assert run_trial(trial, events.append) == FINISHED
    assert (snapshot(trial.folder.path.parent), events) == (before, [])


def test_a_trial_stops_after_the_uplink_in_which_the_sweep_ended_and_goes_on_from_there(
    trial: TrialTask, tmp_path: Path
) -> None:
    def say(event: dict[str, Any]) -> None:
        if event["uplink"] == 2:
            trial.flag.unlink()

    assert run_trial(trial, say) == STOPPED
    assert not (trial.folder.path / "result.json").exists()
    contents = read_ledger(trial.folder.ledger_path)
    assert (contents.authorised, contents.accounted) == (2, 2)
    trial.flag.touch()
    events: Events = []
    assert run_trial(trial, events.append) == FINISHED
    assert [event["uplink"] for event in events] == [2, 3, 4]
    result = result_of(trial)
    assert result["model_sha256"] == run(trial.config, tmp_path / "alone").model_sha256
    assert result["transmissions_charged"] == 4


def test_a_trial_of_a_sweep_that_is_over_leaves_no_trace(trial: TrialTask) -> None:
    trial.flag.unlink()
    assert run_trial(trial, lambda event: None) == STOPPED
    assert list(trial.folder.path.parent.iterdir()) == []


def test_what_the_user_can_mend_is_told_in_one_line(trial: TrialTask, config: RunConfig) -> None:
    bad = config.model_copy(update={"local": config.local.model_copy(update={"lr": 1e9, "epochs": 20})})
    assert "lower the learning rate" in failure_of(replace(trial, config=bad))
    other = config.model_copy(update={"seed": 99})
    assert "holds another run (differs in " in failure_of(replace(trial, config=other))


def test_a_full_disk_is_told_with_its_file_and_what_to_do(trial: TrialTask, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: RunFolder, *arguments: object) -> None:
        raise OSError(28, "No space left on device", str(self.metrics_path))

    monkeypatch.setattr(RunFolder, "append_metrics", full)
    path = trial.folder.metrics_path
    assert failure_of(trial).startswith(f"{path}: No space left on device; make room there")


def test_a_defect_is_not_hidden(trial: TrialTask) -> None:
    def say(event: dict[str, Any]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_trial(trial, say)


def test_time_adds_up_over_the_processes_that_worked_on_a_trial(trial: TrialTask) -> None:
    def stop_after(uplink: int) -> Callable[[dict[str, Any]], None]:
        def say(event: dict[str, Any]) -> None:
            if event["uplink"] == uplink:
                trial.flag.unlink()

        return say

    started, cpu_started = time.perf_counter(), time.process_time()
    run_trial(trial, stop_after(2))
    first = trial.folder.read_json("timing.json")
    assert first["uplinks"] == 2
    assert 0 < first["wall_seconds"] <= time.perf_counter() - started
    assert 0 < first["cpu_seconds"] <= time.process_time() - cpu_started
    # As after a crash that cost a thousand seconds: what was worked stays counted.
    trial.folder.write_json("timing.json", {"wall_seconds": 1000.0, "cpu_seconds": 500.0, "uplinks": 2})
    trial.flag.touch()
    started, cpu_started = time.perf_counter(), time.process_time()
    run_trial(trial, lambda event: None)
    both = trial.folder.read_json("timing.json")
    assert both["uplinks"] == 4
    assert 1000 < both["wall_seconds"] <= 1000 + time.perf_counter() - started
    assert 500 < both["cpu_seconds"] <= 500 + time.process_time() - cpu_started


def test_damaged_timing_is_told(trial: TrialTask) -> None:
    whole = '{"wall_seconds": %s, "cpu_seconds": 1.0, "uplinks": %s}'
    odd = (whole % ("NaN", "1"), whole % ("1e400", "1"), whole % ("-1", "1"), whole % ("[]", "1"), whole % ("1", '"x"'))
    for content in ("{}", "[]", "{", *odd):
        trial.folder.path.mkdir(exist_ok=True)
        (trial.folder.path / "timing.json").write_text(content)
        assert "timing.json" in failure_of(trial)


HOLD = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
input()
"""


@pytest.fixture
def holder(trial: TrialTask) -> Iterator[subprocess.Popen[str]]:
    """Another process in the trial, as a worker that was given up for lost and lives."""
    lock = trial.folder.path.with_name(".trial-01.lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_trial_waits_for_whoever_else_is_in_it(
    trial: TrialTask, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fl.sweep.worker, "_PAUSE_S", 0.02)
    outcomes: list[Ending] = []
    thread = threading.Thread(target=lambda: outcomes.append(run_trial(trial, lambda event: None)))
    thread.start()
    time.sleep(0.2)
    assert outcomes == []
    assert not trial.folder.path.exists()
    holder.kill()
    thread.join(60)
    assert outcomes == [FINISHED]


@pytest.mark.usefixtures("holder")
def test_a_trial_that_waits_ends_with_the_sweep(trial: TrialTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fl.sweep.worker, "_PAUSE_S", 0.02)
    threading.Timer(0.2, trial.flag.unlink).start()
    assert run_trial(trial, lambda event: None) == STOPPED


@pytest.mark.usefixtures("holder")
def test_a_trial_does_not_wait_for_ever(trial: TrialTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fl.sweep.worker, "_PAUSE_S", 0.02)
    monkeypatch.setattr(fl.sweep.worker, "_PATIENCE_S", 0.2)
    assert "another process is in" in failure_of(trial)


def test_a_trial_is_locked_while_it_runs(trial: TrialTask) -> None:
    def say(event: dict[str, Any]) -> None:
        with trial.folder.path.with_name(".trial-01.lock").open("w") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen.append(event)

    seen: Events = []
    assert run_trial(trial, say) == FINISHED
    assert len(seen) == 5


def test_what_a_killed_process_was_preparing_is_removed(trial: TrialTask) -> None:
    scratch = trial.folder.path.with_name(".trial-01.abcdefgh")
    scratch.mkdir()
    (scratch / "config.toml").write_text("half")
    other = trial.folder.path.with_name(".trial-011.abcdefgh")
    other.mkdir()
    assert run_trial(trial, lambda event: None) == FINISHED
    assert sorted(path.name for path in trial.folder.path.parent.iterdir()) == [other.name, "trial-01"]


def test_a_worker_unlike_the_others_runs_nothing(trial: TrialTask, config: RunConfig) -> None:
    expected = expect("a point", config)
    assert "finds other data" in failure_of(replace(trial, expected=replace(expected, parts_sha256="0" * 64)))
    assert not trial.folder.path.exists()
    assert run_trial(replace(trial, expected=expected), lambda event: None) == FINISHED


def test_events_are_plain_data(trial: TrialTask) -> None:
    # They travel through Dask as msgpack.
    events: Events = []
    run_trial(trial, events.append)
    assert json.loads(json.dumps(events)) == events
