"""Runs that stop at any point and go on: the same model bit for bit, and never less privacy spent than sent."""

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fl.privacy.ledger
import fl.run.figures
import fl.run.learner
from fl.errors import LedgerError, RunFolderError
from fl.learning.local import LocalTraining
from fl.privacy.accountant import Accountant
from fl.privacy.ledger import Ledger, LedgerContents, read_ledger
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.statement import state_privacy
from fl.run import run
from fl.run.course.metrics import UplinkMetrics
from fl.run.course.result import FINISHED, RunResult
from fl.run.folder import Checkpoint, RunFolder
from fl.uplink.contract import Aggregate, Updates, UplinkPlan
from fl.uplink.symbol import SymbolUplink
from hardware.foundation.durable import AppendOnlyFile
from phy.errors import AirdpError

Tiny = Callable[..., dict[str, Any]]
Snapshot = Callable[[Path], dict[str, str]]
UPLINKS = 4
pytestmark = pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")


class CrashError(BaseException):
    """Not an `Exception`, so that nothing between here and the test can mistake it for an error to be handled."""


@dataclass
class Air:
    """What has really been sent, kept apart from the ledger."""

    sent: list[RoundMechanism] = field(default_factory=list)


@pytest.fixture
def air(monkeypatch: pytest.MonkeyPatch) -> Air:
    witness = Air()
    exchange = SymbolUplink.exchange

    def watched(self: SymbolUplink, plan: UplinkPlan, updates: Updates, authorise: Callable[[], None]) -> Aggregate:
        def send() -> None:
            authorise()
            witness.sent.append(plan.mechanism)

        return exchange(self, plan, updates, send)

    monkeypatch.setattr(SymbolUplink, "exchange", watched)
    return witness


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """The run that nothing interrupts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fl.run.figures, "draw_run", lambda folder: None)
        return run(sections_of(), tmp_path_factory.mktemp("whole") / "run")


def sections_of() -> dict[str, Any]:
    return {
        "name": "tiny",
        "data": {"train_samples": 200},
        "partition": {"clients": 3},
        "model": {"hidden": 8},
        "local": {"epochs": 1, "workers": 1},
        "uplink": {"uplinks": UPLINKS},
        "power": {"channel_epsilon": 50.0},
        "jammer": {"role": "rotating"},
    }


def model_of(folder: Path) -> bytes:
    checkpoint = RunFolder(folder).load_checkpoint()
    assert checkpoint is not None
    return checkpoint.model.tobytes()


def epsilon_of(mechanisms: list[RoundMechanism] | tuple[RoundMechanism, ...], contents: LedgerContents) -> float:
    header = contents.header
    return state_privacy(
        mechanisms, header.sizes_array, label=header.label, neighbours=header.neighbours, delta=header.delta
    ).epsilon[Accountant.EXACT]


def assert_as_if_never_stopped(folder: Path, result: RunResult, whole: RunResult, air: Air) -> None:
    assert result.status == FINISHED
    assert result.model_sha256 == whole.model_sha256
    assert model_of(folder) == model_of(whole.out)
    assert (result.accuracy, result.loss, result.uplinks) == (whole.accuracy, whole.loss, whole.uplinks)
    rows, expected = RunFolder(folder).metrics(), RunFolder(whole.out).metrics()
    assert [row["uplink"] for row in rows] == list(range(1, UPLINKS + 1))
    for row, other in zip(rows, expected, strict=True):
        # Epsilon may be higher, because an uplink that was sent twice is charged twice; time is time.
        assert row["epsilon"] >= other["epsilon"] * (1 - 1e-12)
        assert {k: v for k, v in row.items() if k not in ("seconds", "epsilon")} == {
            k: v for k, v in other.items() if k not in ("seconds", "epsilon")
        }
    assert_nothing_sent_for_free(folder, air)


def assert_nothing_sent_for_free(folder: Path, air: Air) -> None:
    contents = read_ledger(folder / "ledger.jsonl")
    assert contents.authorised >= len(air.sent)
    assert epsilon_of(contents.mechanisms, contents) >= epsilon_of(air.sent, contents) * (1 - 1e-12)
    for uplink in range(1, UPLINKS + 1):
        charged = sum(mechanism.uplink == uplink for mechanism in contents.mechanisms)
        assert charged >= sum(mechanism.uplink == uplink for mechanism in air.sent)


@pytest.mark.parametrize("stop", range(1, UPLINKS + 1))
def test_a_run_stopped_after_an_uplink_goes_on_with_the_next(
    tmp_path: Path, whole: RunResult, air: Air, stop: int
) -> None:
    def give_up(metrics: UplinkMetrics) -> None:
        if metrics.uplink == stop:
            raise CrashError

    with pytest.raises(CrashError):
        run(sections_of(), tmp_path / "run", on_uplink=give_up)
    told: list[int] = []
    result = run(sections_of(), tmp_path / "run", resume=True, on_uplink=lambda metrics: told.append(metrics.uplink))
    assert told == list(range(stop + 1, UPLINKS + 1))
    assert_as_if_never_stopped(tmp_path / "run", result, whole, air)
    # Everything was accounted for when it stopped, so nothing is charged twice.
    assert result.transmissions_charged == len(air.sent) == UPLINKS
    assert result.privacy == whole.privacy


def test_a_run_stopped_after_every_uplink(tmp_path: Path, whole: RunResult, air: Air) -> None:
    def give_up(metrics: UplinkMetrics) -> None:
        raise CrashError

    for _ in range(UPLINKS):
        with pytest.raises(CrashError):
            run(sections_of(), tmp_path / "run", resume=True, on_uplink=give_up)
    result = run(sections_of(), tmp_path / "run", resume=True)
    assert_as_if_never_stopped(tmp_path / "run", result, whole, air)
    assert result.transmissions_charged == UPLINKS


POINTS: dict[str, tuple[object, str]] = {
    "plan": (SymbolUplink, "plan"),
    "signals": (SymbolUplink, "_signals"),
    "authorise": (Ledger, "authorise"),
    "exchange": (SymbolUplink, "exchange"),
    "metrics": (RunFolder, "append_metrics"),
    "checkpoint": (RunFolder, "save_checkpoint"),
    "account": (Ledger, "account"),
    "training": (LocalTraining, "update"),
    "evaluation": (fl.run.learner, "evaluate"),
    "keeping metrics": (RunFolder, "keep_metrics_until"),
    "opening the ledger": (Ledger, "open"),
    "a row of the ledger": (Ledger, "_append"),
    "figures": (fl.run.figures, "draw_run"),
    "result": (RunFolder, "write_json"),
    "an append": (AppendOnlyFile, "append"),
    "a replacement": (fl.privacy.ledger, "write_atomically"),
}


@contextmanager
def crash_at(point: str, call: int, *, after: bool) -> Iterator[None]:
    """The `call`-th call of the function crashes, before or after it has done its work."""
    owner, name = POINTS[point]
    original = getattr(owner, name)
    calls = 0

    def crashing(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and not after:
            raise CrashError
        result = original(*arguments, **named)
        if calls == call:
            raise CrashError
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, crashing)
        yield


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_step(tmp_path: Path, whole: RunResult, air: Air, point: str, after: bool) -> None:
    crashes = 0
    for call in (1, 3):
        folder = tmp_path / f"run{call}"
        air.sent.clear()
        with crash_at(point, call, after=after):
            try:
                run(sections_of(), folder)
            except CrashError:
                crashes += 1
        if folder.exists():
            assert_nothing_sent_for_free(folder, air)
        result = run(sections_of(), folder, resume=True)
        assert_as_if_never_stopped(folder, result, whole, air)
    assert crashes >= 1


@pytest.mark.parametrize("seed", range(3))
def test_many_crashes_in_one_run(tmp_path: Path, whole: RunResult, air: Air, seed: int) -> None:
    draw, folder = random.Random(seed), tmp_path / "run"
    result = None
    rows_before = b""
    for _ in range(12):
        crash = crash_at(draw.choice(list(POINTS)), draw.choice([1, 1, 2, 3]), after=draw.random() < 0.5)
        with crash, contextlib.suppress(CrashError):
            result = run(sections_of(), folder, resume=True)
            break
        if folder.exists():
            rows = (folder / "ledger.jsonl").read_bytes()
            assert rows.startswith(rows_before)
            rows_before = rows
    result = result or run(sections_of(), folder, resume=True)
    assert_as_if_never_stopped(folder, result, whole, air)


@pytest.mark.parametrize("kept", [0, 1, 100, -1], ids=["nothing", "one byte", "100 bytes", "all but the end"])
@pytest.mark.parametrize("row", [3, 4], ids=["authorise", "account"])
def test_a_row_that_a_crash_tore_is_finished(
    tmp_path: Path, whole: RunResult, air: Air, row: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, rows = AppendOnlyFile.append, 0

    def tearing(file: AppendOnlyFile, content: bytes) -> None:
        nonlocal rows
        rows += 1
        if rows == row:
            append(file, content[:kept])
            raise CrashError
        append(file, content)

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(AppendOnlyFile, "append", tearing)
        with pytest.raises(CrashError):
            run(sections_of(), folder)
    before = (folder / "ledger.jsonl").read_bytes()
    assert before.endswith(b"\n") == (kept == 0)
    result = run(sections_of(), folder, resume=True)
    assert (folder / "ledger.jsonl").read_bytes().startswith(before)
    assert_as_if_never_stopped(folder, result, whole, air)
    contents = read_ledger(folder / "ledger.jsonl")
    # A torn authorisation that is finished stands, although nothing was sent: it is charged rather than doubted.
    assert contents.authorised - len(air.sent) in (0, 1)


def test_torn_metrics_are_made_again(tmp_path: Path, whole: RunResult, air: Air) -> None:
    folder = tmp_path / "run"
    with crash_at("checkpoint", 3, after=False), pytest.raises(CrashError):
        run(sections_of(), folder)
    metrics = folder / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-30])
    assert_as_if_never_stopped(folder, run(sections_of(), folder, resume=True), whole, air)


def test_resuming_where_there_is_nothing_starts(tmp_path: Path, whole: RunResult, air: Air) -> None:
    assert_as_if_never_stopped(tmp_path / "run", run(sections_of(), tmp_path / "run", resume=True), whole, air)


def test_resuming_a_finished_run_sends_and_charges_nothing(
    tmp_path: Path, whole: RunResult, air: Air, snapshot: Snapshot
) -> None:
    folder = tmp_path / "run"
    first = run(sections_of(), folder)
    rows = (folder / "ledger.jsonl").read_bytes()
    before = {name: digest for name, digest in snapshot(folder).items() if not name.startswith("ledger")}
    assert len(air.sent) == UPLINKS
    second = run(sections_of(), folder, resume=True)
    assert len(air.sent) == UPLINKS
    assert second == first
    assert {name: digest for name, digest in snapshot(folder).items() if not name.startswith("ledger")} == before
    added = (folder / "ledger.jsonl").read_bytes().removeprefix(rows).splitlines()
    assert [json.loads(row)["kind"] for row in added] in ([], ["resume"])
    assert_as_if_never_stopped(folder, second, whole, air)


def test_workers_and_description_may_change(tmp_path: Path, whole: RunResult, air: Air) -> None:
    folder = tmp_path / "run"
    with crash_at("account", 2, after=True), pytest.raises(CrashError):
        run(sections_of(), folder)
    sections = {**sections_of(), "description": "other words"}
    sections["local"] = {**sections["local"], "workers": 3}
    assert_as_if_never_stopped(folder, run(sections, folder, resume=True), whole, air)


def test_an_interrupted_budget_counts_what_was_authorised(tmp_path: Path, air: Air) -> None:
    """Crashes between authorisation and checkpoint use the budget up; the run stops rather than exceed it."""
    sections = {**sections_of(), "privacy": {"budget_epsilon": 4.0}}
    folder = tmp_path / "run"
    for _ in range(30):
        with crash_at("exchange", 1, after=True), contextlib.suppress(CrashError):
            result = run(sections, folder, resume=True)
            break
    else:
        pytest.fail("the budget never ran out")
    assert (result.status, result.uplinks) == ("budget spent", 0)
    assert result.transmissions_charged == len(air.sent) > 1
    assert result.privacy[0].epsilon[Accountant.PAPER] <= 4.0
    assert_nothing_sent_for_free(folder, air)


def test_a_ledger_that_lost_its_last_account_gets_it_back(tmp_path: Path, whole: RunResult, air: Air) -> None:
    """Cut cleanly after what the checkpoint saw: the row that was announced beside it is still there."""
    folder = tmp_path / "run"
    with crash_at("account", 2, after=True), pytest.raises(CrashError):
        run(sections_of(), folder)
    path = folder / "ledger.jsonl"
    written = path.read_bytes()
    path.write_bytes(b"".join(written.splitlines(keepends=True)[:-1]))
    result = run(sections_of(), folder, resume=True)
    assert path.read_bytes().startswith(written)
    assert_as_if_never_stopped(folder, result, whole, air)
    # The uplink was sent again, because its checkpoint was missing, and is charged again.
    assert result.transmissions_charged == whole.transmissions_charged + 1


def _rows(folder: Path) -> list[bytes]:
    return (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)


def _cut(folder: Path, rows: int) -> None:
    (folder / "ledger.jsonl").write_bytes(b"".join(_rows(folder)[:-rows]))


def _edit(folder: Path) -> None:
    path = folder / "ledger.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"sigma":0.0', b'"sigma":1.0', 1))


def _truncate(folder: Path) -> None:
    path = folder / "ledger.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    (folder / "ledger.jsonl.next").unlink()


def _truncate_deeper_than_one_row(folder: Path) -> None:
    path = folder / "ledger.jsonl"
    path.write_bytes(path.read_bytes()[: -len(_rows(folder)[-1]) - 20])


def _swap(folder: Path) -> None:
    rows = _rows(folder)
    rows[-1], rows[-2] = rows[-2], rows[-1]
    (folder / "ledger.jsonl").write_bytes(b"".join(rows))


def _other_ledger(folder: Path) -> None:
    other = run({**sections_of(), "seed": 9}, folder.parent / "other").out
    (folder / "ledger.jsonl").write_bytes((other / "ledger.jsonl").read_bytes())


def _other_shape(folder: Path) -> None:
    held = RunFolder(folder).load_checkpoint()
    assert held is not None
    RunFolder(folder).save_checkpoint(Checkpoint(held.uplink, np.zeros(7, np.float32), held.ledger_head))


def _other_head(folder: Path) -> None:
    held = RunFolder(folder).load_checkpoint()
    assert held is not None
    RunFolder(folder).save_checkpoint(Checkpoint(held.uplink, held.model, "0" * 64))


def _write(name: str, content: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return damage


def _remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "ledger lost three rows": (lambda folder: _cut(folder, 3), "lacks rows"),
    "ledger lost all but its first row": (lambda folder: _cut(folder, 4), "lacks rows"),
    "ledger edited": (_edit, "does not match its hash"),
    "ledger truncated": (_truncate, "is truncated"),
    "ledger truncated in an earlier row": (_truncate_deeper_than_one_row, "ledger"),
    "ledger rows swapped": (_swap, "does not follow"),
    "ledger empty": (_write("ledger.jsonl", b""), "ledger"),
    "ledger gone": (_remove("ledger.jsonl"), "cannot read ledger"),
    "ledger of another run": (_other_ledger, "another config"),
    "checkpoint damaged": (_write("checkpoint.npz", b"PK\x03\x04 and then nothing"), "is damaged"),
    "checkpoint empty": (_write("checkpoint.npz", b""), "is damaged"),
    "checkpoint of another model": (_other_shape, "shape"),
    "checkpoint of another ledger": (_other_head, "lacks rows that the checkpoint has seen"),
    "metrics damaged": (_write("metrics.jsonl", b"{\n"), "is damaged"),
    "config gone": (_remove("config.toml"), "is not the folder of a run"),
    "config damaged": (_write("config.toml", b"\xff\xff"), "is not the folder of a run"),
    "partition gone": (_remove("partition.json"), "cannot be read"),
    "partition damaged": (_write("partition.json", b"[]"), "other data"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_folder_is_refused_and_left_as_it_is(tmp_path: Path, air: Air, snapshot: Snapshot, name: str) -> None:
    folder = tmp_path / "run"
    with crash_at("exchange", 3, after=False), pytest.raises(CrashError):
        run(sections_of(), folder)
    damage, message = DAMAGE[name]
    damage(folder)
    before, sent = snapshot(folder), len(air.sent)
    with pytest.raises(AirdpError, match=message):
        run(sections_of(), folder, resume=True)
    assert snapshot(folder) == before
    assert len(air.sent) == sent


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 2}, "seed"),
        ({"name": "other"}, "name"),
        ({"local": {"epochs": 2}}, "local.epochs"),
        ({"privacy": {"epsilon": 6.0}}, "privacy.epsilon"),
        ({"uplink": {"uplinks": 9}}, "uplink.uplinks"),
    ],
)
@pytest.mark.parametrize("resume", [False, True])
def test_another_config_is_refused_by_the_keys_that_differ(
    tmp_path: Path, snapshot: Snapshot, change: dict[str, Any], named: str, resume: bool
) -> None:
    folder = tmp_path / "run"
    run(sections_of(), folder)
    before = snapshot(tmp_path)
    sections = sections_of()
    for key, value in change.items():
        sections[key] = {**sections.get(key, {}), **value} if isinstance(value, dict) else value
    with pytest.raises(RunFolderError, match=f"holds another run .differs in {named}"):
        run(sections, folder, resume=resume)
    assert snapshot(tmp_path) == before


def test_the_same_run_without_resume_is_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    run(sections_of(), tmp_path / "run")
    before = snapshot(tmp_path)
    with pytest.raises(RunFolderError, match="add --resume"):
        run(sections_of(), tmp_path / "run")
    assert snapshot(tmp_path) == before


def test_other_data_at_the_same_place_is_refused(tmp_path: Path, air: Air, snapshot: Snapshot) -> None:
    data = tmp_path / "data.npz"

    def write(seed: int) -> None:
        images = np.random.default_rng(seed).integers(0, 256, (80, 28, 28), dtype=np.uint8)
        np.savez(data, x=images, y=np.arange(80) % 10)

    write(1)
    sections = {**sections_of(), "data": {"set": "emnist", "path": str(data)}}
    folder = tmp_path / "run"
    with crash_at("exchange", 2, after=True), pytest.raises(CrashError):
        run(sections, folder)
    write(2)
    before = snapshot(folder)
    with pytest.raises(RunFolderError, match="other data"):
        run(sections, folder, resume=True)
    assert snapshot(folder) == before
    write(1)
    assert run(sections, folder, resume=True).status == FINISHED
    assert_nothing_sent_for_free(folder, air)


def test_a_folder_of_something_else_is_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    before = snapshot(tmp_path)
    for resume in (False, True):
        with pytest.raises(RunFolderError, match="is not the folder of a run"):
            run(sections_of(), tmp_path, resume=resume)
    assert snapshot(tmp_path) == before


def test_a_full_disk_stops_the_run_and_it_goes_on_when_there_is_space(
    tmp_path: Path, whole: RunResult, air: Air
) -> None:
    folder = tmp_path / "run"
    append, calls = AppendOnlyFile.append, 0

    def full(file: AppendOnlyFile, content: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            append(file, content[:40])
            raise OSError(28, "No space left on device")
        append(file, content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AppendOnlyFile, "append", full)
        with pytest.raises((LedgerError, OSError)):
            run(sections_of(), folder)
    assert_as_if_never_stopped(folder, run(sections_of(), folder, resume=True), whole, air)


@pytest.mark.parametrize("harm", ["deleted", "cut", "replaced"])
def test_a_ledger_that_is_harmed_meanwhile_stops_the_run_before_it_sends(tmp_path: Path, air: Air, harm: str) -> None:
    folder = tmp_path / "run"
    path = folder / "ledger.jsonl"

    def after_uplink(metrics: UplinkMetrics) -> None:
        if metrics.uplink == 2:
            content = path.read_bytes()
            if harm != "cut":
                path.unlink()
            if harm != "deleted":
                path.write_bytes(content[:-200] if harm == "cut" else content)

    with pytest.raises(LedgerError, match="nothing more is sent"):
        run(sections_of(), folder, on_uplink=after_uplink)
    assert len(air.sent) == 2
    assert path.exists() == (harm != "deleted")
