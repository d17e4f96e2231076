"""SIGTERM as an exception, so that it ends a program through its `finally` clauses like Ctrl-C does."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def orderly_termination() -> Iterator[None]:
    """Within it SIGTERM raises `SystemExit`, unless the program has an idea of its own or this is not its main thread.

    By default SIGTERM ends a process at once, which would leave radios as they are.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
