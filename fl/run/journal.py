"""What a run over radios writes down of its uplinks besides metrics: noise always, captures where they are wanted.

    noise.jsonl   one line per attempt: noise as measured, intervals, bounds (`fl.nodes.journal.noise`)
    captures/     see `fl.run.captures`

When, and what a failure means:

    before authorise   room for the captures is taken. Without it the run ends here: nothing was sent or charged
    after checkpoint   captures and noise are written. Where that fails the run ends, and goes on with the next uplink
                       when it is resumed: the uplink that was sent is not lost, only its capture is, and replaying
                       says so
    failed attempts    are written when the next one begins, or the run ends
"""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.nodes.coordinated import CoordinatedUplink
from fl.nodes.journal.log import LogHandler, RunLog
from fl.nodes.journal.noise import NoiseLine
from fl.nodes.journal.watch import Watcher, watch
from fl.nodes.messages import Message
from fl.nodes.stage import Beginning
from fl.run.captures import CaptureFolder
from fl.run.config import Record, RunConfig
from fl.run.folder import RunFolder
from fl.run.recorder import Tapes, UplinkRecorder
from hardware.foundation.durable import append_durably
from hardware.lab.opened import OpenLab

_LOG = logging.getLogger("airdp")


class RunJournal:
    """Of one process's share of a run. Where the uplink is not over radios it is never attached, and does nothing."""

    def __init__(self, folder: RunFolder, config: RunConfig) -> None:
        self._folder, self._config = folder, config
        self._noise = NoiseLine()
        self.log = RunLog(folder.path)
        self._tapes: Tapes | None = None
        self._recorder: UplinkRecorder | None = None
        self._watchers: Sequence[Watcher] = (self._noise, self.log)
        self._authorised_seq: int | None = None

    def tap(self, lab: OpenLab) -> None:
        """Listen at the radios from now on, where captures are wanted."""
        radio = self._config.radio
        self._tapes = Tapes.at(lab, sent=radio.record_sent) if radio.record is not Record.NONE else None

    def attach(self, uplink: CoordinatedUplink) -> None:
        """Watch the uplink from now on; it has just been made, on the radios that are tapped."""
        if self._tapes is not None:
            captures = CaptureFolder.of(self._folder.path)
            self._recorder = UplinkRecorder(captures, self._config, uplink, self._tapes)
            self._watchers = (self._noise, self.log, *self._recorder.watchers)
        uplink.kept_in(self._folder.path)
        watch(uplink.coordinator, [self])

    def start(self, model: NDArray[np.float32]) -> None:
        """The run begins, with this model."""
        if self._recorder is not None:
            self._recorder.start(model)

    def ended(self) -> None:
        """See `Watcher.ended`. An attempt that is not finished by now has failed."""
        self._finish(None)

    def began(self, uplink: int, attempt: int, beginning: Beginning) -> None:
        """See `Watcher.began`."""
        if self._recorder is not None:
            self._recorder.begin(uplink, attempt)
        for watcher in self._watchers:
            watcher.began(uplink, attempt, beginning)

    def postponed(self, planned_sample: int, given_sample: int) -> None:
        """See `Watcher.postponed`."""
        for watcher in self._watchers:
            watcher.postponed(planned_sample, given_sample)

    def answered(self, node: str, message: Message[Any], answer: Any) -> None:
        """See `Watcher.answered`."""
        for watcher in self._watchers:
            watcher.answered(node, message, answer)

    def failed(self, node: str, message: Message[Any], error: BaseException) -> None:
        """See `Watcher.failed`."""
        for watcher in self._watchers:
            watcher.failed(node, message, error)

    def reserve(self) -> None:
        """Before the ledger's row: take the room that the captures of this uplink will need, or raise."""
        if self._recorder is not None:
            self._recorder.reserve()

    def authorised(self, uplink: int, seq: int) -> None:
        """The uplink `uplink` is charged with this row of the ledger."""
        self._authorised_seq = seq
        self.log.state("authorise", uplink)

    def released(self, values: NDArray[np.float32]) -> None:
        """The uplink is over, and this is its sum."""
        self.log.state("done")
        self._finish(values)

    def close(self) -> None:
        """Write what is left of an attempt that did not finish. Why it did not is worth more than a failure here."""
        try:
            self._finish(None)
        except OSError as error:
            _LOG.error("the capture of the last attempt is lost: %s", error)
        finally:
            if self._recorder is not None:
                self._recorder.give_up()

    def _finish(self, released: NDArray[np.float32] | None) -> None:
        line, self._noise.line = self._noise.line, None
        seq, self._authorised_seq = self._authorised_seq, None
        if line is None:
            return
        if self._recorder is not None:
            self._recorder.finish(seq, released)
        append_durably(self._folder.path / "noise.jsonl", json.dumps(line, allow_nan=False).encode() + b"\n")


@contextmanager
def journal_of(folder: RunFolder, config: RunConfig) -> Iterator[RunJournal]:
    """A journal that is closed however the block is left. What the program logs meanwhile is in the run's log."""
    journal = RunJournal(folder, config)
    handler = LogHandler(journal.log)
    _LOG.addHandler(handler)
    journal.log.say("run", state="started")
    reason = ""
    try:
        yield journal
    except BaseException as error:
        reason = str(error) or type(error).__name__
        raise
    finally:
        journal.close()
        journal.log.say("run", state="ended", reason=reason)
        _LOG.removeHandler(handler)
        journal.log.close()
