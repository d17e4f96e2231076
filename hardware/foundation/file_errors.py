"""What went wrong with a file, in words: which one, why, and what to do about it."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ADVICE = {
    errno.ENOSPC: "make room there, or choose a folder on another disk",
    errno.EDQUOT: "your quota is used up: make room, or choose a folder on another disk",
    errno.EROFS: "that file system is read-only: choose a folder on another one, or mount it for writing",
    errno.EIO: "the disk fails: save what is on it, and see what the system's log says (dmesg)",
    errno.EACCES: "see to the permissions of the file and its folder",
    errno.EPERM: "see to the permissions of the file and its folder",
    errno.ENOENT: "see whether it was moved or deleted, and whether its folder exists",
    errno.EMFILE: "this process may not open more files: raise the limit (ulimit -n 1024)",
    errno.ENFILE: "the system has no room for more open files: end other programs",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "a link is in its place, which nothing is written through: put the file itself there",
}


def described(error: OSError) -> str:
    """One line: the file where it is known, the reason, and what to do."""
    reason = error.strerror or str(error)
    where = "" if error.filename is None else f"{error.filename}: "
    advice = _ADVICE.get(error.errno or 0, "")
    return f"{where}{reason}{f'; {advice}' if advice else ''}"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError of the block that names no file, as those of reads and writes do not, names `path`."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
