"""Files that are either the old or the new version after any crash, never half of one.

A folder may have been filled by a stranger: nothing is written through a link that lies in it.
"""

import errno
import os
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hardware.foundation.file_errors import naming

_AS_UMASK_SAYS = 0o666


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path`, for what writes to a path: made durable and renamed over `path` when the block is done.

    Where the block, or anything after it, fails, `path` is as it was and the file beside it is gone.
    """
    scratch = path.with_name(f".{path.name}.tmp")
    try:
        with naming(path):
            _check_replaceable(path)
            if os.path.lexists(scratch):
                scratch.unlink()
            yield scratch
            _sync(scratch)
            scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _check_replaceable(path: Path) -> None:
    """Raise OSError where `path` leads to a device, a pipe or a folder: a rename would put a file in its place."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        raise FileExistsError(errno.EEXIST, "There is something that is not a file, and is not replaced", str(path))


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content`: written beside it, made durable, renamed over it."""
    with replacing(path) as scratch, os.fdopen(open_new(scratch), "wb") as file:
        file.write(content)


def open_new(path: Path) -> int:
    """Descriptor, for writing, of a file that was not there before, nor a link of that name. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _AS_UMASK_SAYS)


def open_to_append(path: Path, *, create: bool = True) -> int:
    """Descriptor, for appending, of a file; of no link, and of no pipe, which nobody may read. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    descriptor = os.open(path, flags, _AS_UMASK_SAYS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileExistsError(errno.EEXIST, "There is something that is not a file, and is not written to", str(path))
    return descriptor


def append_durably(path: Path, content: bytes) -> None:
    """Append `content` to `path` and wait until it is on disk."""
    with naming(path), os.fdopen(open_to_append(path), "ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


class AppendOnlyFile:
    """A file that nobody else may touch while it grows. size: bytes that it has, all of them durable.

    It stays open: a file that was deleted, replaced, cut or written by another is noticed before the next append, and
    what is appended goes to no other file than the one that was opened. It is never made anew.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = open_to_append(path, create=False)
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self.size = os.fstat(self._descriptor).st_size

    def trouble(self) -> str:
        """What became of the file, in words that follow its name; nothing while it is as it was left."""
        own = os.fstat(self._descriptor)
        try:
            named = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return "was deleted or moved"
        except OSError as error:
            return f"cannot be looked at any more ({error.strerror})"
        if (named.st_dev, named.st_ino) != (own.st_dev, own.st_ino):
            return "was replaced by another file"
        if own.st_size != self.size:
            return f"has {own.st_size} bytes instead of {self.size}: it was cut or written to by another program"
        return ""

    def append(self, content: bytes) -> None:
        """Append `content` and wait until it is on disk."""
        rest = memoryview(content)
        with naming(self.path):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            os.fsync(self._descriptor)
        self.size += len(content)

    def close(self) -> None:
        """Give the descriptor back. A second call does nothing."""
        self._close()


def overwrite_durably(path: Path, offset: int, content: bytes) -> None:
    """Put `content` at `offset` of an existing file, and nothing after it, and wait until it is on disk."""
    with naming(path), path.open("r+b") as file:
        file.seek(offset)
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def make_folders(path: Path) -> None:
    """`path` and what is missing above it, each durable in the folder that it is in.

    Folders that exist are made durable too: a process that was killed may have made them a moment ago. Whatever is in
    a folder that this user cannot write to was not made by such a process.
    """
    path = path.absolute()
    path.mkdir(parents=True, exist_ok=True)
    for folder in (path, *path.parents):
        if not os.access(folder.parent, os.R_OK | os.W_OK):
            break
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the folder's own entries durable: a rename or a new file is only safe then."""
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
