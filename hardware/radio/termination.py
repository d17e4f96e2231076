"""Signals that end a program: as exceptions, so that it ends through its `finally` clauses, and not within these."""

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


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Within it no signal ends the program; the first that came does what it does when the block is left.

    For what must be brought to an end and takes a bounded time. In another than the main thread, which alone gets
    signals, nothing changes.
    """
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        held.append(number)

    in_main_thread = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *_SIGNALS) if in_main_thread}
    taken = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}
    try:
        for number in taken:
            signal.signal(number, hold)
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
