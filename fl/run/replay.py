"""A run's captures through the receiver's own code once more, without radios: does the same come out?

The coordinator runs as it did, asks the same server's node, whose radio plays back what it received, and accounts as it
did. Transmitters answer as they answered. Compared bit for bit, for each recorded attempt:

    samples        against the digest in their metadata
    conversation   all that the server measured, and all that was said to transmitters
    authorise      the worst case against the ledger's row
    account        the mechanism against the ledger's row: sigma, gains, what they are made of
    sum            what was released against what was kept
    model          where every uplink from the first on is there: the model's path, against the checkpoint
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.record import parse_record
from fl.errors import RunFolderError
from fl.import_path import code_of
from fl.learning.server.algorithms import ServerState, advance
from fl.learning.workforce import Workforce
from fl.nodes.calibrated import CalibrationCheck
from fl.nodes.journal.codec import Difference, array_difference, decode, differences, encode
from fl.nodes.journal.recorded import EndOfConversationError, OtherCourseError, RecordedConversation
from fl.nodes.radio_uplink import RadioUplink
from fl.nodes.server import ServerNode
from fl.privacy.ledger import LedgerContents, read_ledger
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.statement import PrivacyStatement, state_privacy
from fl.run.assemble import radio_uplink_on
from fl.run.captures import START, AttemptFiles, CaptureFolder, read_array, values_digest
from fl.run.config import RunConfig, UplinkKind
from fl.run.folder import RunFolder
from fl.run.inputs import CALIBRATION, LAB
from fl.run.learner import make_algorithm
from fl.uplink.contract import UnprotectedError
from hardware.foundation.documents import DocumentError, read_bounded
from hardware.lab.file import load_lab
from hardware.lab.opened import OpenLab
from hardware.recording.model import Segment
from hardware.recording.replay import ReplayRadio
from hardware.recording.sigmf_files import read_recording
from phy.errors import AirdpError

RELEASED, FAILED, NOT_SENT = "released", "failed after it was charged", "not sent"


@dataclass(frozen=True)
class ReplayedAttempt:
    """One attempt. attempt: its number within the uplink, from 0 on. seq: its row in the ledger, None where it was not
    charged. outcome: what was recorded. mechanism, values: as they come out now, where they do.
    """

    uplink: int
    attempt: int
    seq: int | None
    outcome: str
    found: tuple[Difference, ...]
    mechanism: RoundMechanism | None = None
    values: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Replay:
    """attempts: in order. not_recorded: (uplink, row of the ledger) of what was charged and has no capture.

    privacy: of the whole ledger, with the mechanisms that come out now in place of those that were recorded.
    model: whether the model's path is the recorded one; None where not every uplink is there.
    """

    attempts: tuple[ReplayedAttempt, ...]
    not_recorded: tuple[tuple[int, int], ...]
    privacy: PrivacyStatement
    recorded_privacy: PrivacyStatement
    model: bool | None

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return self.model is not False and not any(attempt.found for attempt in self.attempts)


@dataclass(frozen=True)
class _Rows:
    """Mechanisms of a ledger, as JSON, by the number of the row that authorised them."""

    contents: LedgerContents
    authorised: Mapping[int, dict[str, Any]]
    accounted: Mapping[int, dict[str, Any]]

    @classmethod
    def of(cls, folder: RunFolder) -> "_Rows":
        contents = read_ledger(folder.ledger_path)
        rows = [json.loads(line) for line in folder.ledger_path.read_text(encoding="utf-8").splitlines()]
        return cls(
            contents,
            {row["seq"]: row["mechanism"] for row in rows if row["kind"] == "authorise"},
            {row["authorised_seq"]: row["mechanism"] for row in rows if row["kind"] == "account"},
        )


def replay(folder: RunFolder, uplink: int | None = None) -> Replay:
    """Replay all captures of a run, or those of one uplink."""
    config = folder.config()
    if config.uplink.kind is not UplinkKind.RADIO:
        raise RunFolderError(
            f"{folder.path} is a run with uplink.kind = '{config.uplink.kind.value}': nothing to replay; "
            "a run over radios that was recorded (airdp run --record) has captures"
        )
    captures, rows = CaptureFolder.of(folder.path), _Rows.of(folder)
    recorded = [files for files in captures.attempts() if uplink in (None, files.uplink)]
    if not recorded:
        raise _nothing(captures, uplink)
    player = _Player(folder, config, captures, rows)
    # With as many threads for linear algebra as a run has: the last bit depends on it.
    with Workforce(workers=1):
        attempts = tuple(player.play(files) for files in recorded)
    seqs = {attempt.seq for attempt in attempts}
    missing = [
        (mechanism["uplink"], seq)
        for seq, mechanism in rows.authorised.items()
        if seq not in seqs and uplink in (None, mechanism["uplink"])
    ]
    return Replay(
        attempts=attempts,
        not_recorded=tuple(missing),
        privacy=_privacy(rows, attempts),
        recorded_privacy=_privacy(rows, ()),
        model=_same_model(folder, config, captures, attempts) if uplink is None else None,
    )


def _nothing(captures: CaptureFolder, uplink: int | None) -> RunFolderError:
    there = sorted({files.uplink for files in captures.attempts()})
    if uplink is not None and there:
        return RunFolderError(f"{captures.path} has no capture of uplink {uplink}: it has {', '.join(map(str, there))}")
    return RunFolderError(f"{captures.path} has no captures: record with `airdp run ... --record`")


@dataclass
class _Player:
    """Plays attempts one after the other, as the processes did that recorded them."""

    folder: RunFolder
    config: RunConfig
    captures: CaptureFolder
    rows: _Rows
    _session: str | None = None
    _count: int = 0
    _made: tuple[RadioUplink, ReplayRadio] | None = None
    _pending: list[Difference] = field(default_factory=list)

    def play(self, files: AttemptFiles) -> ReplayedAttempt:
        """One attempt."""
        *events, outcome = files.events()
        try:
            return self._play(files, events, outcome)
        except AirdpError:
            raise
        # All that is said comes from a file, which a stranger may have written: nearly anything may be raised.
        except Exception as error:
            raise RunFolderError(f"{files.journal} is damaged, or of another version of airdp: {error!r}") from error

    def _play(self, files: AttemptFiles, events: list[dict[str, Any]], outcome: dict[str, Any]) -> ReplayedAttempt:
        uplink, radio = self._uplink(outcome)
        # Nothing was received where the radio failed at once.
        name = outcome["recordings"].get(radio.name)
        if name is not None and Path(name).name != name:
            raise RunFolderError(f"{files.journal} names the recording '{name}', which is not in its folder")
        radio.load(() if name is None else self._segments(files.folder / name))
        found, self._pending = self._pending, []
        begin = events[0]
        found += self._remember(uplink.server, begin)
        conversation = RecordedConversation(
            events, uplink.cast.server, uplink.server, broken_off="released_sha256" not in outcome
        )
        replayed = self._attempt(uplink, conversation, begin, outcome)
        found += [*conversation.found, *replayed.found]
        return replace(replayed, found=tuple(found + list(self._sum_differences(files, outcome, replayed))))

    def _attempt(
        self, uplink: RadioUplink, conversation: RecordedConversation, begin: dict[str, Any], outcome: dict[str, Any]
    ) -> ReplayedAttempt:
        coordinator = replace(
            uplink.coordinator, link=conversation, stage=conversation, _offsets=dict(begin["known_offsets"])
        )
        seq = outcome.get("authorised_seq")
        said = RELEASED if "released_sha256" in outcome else NOT_SENT if seq is None else FAILED
        found: list[Difference] = []
        mechanism, values = None, None
        try:
            current = coordinator.plan(begin["uplink"], begin["attempt"])
            if seq is not None:
                found += _mechanism_differences(self.rows.authorised.get(seq), current.mechanism, "authorise")
                received = coordinator.carry(current)
                mechanism = coordinator.account(current, received)
                values = uplink.released(uplink.air.grid.to_coordinates(received.cells))
        except UnprotectedError as error:
            mechanism = error.mechanism
        except (OtherCourseError, EndOfConversationError):
            # The conversation has noted where the two part; from there on nothing can be compared.
            mechanism = None
        except AirdpError as error:
            if said == RELEASED:
                found.append(Difference("outcome", f"it was released, and fails now: {error}"))
        if mechanism is not None and seq is not None and seq in self.rows.accounted:
            found += _mechanism_differences(self.rows.accounted[seq], mechanism, "account")
        return ReplayedAttempt(begin["uplink"], begin["attempt"], seq, said, tuple(found), mechanism, values)

    def _remember(self, server: ServerNode, begin: dict[str, Any]) -> Iterator[Difference]:
        """Let the server know of the noise what it knew, which it must know by itself where no attempt is left out."""
        if begin["count"] == self._count + 1:
            yield from differences(begin["memory"], encode(server.listener.pool), "pool of silences")
        self._count = begin["count"]
        server.listener.pool = decode(begin["memory"])

    def _sum_differences(
        self, files: AttemptFiles, outcome: dict[str, Any], replayed: ReplayedAttempt
    ) -> Iterator[Difference]:
        if replayed.outcome != RELEASED:
            return
        kept = read_array(files.released)
        if values_digest(kept) != outcome["released_sha256"]:
            yield Difference("sum", f"{files.released.name} is not the sum that was released (sha256)")
        if replayed.values is None:
            yield Difference("sum", "it does not come out")
        elif not np.array_equal(kept, replayed.values):
            yield Difference("sum", array_difference(kept, replayed.values))

    def _uplink(self, outcome: dict[str, Any]) -> tuple[RadioUplink, ReplayRadio]:
        """The uplink of the process that recorded this: what a server remembers, it remembers for one process."""
        if self._made is None or outcome["session"] != self._session:
            self._session, self._count, self._made = outcome["session"], 0, self._make(outcome)
        return self._made

    def _make(self, outcome: dict[str, Any]) -> tuple[RadioUplink, ReplayRadio]:
        lab, sizes = load_lab(self.folder.path / LAB), self.rows.contents.header.sizes_array
        limits, capabilities = lab.limits, lab.traits.capabilities
        radios = {radio.name: ReplayRadio(radio.name, (), capabilities, limits) for radio in lab.radios}
        if outcome["opening"] is not None:
            radios[lab.ps.name].load(self._segments(self.captures.opening(outcome["opening"], lab.ps.name)))
        _, make = radio_uplink_on(self.config, lab, self._calibration(), sizes, outcome["coordinates"])
        time = _StillTime() if lab.traits.virtual_time else None
        return make(OpenLab(lab, radios, time=time)), radios[lab.ps.name]

    def _segments(self, base: Path) -> tuple[Segment, ...]:
        recording, intact = read_recording(base)
        if not intact:
            self._pending.append(Difference("samples", f"{base.name}.sigmf-data does not have its sha512"))
        return recording.segments

    def _calibration(self) -> CalibrationCheck | None:
        path = self.folder.path / CALIBRATION
        if not self.config.radio.calibration:
            return None
        try:
            return CalibrationCheck(parse_record(read_bounded(path), str(path)), str(path))
        except (OSError, DocumentError) as error:
            raise RunFolderError(f"{path} cannot be read: {error}") from error


class _StillTime:
    """Virtual time that nobody moves: all samples are there already."""

    def advance(self, sample: int) -> None:
        """Nothing has to be waited for."""


def _mechanism_differences(
    recorded: dict[str, Any] | None, replayed: RoundMechanism, quantity: str
) -> Iterator[Difference]:
    if recorded is None:
        yield Difference(quantity, "the ledger has no such row")
        return
    # Through JSON, as the ledger's: tuples are lists there.
    now = json.loads(json.dumps(replayed.to_json()))
    yield from differences({"is": "mechanism", **recorded}, {"is": "mechanism", **now}, quantity)


def _privacy(rows: _Rows, attempts: tuple[ReplayedAttempt, ...]) -> PrivacyStatement:
    now = {
        attempt.seq: attempt.mechanism
        for attempt in attempts
        if attempt.mechanism is not None and attempt.seq in rows.accounted
    }
    header = rows.contents.header
    mechanisms = [now.get(seq, kept) for seq, kept in zip(rows.authorised, rows.contents.mechanisms, strict=True)]
    return state_privacy(
        mechanisms,
        header.sizes_array,
        label=header.label,
        neighbours=header.neighbours,
        delta=header.delta,
        unaccounted=rows.contents.unaccounted,
        jammer=header.jammer,
    )


def _same_model(
    folder: RunFolder, config: RunConfig, captures: CaptureFolder, attempts: tuple[ReplayedAttempt, ...]
) -> bool | None:
    """The model's path from the sums that come out now, against the checkpoint; None where one is not there."""
    checkpoint, start = folder.load_checkpoint(), captures.path / START
    sums = {attempt.uplink: attempt.values for attempt in attempts if attempt.outcome == RELEASED}
    if checkpoint is None or not start.exists() or any(n not in sums for n in range(1, checkpoint.uplink + 1)):
        return None
    with code_of(folder.path):
        state, algorithm = ServerState(read_array(start)), make_algorithm(config)
    for uplink in range(1, checkpoint.uplink + 1):
        values = sums[uplink]
        if values is None:
            return False
        state = advance(algorithm, state, values, uplink)
    return bool(np.array_equal(state.model, checkpoint.model))
