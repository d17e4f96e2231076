"""Captures through the receiver once more: bit for bit where nothing was touched, and found where something was."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sigmf

from fl.errors import RunFolderError
from fl.run import run
from fl.run.folder import RunFolder
from fl.run.replay import FAILED, NOT_SENT, RELEASED, Replay, replay
from hardware.radio.errors import HardwareError, LateError, RxOverflowError, TxUnderflowError
from hardware.recording.model import RecordingError
from tests.fl.nodes.radios import fault
from tests.fl.nodes.small_runs import at_receive, before, small_run

UPLINKS = 3
LABS = ["loopback", "loopback-harsh", "loopback-free-clock"]
pytestmark = pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")


def sections(lab: str = "loopback", jammer: str = "dedicated", **radio: Any) -> dict[str, Any]:
    made = {"record": "all", **radio}
    return small_run(lab, clients=5, uplinks=UPLINKS, radio=made, jammer={"role": jammer})


def assert_the_same(played: Replay) -> None:
    assert [one for attempt in played.attempts for one in attempt.found] == []
    assert played.same
    assert played.model
    assert played.not_recorded == ()
    assert played.privacy == played.recorded_privacy


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replay") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fl.run.figures.draw_run", lambda folder: None)
        run(sections(), folder)
    return folder


@pytest.fixture
def copy(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "copy"))


@pytest.mark.parametrize("lab", LABS)
@pytest.mark.parametrize("jammer", ["dedicated", "none", "rotating"])
def test_bit_for_bit(tmp_path: Path, lab: str, jammer: str) -> None:
    result = run(sections(lab, jammer), tmp_path / "run")
    played = replay(RunFolder(tmp_path / "run"))
    assert_the_same(played)
    assert [attempt.outcome for attempt in played.attempts] == [RELEASED] * UPLINKS
    assert played.privacy == result.privacy[0]


def test_one_uplink_alone(recorded: Path) -> None:
    played = replay(RunFolder(recorded), uplink=2)
    assert [attempt.uplink for attempt in played.attempts] == [2]
    assert played.same
    assert played.model is None
    assert played.not_recorded == ()


def test_an_attempt_that_failed_before_it_was_sent(tmp_path: Path) -> None:
    with before("plan", 2, fault("client-2", "transmit", LateError("too late"))):
        run(sections(), tmp_path / "run")
    played = replay(RunFolder(tmp_path / "run"))
    assert_the_same(played)
    assert [attempt.outcome for attempt in played.attempts] == [RELEASED, NOT_SENT, RELEASED, RELEASED]


def test_an_attempt_that_failed_after_it_was_sent(tmp_path: Path) -> None:
    with before("exchange", 2, fault("ps", "receive", RxOverflowError("lost"))):
        run(sections(), tmp_path / "run")
    played = replay(RunFolder(tmp_path / "run"))
    assert_the_same(played)
    assert [attempt.outcome for attempt in played.attempts] == [RELEASED, FAILED, RELEASED, RELEASED]
    assert [attempt.attempt for attempt in played.attempts] == [0, 0, 1, 0]


def test_a_jammer_of_which_nobody_knows_is_accounted_the_same(tmp_path: Path) -> None:
    def damaged(uplink: Any) -> None:
        def check() -> None:
            radio.check = kept
            raise TxUnderflowError("ran dry")

        radio: Any = uplink.lab.jammer
        kept, radio.check = radio.check, check

    with before("exchange", 2, at_receive(damaged)):
        run(sections(), tmp_path / "run")
    played = replay(RunFolder(tmp_path / "run"))
    assert_the_same(played)
    failed = played.attempts[1]
    assert failed.outcome == FAILED
    assert failed.mechanism is not None
    assert failed.mechanism.alpha_cj == 0.0


def test_a_radio_that_fails_at_once(tmp_path: Path) -> None:
    """An attempt without any sample."""
    with before("plan", 1, fault("ps", "receive", RxOverflowError("lost"))):
        run(sections(), tmp_path / "run")
    played = replay(RunFolder(tmp_path / "run"))
    assert_the_same(played)
    assert played.attempts[0].outcome == NOT_SENT


def test_a_run_that_was_stopped_and_resumed(tmp_path: Path) -> None:
    def stop(uplink: Any) -> None:
        raise HardwareError("unplugged")

    with before("exchange", 2, stop), pytest.raises(HardwareError, match="unplugged"):
        run(sections(attempts=1), tmp_path / "run")
    run(sections(attempts=1), tmp_path / "run", resume=True)
    played = replay(RunFolder(tmp_path / "run"))
    assert_the_same(played)
    assert [attempt.uplink for attempt in played.attempts] == [1, 2, 2, 3]


def change_sample(folder: Path, label: str, *, honest: bool) -> None:
    """Move one sample of uplink 2, behind the middle of what is marked so. honest: with a digest that fits."""
    base = folder / "captures" / "uplink-0002-1-ps"
    meta, data = base.with_name(base.name + ".sigmf-meta"), base.with_name(base.name + ".sigmf-data")
    described = json.loads(meta.read_text())
    mark = next(mark for mark in described["annotations"] if mark["core:label"] == label)
    samples = np.fromfile(data, np.complex64)
    samples[mark["core:sample_start"] + mark["core:sample_count"] // 2 + 100] += np.float32(1e-3)
    samples.tofile(data)
    if honest:
        described["global"]["core:sha512"] = sigmf.hashing.calculate_sha512(filename=data)
        meta.write_text(json.dumps(described))


@pytest.mark.parametrize(
    ("label", "quantity"),
    [
        ("payload", "sum"),
        ("silence", "MeasureSilence at 'ps'"),
        ("sounding client-3", "HearSoundings at 'ps'.states[2]"),
    ],
)
def test_a_changed_sample_is_found(copy: Path, label: str, quantity: str) -> None:
    change_sample(copy, label, honest=True)
    played = replay(RunFolder(copy))
    assert not played.same
    found = {attempt.uplink: [one.quantity for one in attempt.found] for attempt in played.attempts}
    assert found[1] == []
    assert found[3] == []
    assert any(name.startswith(quantity) for name in found[2])


def test_a_changed_sample_is_found_by_its_digest(copy: Path) -> None:
    change_sample(copy, "payload", honest=False)
    found = replay(RunFolder(copy), uplink=2).attempts[0].found
    assert found[0].quantity == "samples"
    assert found[-1].quantity == "sum"
    assert "by up to" in found[-1].detail


def test_a_changed_sample_before_the_first_uplink_is_found(copy: Path) -> None:
    """The pool that all bounds rest on is not the one that was recorded, and with it sigma is another."""
    base = copy / "captures" / "opening-1-ps"
    data = base.with_name(base.name + ".sigmf-data")
    samples = np.fromfile(data, np.complex64)
    samples *= np.float32(1.01)
    samples.tofile(data)
    found = [one.quantity for one in replay(RunFolder(copy)).attempts[0].found]
    assert found[0] == "samples"
    assert any(name.startswith("pool of silences") for name in found)


def test_a_changed_sum_is_found(copy: Path) -> None:
    path = copy / "captures" / "uplink-0003-1.npy"
    values = np.load(path)
    values[7] += 1
    np.save(path, values)
    assert {one.quantity for one in replay(RunFolder(copy)).attempts[2].found} == {"sum"}


def test_a_changed_answer_is_found(copy: Path) -> None:
    """A client that says less of its gain than it has: what was charged does not come out."""
    path = copy / "captures" / "uplink-0001-1.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    decision = next(event for event in events if (event.get("answer") or {}) and "gain_upper" in event["answer"])
    decision["answer"]["gain_upper"] *= 0.5
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    found = [one.quantity for one in replay(RunFolder(copy)).attempts[0].found]
    assert "authorise.received_gains" in found
    assert "account.received_gains" in found


@pytest.mark.parametrize("end", ["-ps.sigmf-data", "-ps.sigmf-meta", ".npy"])
def test_a_missing_file_is_named(copy: Path, end: str) -> None:
    (copy / "captures" / f"uplink-0002-1{end}").unlink()
    with pytest.raises((RecordingError, RunFolderError), match=f"uplink-0002-1{end}"):
        replay(RunFolder(copy))


def test_a_missing_conversation_is_a_capture_that_is_not_there(copy: Path) -> None:
    (copy / "captures" / "uplink-0002-1.jsonl").unlink()
    played = replay(RunFolder(copy))
    assert played.same
    assert played.model is None
    assert [uplink for uplink, _ in played.not_recorded] == [2]
    with pytest.raises(RunFolderError, match="no capture of uplink 2: it has 1, 3"):
        replay(RunFolder(copy), uplink=2)


@pytest.mark.parametrize("content", [b"", b"{}\n", b"[]\n", b"\xff\xfe", b'{"kind": "outcome"}\n'])
def test_a_damaged_conversation_is_named(copy: Path, content: bytes) -> None:
    (copy / "captures" / "uplink-0002-1.jsonl").write_bytes(content)
    with pytest.raises(RunFolderError, match=r"uplink-0002-1\.jsonl"):
        replay(RunFolder(copy))


def test_the_command_says_it_by_its_exit_code(copy: Path, tmp_path: Path, command: Callable[..., Any]) -> None:
    assert command("replay", copy).code == 0
    change_sample(copy, "payload", honest=True)
    outcome = command("replay", copy)
    assert outcome.code == 3
    assert "uplink 2: sum:" in outcome.out
    assert command("replay", copy, "--json").json["attempts"][1]["differences"][-1]["quantity"] == "sum"
    assert command("replay", copy, "--uplink", "1").code == 0
    (copy / "captures" / "uplink-0002-1-ps.sigmf-data").unlink()
    assert command("replay", copy).code == 2
    shutil.rmtree(copy / "captures")
    outcome = command("replay", copy)
    assert outcome.code == 2
    assert "--record" in outcome.err


def test_a_journal_names_no_recording_outside_its_folder(copy: Path) -> None:
    journal = copy / "captures" / "uplink-0001-1.jsonl"
    *events, outcome = (json.loads(line) for line in journal.read_text().splitlines())
    outcome["recordings"] = {"ps": "../captures/uplink-0001-1-ps"}
    journal.write_text("".join(json.dumps(one) + "\n" for one in (*events, outcome)))
    with pytest.raises(RunFolderError, match="which is not in its folder"):
        replay(RunFolder(copy))


@pytest.mark.parametrize(
    ("key", "value"), [("attempt", "x"), ("memory", []), ("memory", {"array": "", "dtype": "O", "shape": [1]})]
)
def test_a_journal_of_a_stranger_is_refused_in_words(copy: Path, key: str, value: object) -> None:
    journal = copy / "captures" / "uplink-0001-1.jsonl"
    first, *rest = (json.loads(line) for line in journal.read_text().splitlines())
    journal.write_text("".join(json.dumps(one) + "\n" for one in ({**first, key: value}, *rest)))
    with pytest.raises(RunFolderError, match="is damaged, or of another version"):
        replay(RunFolder(copy))
