"""log.jsonl: who did what when, for whoever looks on; a run does not depend on it."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fl.nodes.journal.log import NAME, LogHandler, RunLog
from fl.run import run
from tests.fl.nodes.small_runs import small_run

pytestmark = pytest.mark.usefixtures("one_thread", "no_figures", "no_waiting")
CLIENTS = [f"client-{number}" for number in range(1, 6)]


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / NAME).read_text().splitlines()]


def test_states_of_a_radio_uplink_come_in_their_order(tmp_path: Path) -> None:
    run(small_run("loopback", clients=5, uplinks=2), tmp_path / "run")
    found = events(tmp_path / "run")
    states = [(event["uplink"], event["state"]) for event in found if event["kind"] == "state"]
    order = ["sound", "plan", "authorise", "transmit", "receive", "done"]
    assert states == [(uplink, state) for uplink in (1, 2) for state in order]
    sent = [event["node"] for event in found if event["kind"] == "node" and event["state"] == "sent"]
    # The jammer is on the air before any client.
    assert sent == ["jammer", *CLIENTS] * 2
    assert [event["state"] for event in found if event["kind"] == "run"] == ["started", "ended"]
    assert found[-1]["reason"] == ""


def test_a_run_without_radios_has_its_log(tmp_path: Path, tiny: Callable[..., dict[str, Any]]) -> None:
    run(tiny(uplink={"uplinks": 2}), tmp_path / "run")
    states = [(event["uplink"], event["state"]) for event in events(tmp_path / "run") if event["kind"] == "state"]
    assert states == [(1, "authorise"), (1, "done"), (2, "authorise"), (2, "done")]


def test_why_a_run_ended_is_in_it(tmp_path: Path, tiny: Callable[..., dict[str, Any]]) -> None:
    def stop(metrics: object) -> None:
        raise RuntimeError("the lights went out")

    with pytest.raises(RuntimeError):
        run(tiny(), tmp_path / "run", on_uplink=stop)
    assert events(tmp_path / "run")[-1]["reason"] == "the lights went out"
    run(tiny(), tmp_path / "run", resume=True)
    told = [event["state"] for event in events(tmp_path / "run") if event["kind"] == "run"]
    assert told == ["started", "ended", "started", "ended"]


def test_nothing_is_written_before_the_run_has_a_folder(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "run")
    log.say("message", text="early")
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    log.open()
    log.say("message", text="late")
    log.close()
    assert [event["text"] for event in events(tmp_path / "run")] == ["early", "late"]


def test_a_log_that_cannot_be_written_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = RunLog(tmp_path)
    log.open()
    monkeypatch.setattr(os, "write", lambda descriptor, content: (_ for _ in ()).throw(OSError(28, "No space left")))
    log.say("message", text="one")
    monkeypatch.undo()
    log.say("message", text="two")
    log.close()
    assert "is not written any longer" in caplog.text
    assert (tmp_path / NAME).read_bytes() == b""


def test_what_the_program_logs_is_in_it_and_still_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, logger = RunLog(tmp_path), logging.getLogger("airdp")
    log.open()
    handlers, logger.propagate = logger.handlers[:], False
    logger.handlers.clear()
    try:
        handler = LogHandler(log)
        logger.addHandler(handler)
        logger.warning("the observer '%s' has missed a part", "eve")
    finally:
        logger.handlers[:], logger.propagate = handlers, True
    log.close()
    (event,) = events(tmp_path)
    assert (event["level"], event["text"]) == ("warning", "the observer 'eve' has missed a part")
    assert "the observer 'eve' has missed a part" in capsys.readouterr().err
