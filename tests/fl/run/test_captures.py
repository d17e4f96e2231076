"""Captures of runs: what is kept, what it costs when the disk fails, and that recording changes nothing."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sigmf

import fl.run.recorder
from fl.errors import ConfigError, RunFolderError
from fl.run import run
from fl.run.config import parse_config
from fl.run.course.result import FINISHED
from fl.run.folder import RunFolder
from fl.run.replay import replay
from hardware.lab.file import find_lab
from hardware.radio.errors import HardwareError, RxOverflowError
from hardware.recording.sigmf_files import read_recording
from tests.fl.nodes.radios import fault
from tests.fl.nodes.small_runs import before, rows_of, small_run

UPLINKS = 3
pytestmark = pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")


def sections(**radio: Any) -> dict[str, Any]:
    return small_run("loopback", clients=5, uplinks=UPLINKS, radio={"record": "all", **radio})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "captures").iterdir())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fl.run.figures.draw_run", lambda folder: None)
        run(sections(), folder)
    return folder


def test_one_recording_for_each_uplink_and_receiver(recorded: Path) -> None:
    each = [f"uplink-{uplink:04d}-1{end}" for uplink in range(1, UPLINKS + 1) for end in (".jsonl", ".npy")]
    both = [f"uplink-{uplink:04d}-1-ps.sigmf-{end}" for uplink in range(1, UPLINKS + 1) for end in ("data", "meta")]
    assert [name for name in names(recorded) if not name.startswith("opening-")] == sorted([*each, *both, "start.npy"])


def test_the_official_validator_passes_and_everything_is_marked(recorded: Path) -> None:
    """Segments are the receptions of the uplink; marks lie inside the band and inside the samples."""
    read = sigmf.fromfile(recorded / "captures" / "uplink-0002-1-ps.sigmf-meta")
    read.validate()
    captures = read.get_captures()
    assert len(captures) == 3  # silence, one group of soundings, payload
    indices = [capture["core:global_index"] for capture in captures]
    assert indices == sorted(indices)
    settings = captures[0]["airdp:settings"]
    assert settings["sample_rate_hz"] == read.get_global_field("core:sample_rate")
    labels = [mark["core:label"] for mark in read.get_annotations()]
    transmitters = [*(f"client-{number}" for number in range(1, 6)), "jammer"]
    assert labels[:8] == ["silence", *(f"sounding {name}" for name in transmitters), "guard"]
    assert labels[-1] == "guard"
    assert labels.count("payload") == 1
    half = settings["sample_rate_hz"] / 2
    for mark in read.get_annotations():
        assert mark["core:sample_start"] + mark["core:sample_count"] <= read.sample_count
        if "core:freq_lower_edge" in mark:
            low, high = mark["core:freq_lower_edge"], mark["core:freq_upper_edge"]
            assert -half <= low - settings["rx_center_hz"] < 0 < high - settings["rx_center_hz"] <= half
    assert read.get_global_field("airdp:uplink") == 2
    assert read.get_global_field("airdp:attempt") == 0
    assert read.get_global_field("airdp:run") == "tiny"
    assert read.get_global_field("airdp:full_scale") == 1.0


def test_a_mark_is_on_the_signal_that_it_names(recorded: Path) -> None:
    """A sounding is 18 dB above the silence, whatever the channel's draw."""
    read = sigmf.fromfile(recorded / "captures" / "uplink-0001-1-ps.sigmf-meta")
    power = {}
    for mark in read.get_annotations():
        start = mark["core:sample_start"]
        power[mark["core:label"]] = float(np.mean(np.abs(read[start : start + mark["core:sample_count"]]) ** 2))
    assert all(value > 63 * power["silence"] for label, value in power.items() if label.startswith("sounding"))


def test_recording_changes_nothing(recorded: Path, tmp_path: Path) -> None:
    plain = run(sections(record="none"), tmp_path / "plain")
    assert plain.model_sha256 == RunFolder(recorded).read_json("result.json")["model_sha256"]
    assert parse_config(sections()).digest() == parse_config(sections(record="none")).digest()
    assert not (tmp_path / "plain" / "captures").exists()


