"""What happens in a run, as it happens: log.jsonl in its folder, for whoever looks on. Nothing rests on it.

One line per event, each with its `time`:

    {"kind": "state", "state": "sound", "uplink": 3, "attempt": 0}      states of an uplink, as in docs/architecture.md
    {"kind": "node", "node": "client-1", "state": "sent", "uplink": 3}  what a node has just done
    {"kind": "message", "level": "warning", "text": "..."}              what the program logs
    {"kind": "run", "state": "started"}                                 a process takes the run up, or leaves it

Lines are appended without waiting for the disk, so that looking on costs a run next to nothing. A log that cannot be
written is given up with a warning: the run goes on.
"""

import json
import logging
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fl.nodes.messages import (
    Announcement,
    Check,
    HearSoundings,
    JammingOrder,
    MeasureSilence,
    Message,
    Receive,
    Sound,
    Transmit,
    Withdraw,
)
from fl.nodes.stage import Beginning
from hardware.foundation.durable import open_to_append

NAME = "log.jsonl"
_LOG = logging.getLogger("airdp")
_MOST_WAITING = 1000
"""Events before the folder exists; there are a handful."""

_DONE = {
    Sound: "sounded",
    Announcement: "decided",
    JammingOrder: "decided",
    Transmit: "sent",
    Withdraw: "withdrawn",
    Check: "checked",
    MeasureSilence: "heard silence",
    HearSoundings: "heard soundings",
    Receive: "received",
}
"""By message: what a node that has answered it has done. Messages that are not here change nothing that is seen."""
_REACHED = {Announcement: "plan", JammingOrder: "plan", Transmit: "transmit", Receive: "receive"}
"""By message: the state that the uplink is in when the first node has answered it."""


class RunLog:
    """The writing side. A watcher (`fl.nodes.journal.watch`) and a handler's target."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._open = False
        self._waiting: list[bytes] = []
        self._descriptor: int | None = None
        self._given_up = False
        self._lock = threading.Lock()
        self._uplink, self._attempt, self._state = 0, 0, ""

    def say(self, kind: str, **fields: Any) -> None:
        """Add a line; it waits in memory until the log is open."""
        if self._given_up:
            return
        event = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "kind": kind, **fields}
        try:
            with self._lock:
                self._waiting.append(json.dumps(event).encode() + b"\n")
                self._write()
        except OSError as error:
            self._given_up = True
            _LOG.warning("%s is not written any longer: %s", self._path, error.strerror)

    def _write(self) -> None:
        if self._descriptor is None:
            if not self._open:
                del self._waiting[_MOST_WAITING:]
                return
            self._descriptor = open_to_append(self._path)
        lines, self._waiting = b"".join(self._waiting), []
        os.write(self._descriptor, lines)

    def open(self) -> None:
        """Write from now on: the run has its folder, and goes on in it. A folder that is refused stays as it is."""
        self._open = True

    def state(self, state: str, uplink: int | None = None) -> None:
        """The uplink has reached a state."""
        if uplink is not None and uplink != self._uplink:
            self._uplink, self._attempt = uplink, 0
        self._state = state
        self.say("state", state=state, uplink=self._uplink, attempt=self._attempt)

    def ended(self) -> None:
        """See `Watcher.ended`."""

    def began(self, uplink: int, attempt: int, beginning: Beginning) -> None:
        """See `Watcher.began`."""
        self._uplink, self._attempt = uplink, attempt
        self.state("sound")

    def postponed(self, planned_sample: int, given_sample: int) -> None:
        """See `Watcher.postponed`."""

    def answered(self, node: str, message: Message[Any], answer: Any) -> None:
        """See `Watcher.answered`."""
        done, reached = _DONE.get(type(message)), _REACHED.get(type(message))
        if reached is not None and reached != self._state:
            self.state(reached)
        if done is not None:
            self.say("node", node=node, state=done, uplink=self._uplink)

    def failed(self, node: str, message: Message[Any], error: BaseException) -> None:
        """See `Watcher.failed`."""
        self.say("node", node=node, state="failed", uplink=self._uplink, reason=str(error))

    def close(self) -> None:
        """No more lines."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._given_up = None, True


class LogHandler(logging.Handler):
    """What the program logs, into a run's log, and on to where it would go without this handler."""

    def __init__(self, log: RunLog) -> None:
        """Before it is added to the logger `airdp`."""
        super().__init__()
        self._run_log = log
        # Python prints warnings of a logger that has no handler at all.
        self._otherwise = None if _LOG.hasHandlers() else logging.lastResort

    def emit(self, record: logging.LogRecord) -> None:
        """One record."""
        self._run_log.say("message", level=record.levelname.lower(), text=record.getMessage())
        if self._otherwise is not None and record.levelno >= self._otherwise.level:
            self._otherwise.handle(record)
