"""Folders that are needed for a while and must not outlive their process, however that ends.

Whoever has made one holds a lock on it. What is there without a lock was left by a process that was killed, and is
removed when the next one makes a folder of the same kind. Others' folders, and those in use, stay.
"""

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phy.errors import AirdpError

PREFIX = "airdp-"
_TOKEN = 16
"""Characters that tell folders of one kind apart."""
_LONGEST_SOCKET = 107
"""Bytes of a Unix socket's path (unix(7))."""
_LONGEST_NAME = 40
"""Of what is in such a folder: the names of radios and what is added to them."""


class ScratchError(AirdpError):
    """There is no place for a folder."""


@contextmanager
def scratch_folder(kind: str, *, sockets: bool = False) -> Iterator[Path]:
    """A new folder for this user alone, in the system's temporary folder; gone after the block.

    sockets: Unix sockets will be in it, whose paths must be short. Where TMPDIR is too long for them it is in /tmp.
    """
    name = f"{PREFIX}{kind}."
    folder, lock = make_locked(_place(name, sockets), name, mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def make_locked(parent: Path, prefix: str, mode: int = 0o777) -> tuple[Path, int]:
    """A new folder whose name begins with `prefix`, as open to others as umask and `mode` say, and its lock.

    The lock goes when its descriptor is closed, or with this process. What others left behind under such a name goes
    first. Raises OSError.
    """
    for left in parent.glob(f"{_literal(prefix)}{'[0-9a-f]' * _TOKEN}/"):
        remove_unlocked(left)
    while True:
        folder = parent / f"{prefix}{secrets.token_hex(_TOKEN // 2)}"
        folder.mkdir(mode=mode)
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Between the two calls another process may have taken it for one that was left behind.
        if folder.is_dir():
            return folder, lock
        os.close(lock)


def remove_unlocked(folder: Path) -> None:
    """Remove what a killed process has left; what is in use, or is not this user's, stays."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return
    finally:
        os.close(lock)


def _place(name: str, sockets: bool) -> Path:
    usual = Path(tempfile.gettempdir())
    places = (usual, Path("/tmp")) if sockets else (usual,)  # noqa: S108 - the folder in it is made for one user
    for place in places:
        short = len(os.fsencode(place / name)) + _TOKEN + 1 + _LONGEST_NAME <= _LONGEST_SOCKET
        if (short or not sockets) and os.access(place, os.W_OK | os.X_OK):
            return place
    raise ScratchError(
        f"the temporary folder {usual} cannot be written to, or its path is too long for sockets and /tmp cannot be "
        "written to: set TMPDIR to a folder with a short path"
    )


def _literal(text: str) -> str:
    """As a pattern that matches just this."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in text)
