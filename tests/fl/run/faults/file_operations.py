"""Every operation by which this process changes files, counted, and a SIGKILL at one of them.

Python's own files are put in place of those in C (`_pyio`, with the same behaviour), so that each write is a call of
`os.write` too; all other ways to change a file or a folder are calls of `os` anyway. For a process that is about to be
killed: nothing of this can be taken back.
"""

import _pyio
import builtins
import io
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

CHANGES = (
    *("open", "write", "pwrite", "fsync", "fdatasync", "ftruncate", "truncate", "posix_fallocate"),
    *("rename", "replace", "link", "symlink", "mkdir", "rmdir", "unlink", "remove", "chmod", "close"),
)
BEFORE: Final = "before"
HALF: Final = "half"
AFTER: Final = "after"


@dataclass(frozen=True)
class Moment:
    """operation: its number from 1 on. when: before it, after it, or when half of a write is done."""

    operation: int
    when: str


@dataclass
class FileOperations:
    """names: of the operations until now, in their order. moment: at which the process is killed, None for never."""

    moment: Moment | None = None
    names: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """From now on, for the rest of this process."""
        io.open = builtins.open = _pyio.open  # type: ignore[assignment]
        for name in CHANGES:
            setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if name == "open" and not arguments[1] & (os.O_CREAT | os.O_TRUNC):
                return original(*arguments, **named)
            self.names.append(name)
            when = self.moment.when if self.moment and self.moment.operation == len(self.names) else None
            if when == BEFORE:
                _die()
            if when == HALF and name == "write":
                original(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                _die()
            result = original(*arguments, **named)
            if when is not None:
                _die()
            return result

        return call

    def moments(self) -> list[Moment]:
        """At every operation that there was: before, after, and in the middle of each write."""
        return [
            Moment(number, when)
            for number, name in enumerate(self.names, 1)
            for when in (BEFORE, *([HALF] if name == "write" else []), AFTER)
        ]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
