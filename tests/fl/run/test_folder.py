"""The folder of a run: files that are whole or refused, a folder that appears at once, and one process at a time."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fl.errors import RunFolderError
from fl.run.config import RunConfig
from fl.run.folder import Checkpoint, RunFolder, created, is_unused, locked

SAVED = Checkpoint(3, np.linspace(-1, 1, 20).astype(np.float32), "a" * 64)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def test_a_checkpoint_reads_back_bit_for_bit(folder: RunFolder) -> None:
    assert folder.load_checkpoint() is None
    folder.save_checkpoint(Checkpoint(1, np.zeros(2, np.float32), "x"))
    folder.save_checkpoint(SAVED)
    held = folder.load_checkpoint()
    assert held is not None
    assert (held.uplink, held.ledger_head) == (3, "a" * 64)
    assert held.model.dtype == np.float32
    assert held.model.tobytes() == SAVED.model.tobytes()
    assert list(folder.path.iterdir()) == [folder.checkpoint_path]


def _damaged(folder: RunFolder, content: bytes) -> Checkpoint | None:
    """None where it was refused. A file left open would be a warning, which is an error."""
    folder.checkpoint_path.write_bytes(content)
    try:
        return folder.load_checkpoint()
    except RunFolderError:
        return None


def test_every_truncation_of_a_checkpoint_is_refused(folder: RunFolder) -> None:
    folder.save_checkpoint(SAVED)
    whole = folder.checkpoint_path.read_bytes()
    assert [length for length in range(0, len(whole), 7) if _damaged(folder, whole[:length]) is not None] == []


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_a_flipped_byte_never_gives_another_model(folder: RunFolder, place: int, flip: int) -> None:
    folder.save_checkpoint(SAVED)
    content = bytearray(folder.checkpoint_path.read_bytes())
    content[place % len(content)] ^= flip
    held = _damaged(folder, bytes(content))
    # A byte that nothing depends on may differ (a date in the archive); what is read must be what was saved.
    if held is not None:
        assert (held.uplink, held.ledger_head) == (3, "a" * 64)
        assert held.model.tobytes() == SAVED.model.tobytes()


def _archive(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _single() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not an archive",
        b"PK\x03\x04",
        _single(),
        _archive(uplink=1, model=np.zeros(3, np.float32)),
        _archive(uplink="x", model=np.zeros(3, np.float32), ledger_head="a"),
        _archive(uplink=np.zeros(2), model=np.zeros(3, np.float32), ledger_head="a"),
        _archive(uplink=1, model=np.zeros(3), ledger_head="a"),
        _archive(uplink=1, model=np.array([np.nan], np.float32), ledger_head="a"),
        _archive(uplink=1, model=np.array([np.inf], np.float32), ledger_head="a"),
    ],
    ids=[
        "empty",
        "text",
        "half a zip",
        "one array",
        "no head",
        "no number",
        "two numbers",
        "float64",
        "NaN",
        "infinity",
    ],
)
def test_what_is_no_checkpoint_is_refused(folder: RunFolder, content: bytes) -> None:
    folder.checkpoint_path.write_bytes(content)
    with pytest.raises(RunFolderError, match=r"checkpoint\.npz is damaged"):
        folder.load_checkpoint()


def test_a_checkpoint_with_pickled_objects_is_refused(folder: RunFolder) -> None:
    content = _archive(uplink=1, model=np.array([{"a": 1}], dtype=object), ledger_head="a")
    assert _damaged(folder, content) is None


@pytest.mark.parametrize("torn", [b'{"uplink": 4, "lo', b'{"uplink": 4, "lo' + bytes(9), bytes(17) + b'ss": 0.4}\n'])
def test_metrics_are_lines_and_a_torn_last_one_is_left_out(folder: RunFolder, torn: bytes) -> None:
    assert folder.metrics() == []
    for uplink in (1, 2, 3):
        folder.append_metrics({"uplink": uplink, "loss": 0.1 * uplink})
    with folder.metrics_path.open("ab") as file:
        file.write(torn)
    assert [row["uplink"] for row in folder.metrics()] == [1, 2, 3]
    folder.keep_metrics_until(2)
    assert folder.metrics() == [{"uplink": 1, "loss": 0.1}, {"uplink": 2, "loss": 0.2}]
    folder.append_metrics({"uplink": 3})
    assert [row["uplink"] for row in folder.metrics()] == [1, 2, 3]


def test_metrics_never_hold_what_json_has_not(folder: RunFolder) -> None:
    with pytest.raises(ValueError, match="JSON"):
        folder.append_metrics({"uplink": 1, "loss": float("nan")})
    assert folder.metrics() == []


@pytest.mark.parametrize("line", [b"{", b"\xff", b"[1]", b"3", b"{}", b'{"uplink": "x"}', b""])
def test_damaged_metrics_are_refused(folder: RunFolder, line: bytes) -> None:
    folder.append_metrics({"uplink": 1})
    with folder.metrics_path.open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(RunFolderError, match="is damaged"):
        folder.metrics()


def test_json_files(folder: RunFolder) -> None:
    folder.write_json("x.json", {"a": [1, "ε"]})
    assert folder.read_json("x.json") == {"a": [1, "ε"]}
    with pytest.raises(ValueError, match="JSON"):
        folder.write_json("x.json", {"a": float("inf")})
    assert folder.read_json("x.json") == {"a": [1, "ε"]}
    with pytest.raises(RunFolderError, match=r"y\.json cannot be read"):
        folder.read_json("y.json")
    (folder.path / "z.json").write_bytes(b"{")
    with pytest.raises(RunFolderError, match=r"z\.json cannot be read"):
        folder.read_json("z.json")


def test_the_config_of_a_folder(folder: RunFolder) -> None:
    with pytest.raises(RunFolderError, match="is not the folder of a run"):
        folder.config()
    folder.config_path.write_text(RunConfig(seed=7).to_toml())
    assert folder.config() == RunConfig(seed=7)
    for content in (b"seed = ", b"\xff\xfe\x00", b"sede = 1\n"):
        folder.config_path.write_bytes(content)
        with pytest.raises(RunFolderError, match="is not the folder of a run"):
            folder.config()


def test_where_a_run_may_start(tmp_path: Path) -> None:
    assert is_unused(tmp_path / "new")
    assert is_unused(tmp_path / "deep" / "down")
    (tmp_path / "empty").mkdir()
    assert is_unused(tmp_path / "empty")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / ".hidden").touch()
    assert not is_unused(tmp_path / "used")
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match="is a file"):
        is_unused(tmp_path / "file")
    with pytest.raises(RunFolderError, match="cannot read"):
        is_unused(tmp_path / ("x" * 300))


def test_a_folder_appears_filled_or_not_at_all(tmp_path: Path, snapshot: Callable[[Path], dict[str, str]]) -> None:
    path = tmp_path / "deep" / "run"
    with created(path) as folder:
        folder.write_json("a.json", {})
        assert not path.exists()
    assert json.loads((path / "a.json").read_text()) == {}
    assert path.stat().st_mode & 0o777 == 0o755
    before = snapshot(tmp_path)

    def fail(error: BaseException) -> None:
        with created(tmp_path / "other") as folder:
            folder.write_json("a.json", {})
            raise error

    for error in (KeyError("x"), KeyboardInterrupt(), OSError("x")):
        with pytest.raises(type(error)):
            fail(error)
        assert snapshot(tmp_path) == before


def test_an_empty_folder_is_taken_and_a_used_one_never(
    tmp_path: Path, snapshot: Callable[[Path], dict[str, str]]
) -> None:
    path = tmp_path / "run"
    path.mkdir()
    with created(path) as folder:
        folder.write_json("a.json", {})
    before = snapshot(tmp_path)

    def again() -> None:
        with created(path) as folder:
            folder.write_json("b.json", {})

    with pytest.raises(RunFolderError, match="choose a new folder"):
        again()
    assert snapshot(tmp_path) == before


def test_a_place_where_nothing_can_be_made(tmp_path: Path, snapshot: Callable[[Path], dict[str, str]]) -> None:
    (tmp_path / "file").write_text("x")
    before = snapshot(tmp_path)
    for path in (tmp_path / "file" / "run", tmp_path / ("x" * 300)):
        with pytest.raises(RunFolderError, match="cannot make"), created(path):
            pass
    assert snapshot(tmp_path) == before


def test_one_process_at_a_time(folder: RunFolder) -> None:
    with (
        locked(folder),
        pytest.raises(RunFolderError, match="another process is running"),
        locked(folder),
    ):
        pass

    def fail() -> None:
        with locked(folder):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with locked(folder):
        pass


def test_a_new_folder_is_as_open_as_the_umask_says(tmp_path: Path) -> None:
    for umask, mode in ((0o022, 0o755), (0o077, 0o700), (0o002, 0o775)):
        before = os.umask(umask)
        try:
            with created(tmp_path / f"run-{umask}"):
                pass
        finally:
            os.umask(before)
        assert (tmp_path / f"run-{umask}").stat().st_mode & 0o777 == mode


def test_what_killed_processes_were_filling_is_removed_and_what_others_are_filling_is_not(tmp_path: Path) -> None:
    """A child makes a run's folder and is killed in it; meanwhile another one is at work."""
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom fl.run.folder import created\n"
        "with created(Path(sys.argv[1])) as scratch:\n    (scratch.path / 'file').write_text('x')\n"
        "    print(scratch.path, flush=True)\n    time.sleep(600)\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", script, tmp_path / "run"], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        killed, working = (Path(child.stdout.readline().strip()) for child in children if child.stdout)
        assert killed.exists()
        assert working.exists()
        children[0].kill()
        children[0].wait()
        unlike = tmp_path / ".run.notes"
        unlike.mkdir()
        with created(tmp_path / "run"):
            pass
        assert not killed.exists()
        assert (working / "file").exists()
        assert unlike.exists()
    finally:
        for child in children:
            child.kill()
            child.communicate()


def test_new_parents_are_durable_before_the_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink()))
    with created(tmp_path / "a" / "b" / "run"):
        assert {tmp_path, tmp_path / "a"} <= set(synced)
    assert synced[-1] == tmp_path / "a" / "b"
