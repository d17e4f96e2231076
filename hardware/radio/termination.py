"""SIGTERM and SIGHUP as exceptions, so that they end a program through its `finally` clauses like Ctrl-C does."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def orderly_termination() -> Iterator[None]:
    """Within it each of the two raises `SystemExit` with a shell's code for it, 128 + its number.

    By default they end a process at once, which would leave radios as they are and files half-written. A signal that is
    not at its default stays as it is: the program has an idea of its own, or it was started with the signal ignored, as
    `nohup` does. In another than the main thread, which alone gets signals, nothing changes.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    taken = [number for number in _SIGNALS if in_main_thread and signal.getsignal(number) == signal.SIG_DFL]
    try:
        for number in taken:
            signal.signal(number, _stop)
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
