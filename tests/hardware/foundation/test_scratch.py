"""Folders that go with their process, and what is left of those that were killed."""

import os
import signal
import socket
import stat
import tempfile
import time
from pathlib import Path

import pytest

from hardware.foundation.scratch import ScratchError, make_locked, scratch_folder


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_it_is_the_users_alone_and_gone_afterwards(tmp_path: Path) -> None:
    with scratch_folder("kind") as folder:
        assert folder.parent == tmp_path
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "file").touch()
    assert not list(tmp_path.iterdir())


def left_behind(kind: str) -> Path:
    """What a process leaves that is killed within the block."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with scratch_folder(kind) as folder:
            (folder / "file").touch()
            os.write(writer, str(folder).encode())
            time.sleep(60)
    folder = Path(os.read(reader, 4096).decode())
    with scratch_folder(kind):
        assert folder.is_dir(), "one that is in use was removed"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    assert folder.is_dir()
    return folder


def test_what_a_killed_process_left_goes_at_the_next_start(tmp_path: Path) -> None:
    left, other = left_behind("kind"), left_behind("other-kind")
    (tmp_path / "airdp-kind.of-my-own").mkdir()
    with scratch_folder("kind") as folder:
        assert {path.name for path in tmp_path.iterdir()} == {folder.name, other.name, "airdp-kind.of-my-own"}
    assert not left.exists()


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    link = tmp_path / f"airdp-kind.{'0' * 16}"
    link.symlink_to(tmp_path / "precious")
    with scratch_folder("kind"):
        assert (tmp_path / "precious" / "file").exists()


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o755), (0o077, 0o700), (0o002, 0o775)])
def test_what_is_to_be_seen_by_others_follows_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        folder, lock = make_locked(tmp_path, ".run[1]*.")
        os.close(lock)
        assert stat.S_IMODE(folder.stat().st_mode) == mode
        # Its name is no pattern: it is found, and removed, under just that name.
        again, lock = make_locked(tmp_path, ".run[1]*.")
        os.close(lock)
        assert not folder.exists()
        assert again.exists()
    finally:
        os.umask(before)


def test_sockets_can_be_made_however_long_the_temporary_folder_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with scratch_folder("kind", sockets=True) as folder, socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / ("n" * 40)))
    with scratch_folder("kind") as folder:
        assert folder.parent == long
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ScratchError, match="set TMPDIR"), scratch_folder("kind", sockets=True):
        pass
