"""Keeps what radios received in each attempt at an uplink, with the conversation that belongs to it."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import RunFolderError
from fl.nodes.coordinated import CoordinatedUplink
from fl.nodes.journal.conversation import Conversation
from fl.nodes.journal.marks import Marker
from fl.nodes.journal.watch import Watcher
from fl.run.captures import OUTCOME, START, AttemptFiles, CaptureFolder, Reservations, values_digest, write_journal
from fl.run.config import Record, RunConfig
from fl.versions import package_version, source_commit
from hardware.lab.opened import OpenLab
from hardware.radio.contract import Radio
from hardware.radio.errors import HardwareError
from hardware.radio.samples import Capture
from hardware.recording.model import Recording, Tape
from hardware.recording.sigmf_files import write_recording

_LOG = logging.getLogger("airdp")


@dataclass
class Tapes:
    """At the radios of an open lab, by name: of receivers what they receive, of transmitters what they send."""

    received: dict[str, Tape] = field(default_factory=dict)
    sent: dict[str, Tape] = field(default_factory=dict)

    @classmethod
    def at(cls, lab: OpenLab, *, sent: bool) -> "Tapes":
        """Running. Observers receive whenever the server does, where they are this process's. sent: whether
        transmitters are listened to as well."""
        tapes = cls()
        observers = [lab.radios[radio.name] for radio in lab.lab.observers if radio.name in lab.radios]
        for radio in (lab.ps, *observers):
            tapes.received[radio.name] = Tape()
            radio.tap_received(tapes.received[radio.name])
        for radio in (*lab.clients, *filter(None, [lab.jammer])) if sent else ():
            tapes.sent[radio.name] = Tape()
            radio.tap_sent(tapes.sent[radio.name])
        lab.ps.tap_received(partial(_receive_too, observers))
        tapes.wind()
        return tapes

    def wind(self) -> None:
        """Begin anew."""
        for _, tape, _ in self.all():
            tape.wind()

    def all(self) -> Iterator[tuple[str, Tape, bool]]:
        """Name, tape, and whether it is of what was sent."""
        yield from ((name, tape, False) for name, tape in self.received.items())
        yield from ((name, tape, True) for name, tape in self.sent.items())


def _receive_too(observers: Sequence[Radio], capture: Capture) -> None:
    """Let others receive what the server has received. The uplink does not depend on whether they can."""
    for radio in observers:
        try:
            radio.receive(capture.samples.size, capture.start_sample)
        except HardwareError as error:
            _LOG.warning("the observer '%s' has missed a part of the uplink: %s", radio.name, error)


class UplinkRecorder:
    """Of one process's share of a run. It is told when an attempt begins and when it is over; see `fl.run.journal`."""

    def __init__(self, captures: CaptureFolder, config: RunConfig, uplink: CoordinatedUplink, tapes: Tapes) -> None:
        """The uplink has just been made: what the tapes have now was received before any attempt."""
        self._captures, self._config, self._uplink, self._tapes = captures, config, uplink, tapes
        self._conversation = Conversation(uplink.cast.server, lambda: uplink.server.listener.pool)
        self._marker = Marker(uplink.air, uplink.cast.transmitters, uplink.lab.ps.settings.rx_center_hz)
        self._opening: int | None = None
        self._files: AttemptFiles | None = None
        self._rooms: Reservations | None = None
        self._attempt = 0
        self._opened = {name: self._recording(name, tape, sent=False) for name, tape in tapes.received.items()}
        self._session = datetime.now(UTC).isoformat()

    @property
    def watchers(self) -> tuple[Watcher, ...]:
        """Who must see the conversation."""
        return self._conversation, self._marker

    def start(self, model: NDArray[np.float32]) -> None:
        """The run begins with this model."""
        self._captures.prepare()
        if self._config.radio.record is Record.ALL:
            self._captures.write_array(self._captures.path / START, model)

    def begin(self, uplink: int, attempt: int) -> None:
        """An attempt begins."""
        self._captures.prepare()
        self._write_opening()
        self._files, self._attempt = self._captures.next_attempt(uplink), attempt
        self._tapes.wind()

    def reserve(self) -> None:
        """Take the room that this attempt's recordings will need, or raise."""
        files, payload = self._current(), self._uplink.air.payload.length
        try:
            self._rooms = Reservations(
                {files.recording(name, sent): tape.sample_count + payload for name, tape, sent in self._tapes.all()}
            )
        except OSError as error:
            raise RunFolderError(
                f"uplink {files.uplink} cannot be recorded in {self._captures.path}: {error.strerror}; nothing of it "
                "was sent: make room and resume, or set radio.record = 'none'"
            ) from error

    def finish(self, authorised_seq: int | None, released: NDArray[np.float32] | None) -> None:
        """The attempt is over. authorised_seq: its row in the ledger. released: its sum, None where it failed."""
        files = self._current()
        recordings: dict[str, str] = {}
        outcome: dict[str, Any] = {
            "kind": OUTCOME,
            "session": self._session,
            "opening": self._opening,
            "coordinates": self._uplink.air.coordinates,
            "recordings": recordings,
        }
        if authorised_seq is not None:
            outcome["authorised_seq"] = authorised_seq
        if released is not None:
            outcome["released_sha256"] = values_digest(released)
            self._captures.write_array(files.released, released)
        for name, tape, sent in self._tapes.all():
            recording = self._recording(name, tape, sent=sent)
            if recording.segments:
                base = files.recording(name, sent)
                self._write(base, recording)
                recordings[f"{name} sent" if sent else name] = base.name
        write_journal(files, [*self._conversation.events, outcome])
        self.give_up()
        if released is not None and self._config.radio.record is Record.LAST:
            self._captures.keep_only(files.uplink, self._opening)

    def give_up(self) -> None:
        """Give room back that was not needed."""
        if self._rooms is not None:
            self._rooms.give_up()
        self._rooms, self._files = None, None

    def _write(self, base: Path, recording: Recording) -> None:
        if self._rooms is None:
            write_recording(base, recording)
        else:
            self._rooms.fill(base, recording)

    def _current(self) -> AttemptFiles:
        if self._files is None:
            raise RunFolderError("no attempt at an uplink has begun that could be recorded")
        return self._files

    def _write_opening(self) -> None:
        """What was received before the first attempt, once."""
        opened, self._opened = self._opened, {}
        for name, recording in opened.items():
            if recording.segments:
                self._opening, base = self._captures.next_opening(name)
                write_recording(base, recording)

    def _recording(self, name: str, tape: Tape, *, sent: bool) -> Recording:
        files, lab = self._files, self._uplink.lab.lab
        when = "before any uplink" if files is None else f"uplink {files.uplink}, attempt {self._attempt}"
        direction = "sent" if sent else "received"
        note = "; not private: this is before the air adds noise" if sent else ""
        return Recording(
            radio=name,
            hardware=f"'{name}' of the lab '{lab.name}', backend {lab.backend.name}",
            description=f"airdp run '{self._config.name}', {when}: {direction} by '{name}'{note}",
            segments=tape.cut(),
            marks=() if sent else tuple(self._marker.marks),
            facts={
                "run": self._config.name,
                **({} if files is None else {"uplink": files.uplink, "attempt": self._attempt}),
                "direction": direction,
                "coordinates": self._uplink.air.coordinates,
                "config_sha256": self._config.digest(),
                "versions": {"airdp": package_version("airdp"), "source": source_commit()},
            },
        )
