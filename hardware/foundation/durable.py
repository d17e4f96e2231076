"""Files that are either the old or the new version after any crash, never half of one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path`, for what writes to a path: made durable and renamed over `path` when the block is done.

    Where the block, or anything after it, fails, `path` is as it was and the file beside it is gone.
    """
    scratch = path.with_name(f".{path.name}.tmp")
    try:
        yield scratch
        _sync(scratch)
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content`: written beside it, made durable, renamed over it."""
    with replacing(path) as scratch:
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)


def append_durably(path: Path, content: bytes) -> None:
    """Append `content` to `path` and wait until it is on disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with os.fdopen(descriptor, "ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the folder's own entries durable: a rename or a new file is only safe then."""
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
