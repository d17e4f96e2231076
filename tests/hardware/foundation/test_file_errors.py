"""Every error of a file names the file, the reason and what to do."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hardware.foundation.durable import AppendOnlyFile, append_durably, overwrite_durably, write_atomically
from hardware.foundation.file_errors import described, naming

WRITES: dict[str, Callable[[Path], None]] = {
    "write_atomically": lambda path: write_atomically(path, b"x"),
    "append_durably": lambda path: append_durably(path, b"x"),
    "overwrite_durably": lambda path: overwrite_durably(path, 0, b"x"),
    "AppendOnlyFile": lambda path: AppendOnlyFile(path).append(b"x"),
}


@pytest.mark.parametrize(
    ("code", "advice"), [(errno.ENOSPC, "make room"), (errno.EROFS, "read-only"), (errno.EIO, "the disk fails")]
)
@pytest.mark.parametrize("write", WRITES)
def test_what_a_disk_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str, code: int, advice: str
) -> None:
    path = tmp_path / "file"
    path.touch()

    def refuse(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match=os.strerror(code)) as caught:
        WRITES[write](path)
    # A file that replaces another is written beside it.
    assert caught.value.filename in (str(path), str(tmp_path / ".file.tmp"))
    assert described(caught.value).startswith(f"{caught.value.filename}: {os.strerror(code)}; ")
    assert advice in described(caught.value)


def test_a_full_disk() -> None:
    """A real one: the device that is always full."""
    full = Path("/dev/full")
    with pytest.raises(OSError, match="/dev/full") as caught, naming(full), full.open("ab", buffering=0) as file:
        file.write(b"x")
    assert described(caught.value).startswith("/dev/full: No space left on device; make room")


def test_an_error_that_nobody_knows() -> None:
    assert described(OSError("odd")) == "odd"
    assert described(OSError(errno.ENOTTY, "not a terminal", "x")) == "x: not a terminal"
