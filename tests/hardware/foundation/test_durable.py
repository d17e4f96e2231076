"""Files that survive a crash: the order of what reaches the disk, and what is left after a failure at each step."""

import os
import threading
from pathlib import Path

import pytest

from hardware.foundation import durable


def failing(*arguments: object, **named: object) -> None:
    raise OSError(28, "No space left on device")


def test_content_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    durable.write_atomically(path, b"old")
    durable.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_files_are_as_open_as_the_umask_says(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        durable.write_atomically(tmp_path / "replaced", b"x")
        durable.append_durably(tmp_path / "appended", b"x")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {mode}


@pytest.mark.parametrize("size", [0, 1, 10_000_000])
def test_any_size(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    durable.write_atomically(tmp_path / "x", content)
    assert (tmp_path / "x").read_bytes() == content


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace", "os.open"])
def test_a_failure_at_any_step_leaves_the_old_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "file.json"
    durable.write_atomically(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(step, failing)
        with pytest.raises(OSError, match="No space"):
            durable.write_atomically(path, b"new and longer")
    assert path.read_bytes() == b"old"
    durable.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_the_content_is_on_disk_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        steps.append(f"fsync {'the folder' if target.is_dir() else f'{target.name} of {target.stat().st_size}'}")
        fsync(descriptor)

    def note_replace(self: Path, target: Path) -> Path:
        steps.append(f"rename to {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    durable.write_atomically(tmp_path / "x", b"12345")
    assert steps == ["fsync .x.tmp of 5", "rename to x", "fsync the folder"]


def _write_half(path: Path) -> None:
    path.write_bytes(b"ne")
    (path / "w").write_bytes(b"w")


def test_what_wants_a_path_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(b"old")
    with pytest.raises(NotADirectoryError), durable.replacing(path) as scratch:
        _write_half(scratch)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with durable.replacing(path) as scratch:
        assert scratch.parent == tmp_path
        scratch.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_writes_nothing_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(b"old")
    with pytest.raises(FileNotFoundError), durable.replacing(path):
        pass
    assert path.read_bytes() == b"old"


def test_appending_adds_and_creates(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    for line in (b"one\n", b"", b"two\n"):
        durable.append_durably(path, line)
    assert path.read_bytes() == b"one\ntwo\n"


def test_appending_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []
    path = tmp_path / "lines"
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(path.read_bytes()))
    durable.append_durably(path, b"one\n")
    assert synced == [b"one\n"]


def test_a_failed_append_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="No space"):
        durable.append_durably(tmp_path / "lines", b"one\n")


def test_lines_of_several_writers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "lines"

    def write(writer: int) -> None:
        for number in range(25):
            durable.append_durably(path, f"{writer} {number} {'x' * 300}\n".encode())

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = path.read_text().splitlines()
    assert len(lines) == 100
    assert {len(line.split(" ")[2]) for line in lines} == {300}


def test_a_folder_that_is_not_there_raises(tmp_path: Path) -> None:
    for call in (durable.write_atomically, durable.append_durably):
        with pytest.raises(FileNotFoundError):
            call(tmp_path / "no" / "file", b"x")
    with pytest.raises(FileNotFoundError):
        durable.sync_folder(tmp_path / "no")


def test_descriptors_are_closed(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        durable.write_atomically(tmp_path / "x", b"x")
        durable.append_durably(tmp_path / "y", b"x")
        durable.sync_folder(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
