"""Trackers: which quantities go out, that a failing one does not stop a run, and the real packages' files."""

import importlib.util
import logging
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fl.errors import ConfigError
from fl.run import run
from fl.run.config import parse_config
from fl.run.folder import RunFolder
from fl.tracking import tracker as module
from fl.tracking.tracker import PUBLIC, Tracked, chosen, flattened
from phy.errors import AirdpError

Tiny = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.usefixtures("one_thread", "no_figures", "no_waiting")
HERE = "tests.fl.tracking.test_tracker"
TOLD: list[tuple[str, Any]] = []


def needs(package: str, extra: str) -> pytest.MarkDecorator:
    absent = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(absent, reason=f"no {package}: pip install 'airdp[{extra}]'")


class Remembers:
    def start(self, run: Tracked) -> None:
        TOLD.append(("start", run))

    def uplink(self, number: int, metrics: Mapping[str, float]) -> None:
        TOLD.append(("uplink", (number, dict(metrics))))

    def finish(self, status: str, result: Mapping[str, float]) -> None:
        TOLD.append(("finish", (status, dict(result))))


class FailsLater(Remembers):
    def uplink(self, number: int, metrics: Mapping[str, float]) -> None:
        raise OSError("the server does not answer")


class FailsAtOnce(Remembers):
    def start(self, run: Tracked) -> None:
        raise OSError("no such server")


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    # pytest imports this module under a name of its own: import paths shall find the same list.
    monkeypatch.setitem(sys.modules, HERE, sys.modules[__name__])
    TOLD.clear()
    return TOLD


def test_a_users_own_tracker_is_told(tmp_path: Path, tiny: Tiny, told: list[tuple[str, Any]]) -> None:
    result = run(tiny(uplink={"uplinks": 2}, tracking={"to": [f"{HERE}:Remembers"]}), tmp_path / "run")
    assert [kind for kind, _ in told] == ["start", "uplink", "uplink", "finish"]
    started = told[0][1]
    assert (started.name, started.folder) == ("tiny", tmp_path / "run")
    # An epsilon goes nowhere without what it means.
    assert {"label", "view", "privacy.delta", "privacy.neighbours", "privacy.accountant"} <= started.settings.keys()
    rows = RunFolder(tmp_path / "run").metrics()
    for (number, metrics), row in zip((said for kind, said in told if kind == "uplink"), rows, strict=True):
        assert number == row["uplink"]
        assert metrics["epsilon/paper-claim"] == row["epsilon"]
        assert metrics["accuracy"] == row["accuracy"]
        # What clients' data is needed for stays here.
        assert metrics.keys() <= {*PUBLIC, "epsilon/paper-claim"}
    assert told[-1][1] == ("finished", {"accuracy": result.accuracy, "test_loss": result.test_loss})


def test_everything_on_request(tmp_path: Path, tiny: Tiny, told: list[tuple[str, Any]]) -> None:
    run(tiny(uplink={"uplinks": 1}, tracking={"to": [f"{HERE}:Remembers"], "metrics": "all"}), tmp_path / "run")
    metrics = next(said for kind, said in told if kind == "uplink")[1]
    assert {"loss", "clipped", "signal_norm", "accuracy"} <= metrics.keys()
    assert metrics["loss"] == RunFolder(tmp_path / "run").metrics()[0]["loss"]


def test_numbers_that_are_chosen() -> None:
    line = {"uplink": 3, "label": "client", "epsilon": math.inf, "loss": 1.0, "accuracy": math.nan, "sigma": 2}
    line |= {"signal_norm": None, "jamming_client": 3, "diagnostics": {"nmse_db": -3.0}}
    assert chosen(line, everything=False) == {"epsilon/client": math.inf, "sigma": 2.0}
    assert chosen(line, everything=True) == {
        "epsilon/client": math.inf,
        "sigma": 2.0,
        "loss": 1.0,
        "diagnostics/nmse_db": -3.0,
    }


def test_settings_are_flat() -> None:
    assert flattened({"a": 1, "b": {"c": [1, 2], "d": {"e": True}}}) == {"a": 1, "b.c": "[1, 2]", "b.d.e": True}


def test_a_tracker_that_fails_is_left_out(tmp_path: Path, tiny: Tiny, caplog: pytest.LogCaptureFixture) -> None:
    names = [f"{HERE}:FailsLater", f"{HERE}:Remembers"]
    with caplog.at_level(logging.WARNING):
        result = run(tiny(uplink={"uplinks": 2}, tracking={"to": names}), tmp_path / "run")
    assert result.uplinks == 2
    assert caplog.text.count("FailsLater' is left out from now on: the server does not answer") == 1
    assert [kind for kind, _ in TOLD] == ["start", "start", "uplink", "uplink", "finish"]