def test_the_noise_of_every_attempt_is_kept(tmp_path: Path) -> None:
    with before("plan", 2, fault("ps", "receive", RxOverflowError("lost"))):
        run(sections(record="none"), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "noise.jsonl").read_text().splitlines()]
    assert [(line["uplink"], line["attempt"]) for line in lines] == [(1, 0), (2, 0), (2, 1), (3, 0)]
    assert lines[1]["silence"] == {"error": {"type": "RxOverflowError", "text": "lost"}}
    for line in (lines[0], *lines[2:]):
        low, high = line["silence"]["noise"]["ci"]
        assert low < line["silence"]["noise"]["noise_var_real"] < high
        assert line["silence"]["sigma"]["noise_var_real"] > 0
        assert line["silence"]["diagnostics"]["verdict"]
        assert {test["name"] for test in line["silence"]["diagnostics"]["tests"]} >= {"gaussian_body", "stationary"}
        assert line["payload"]["guards"]["noise_var_real"] > 0


def test_last_keeps_the_newest_uplink(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with before("exchange", 3, fault("ps", "receive", RxOverflowError("lost"))):
        run(sections(record="last"), folder)
    assert {name[:11] for name in names(folder) if name.startswith("uplink")} == {"uplink-0003"}
    assert "start.npy" not in names(folder)
    played = replay(RunFolder(folder))
    assert played.same
    assert [attempt.attempt for attempt in played.attempts] == [0, 1]
    assert played.model is None
    assert [uplink for uplink, _ in played.not_recorded] == [1, 2]


def test_what_was_sent_is_kept_on_request(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(sections(record="last", record_sent=True), folder)
    names_sent = [name for name in names(folder) if name.endswith("-sent.sigmf-meta")]
    assert len(names_sent) == 6
    recording, intact = read_recording(folder / "captures" / "uplink-0003-1-client-2-sent")
    assert intact
    sounding, payload = recording.segments
    assert np.abs(sounding.capture.samples).max() == pytest.approx(1.0, abs=0.05)
    assert payload.capture.start_sample > sounding.capture.end_sample
    assert recording.facts["direction"] == "sent"
    assert "not private" in recording.description


def test_observers_receive_what_the_server_does(tmp_path: Path) -> None:
    """The same segments, from an antenna that hears 10 dB more; six links fade, so that a factor of 2 is sure."""
    file = tmp_path / "lab.toml"
    text = Path(find_lab("loopback").source).read_text()
    file.write_text(text + '\n[[radio]]\nname = "eve"\nrole = "observer"\n[medium.radio.eve]\nreceive_gain_db = 10.0\n')
    run(small_run(str(file), clients=5, uplinks=1, radio={"record": "all"}), tmp_path / "run")
    ours, _ = read_recording(tmp_path / "run" / "captures" / "uplink-0001-1-ps")
    hers, intact = read_recording(tmp_path / "run" / "captures" / "uplink-0001-1-eve")
    assert intact
    assert hers.radio == "eve"
    for one, other in zip(ours.segments, hers.segments, strict=True):
        assert (one.capture.start_sample, one.capture.end_sample) == (
            other.capture.start_sample,
            other.capture.end_sample,
        )
        assert not np.array_equal(one.capture.samples, other.capture.samples)
    soundings = [recording.segments[1].capture.samples for recording in (ours, hers)]
    assert np.vdot(soundings[1], soundings[1]).real > 2 * np.vdot(soundings[0], soundings[0]).real
    assert replay(RunFolder(tmp_path / "run")).same


def full_disk(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Let the room for the `call`-th recording be refused."""
    calls = 0
    allocate = os.posix_fallocate

    def refused(descriptor: int, offset: int, length: int) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(descriptor, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", refused)


def test_without_room_nothing_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second uplink finds no room: it is not authorised, and the run goes on when there is some."""
    folder = tmp_path / "run"

    def fill(uplink: Any) -> None:
        full_disk(monkeypatch, 1)

    with before("exchange", 2, fill), pytest.raises(RunFolderError, match="nothing of it was sent"):
        run(sections(), folder)
    assert rows_of(folder) == ["open", "authorise", "account"]
    assert not [name for name in names(folder) if name.startswith(".")]
    result = run(sections(), folder, resume=True)
    assert (result.status, result.transmissions_charged) == (FINISHED, UPLINKS)
    played = replay(RunFolder(folder))
    assert played.same
    assert played.model
    # The attempt that was not sent is there too, and comes out as it was planned.
    assert [attempt.outcome for attempt in played.attempts].count("not sent") == 1


def test_a_capture_that_cannot_be_written_costs_no_privacy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The conversation of uplink 2 cannot be written: the uplink itself is safe, and its capture is missed later."""
    folder = tmp_path / "run"
    write = fl.run.recorder.write_journal

    def broken(files: Any, events: Any) -> None:
        if files.uplink == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        write(files, events)

    monkeypatch.setattr(fl.run.recorder, "write_journal", broken)
    with pytest.raises(OSError, match="Input/output"):
        run(sections(), folder)
    checkpoint = RunFolder(folder).load_checkpoint()
    assert checkpoint is not None
    assert checkpoint.uplink == 2
    result = run(sections(), folder, resume=True)
    assert (result.status, result.transmissions_charged) == (FINISHED, UPLINKS)
    played = replay(RunFolder(folder))
    assert played.same
    assert played.model is None
    assert [uplink for uplink, _ in played.not_recorded] == [2]


def test_what_a_crash_left_is_no_capture_and_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def stop(uplink: Any) -> None:
        raise HardwareError("unplugged")

    with before("plan", 2, stop), pytest.raises(HardwareError, match="unplugged"):
        run(sections(attempts=1), folder)
    (folder / "captures" / ".uplink-0002-1-ps.sigmf-data.reserved").write_bytes(b"half")
    (folder / "captures" / "uplink-0002-1-ps.sigmf-data").write_bytes(b"without metadata")
    assert [attempt.uplink for attempt in replay(RunFolder(folder)).attempts] == [1]
    run(sections(attempts=1), folder, resume=True)
    assert not [name for name in names(folder) if name.startswith(".")]
    played = replay(RunFolder(folder))
    assert played.same
    assert played.model


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"uplink": {"kind": "ideal", "uplinks": 2}}, "radio.record is for uplink.kind = 'radio'"),
        ({"radio": {"record_sent": True}}, "radio.record_sent needs radio.record"),
        ({"radio": {"record": "some"}}, "radio.record: 'some' is not one of none, last, all"),
    ],
)
def test_configs_that_cannot_be(changes: dict[str, Any], said: str) -> None:
    made = {"uplink": {"kind": "radio"}, "radio": {"record": "all"}, **changes}
    with pytest.raises(ConfigError, match=said):
        parse_config(made)


def test_the_option_records_everything(
    tiny: Callable[..., dict[str, Any]], tmp_path: Path, command: Callable[..., Any]
) -> None:
    import tomli_w

    path = tmp_path / "small.toml"
    path.write_text(tomli_w.dumps(small_run("loopback", clients=5, uplinks=1)))
    assert command("run", path, "--out", tmp_path / "run", "--record").code == 0
    assert "uplink-0001-1-ps.sigmf-meta" in names(tmp_path / "run")
    capture = str(tmp_path / "run" / "captures" / "uplink-0001-1-ps.sigmf-meta")
    assert command("inspect", tmp_path / "run", "--json").json["captures"] == [capture]
    outcome = command("replay", tmp_path / "run", "--json")
    assert outcome.code == 0
    assert outcome.json["same"] is True
    assert outcome.json["model_same"] is True


def test_room_that_a_killed_run_had_kept_is_given_back_when_nothing_is_left_to_send(tmp_path: Path) -> None:
    run(sections(), tmp_path / "run")
    left = tmp_path / "run" / "captures" / ".uplink-0002-1-ps.sigmf-data.reserved"
    left.write_bytes(b"\0" * 1000)
    run(sections(), tmp_path / "run", resume=True)
    assert not left.exists()
