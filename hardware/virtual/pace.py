"""Drives virtual time by the wall clock."""

import threading
import time
from typing import Protocol

_TICK_S = 0.004
# A machine that is slower than the radios cannot catch up: from here on time is let slip instead.
_MOST_BEHIND_S = 0.25


class Paced(Protocol):
    """Something whose time is driven from outside, under its lock."""

    lock: threading.Lock

    def run_for(self, seconds: float) -> None:
        """Let time advance by that much."""
        ...


class Pace:
    """A thread that advances time. slipped_s: how much later than the wall clock it is, for lack of speed."""

    def __init__(self, paced: Paced) -> None:
        self._paced = paced
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="virtual-pace", daemon=True)
        self.slipped_s = 0.0

    def start(self) -> None:
        """Let time begin."""
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        if self._thread.ident:
            self._thread.join()

    def _run(self) -> None:
        origin = time.monotonic()
        reached_s = 0.0
        while not self._stop.wait(_TICK_S):
            now_s = time.monotonic() - origin - self.slipped_s
            if now_s - reached_s > _MOST_BEHIND_S:
                self.slipped_s += now_s - reached_s - _MOST_BEHIND_S
                now_s = reached_s + _MOST_BEHIND_S
            # In small pieces, so that clients get their turn in between.
            while reached_s < now_s:
                piece_s = min(_TICK_S, now_s - reached_s)
                with self._paced.lock:
                    self._paced.run_for(piece_s)
                reached_s += piece_s