def test_a_tracker_that_cannot_be_started_stops_the_run_before_anything_is_sent(tmp_path: Path, tiny: Tiny) -> None:
    with pytest.raises(ConfigError, match="cannot be started: no such server"):
        run(tiny(tracking={"to": [f"{HERE}:FailsAtOnce"]}), tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    # Trackers do not count: the run goes on without.
    assert run(tiny(uplink={"uplinks": 4}), tmp_path / "run", resume=True).uplinks == 4


def test_what_is_no_tracker_is_refused_before_there_is_a_folder(tmp_path: Path, tiny: Tiny) -> None:
    with pytest.raises(ConfigError, match=r"made a OrderedDict: expected start\(run\), uplink"):
        run(tiny(tracking={"to": ["collections:OrderedDict"]}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_that_fails_is_told_so(tmp_path: Path, tiny: Tiny) -> None:
    def stop(metrics: object) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run(tiny(tracking={"to": [f"{HERE}:Remembers"]}), tmp_path / "run", on_uplink=stop)
    assert TOLD[-1] == ("finish", ("failed", {}))


@pytest.mark.parametrize("name", ["tensorbored", "mlflow:", "a b"])
def test_a_name_that_is_none(tiny: Tiny, name: str) -> None:
    with pytest.raises(ConfigError, match=r"tracking\.to"):
        parse_config(tiny(tracking={"to": [name]}))


def test_a_missing_package_is_named_before_there_is_a_folder(
    tmp_path: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    with pytest.raises(AirdpError, match=r"pip install 'airdp\[mlflow\]'"):
        run(tiny(tracking={"to": ["mlflow"]}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_trackers_do_not_make_another_run(tiny: Tiny) -> None:
    plain, tracked = parse_config(tiny()), parse_config(tiny(tracking={"to": ["tensorboard"], "metrics": "all"}))
    assert plain.digest() == tracked.digest()
    assert {"tensorboard", "mlflow", "wandb"} == module.SHIPPED


@needs("tensorboard", "tensorboard")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_what_was_written(tmp_path: Path, tiny: Tiny) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(tiny(uplink={"uplinks": 3}, tracking={"to": ["tensorboard"]}), tmp_path / "run")
    found = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    found.Reload()
    rows = RunFolder(tmp_path / "run").metrics()
    assert set(found.Tags()["scalars"]) == {*PUBLIC - {"epsilon"}, "epsilon/paper-claim"}
    for name, key in (("accuracy", "accuracy"), ("epsilon/paper-claim", "epsilon")):
        events = found.Scalars(name)
        assert [event.step for event in events] == [1, 2, 3]
        assert [event.value for event in events] == pytest.approx([row[key] for row in rows], rel=1e-6)


@needs("mlflow", "mlflow")
@pytest.mark.filterwarnings("ignore")
def test_mlflow_reads_what_was_written(tmp_path: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    from fl.tracking.mlflow import EXPERIMENT, store

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "run"

    def stop(metrics: Any) -> None:
        if metrics.uplink == 2:
            raise RuntimeError

    sections = tiny(uplink={"uplinks": 3}, tracking={"to": ["mlflow"]})
    with pytest.raises(RuntimeError):
        run(sections, folder, on_uplink=stop)
    client = MlflowClient(tracking_uri=store(folder))
    (found,) = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
    assert found.info.status == "FAILED"
    run(sections, folder, resume=True)
    (found,) = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
    assert (found.info.status, found.data.tags["airdp.status"]) == ("FINISHED", "finished")
    assert (found.data.params["privacy.delta"], found.data.params["label"]) == ("1e-05", "paper-claim")
    history = client.get_metric_history(found.info.run_id, "accuracy")
    rows = RunFolder(folder).metrics()
    assert {point.step: point.value for point in history} == {row["uplink"]: row["accuracy"] for row in rows}
    assert "loss" not in found.data.metrics


@needs("wandb", "wandb")
@pytest.mark.filterwarnings("ignore")
def test_wandb_stays_on_the_disk(tmp_path: Path, tiny: Tiny) -> None:
    run(tiny(uplink={"uplinks": 2}, tracking={"to": ["wandb"]}), tmp_path / "run")
    (written,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    assert written.stat().st_size > 0
