"""The privacy ledger: append-only JSON lines, written ahead of transmission, durable, chained by hash.

Rows, in the order in which a run writes them:

* `open`       once: what the run is (sizes of the clients, delta and how it is split, label, neighbours, adversary's
  view, who jams, digest of its config)
* `authorise`  before an uplink's first sample leaves: the mechanism as planned
* `account`    after it: the mechanism as it was (measured, on a radio), which replaces that of the `authorise` row
* `resume`     when a run is taken up again

A transmission cannot be called back, so an `authorise` row without an `account` row counts too, and an uplink that is
sent again is charged again. Such a row counts *without the jammer*: a crash, a full disk or a radio that failed has
kept anybody from proving that the noise was on the air for as long as clients were. `account` is the proof.

Each row holds the hash of the row before it and its own: an edited, reordered or missing row is noticed. Rows cut off
cleanly at the end cannot be noticed from the file alone: `.next` beside it and the run's checkpoint remember the last
row they saw. The chain has no key: it shows damage and careless edits, not a forger's work.

Durability: a row is first written, whole and fsynced, to `<ledger>.next`, then appended and fsynced. A crash in the
middle of an append leaves a torn last line whose full text is in `.next`; a power cut may also leave zeros in place of
any part of it. `Ledger.open` finishes exactly that line. A row that was announced in `.next` and never appended is
appended then, and so charged.

Beside a ledger of more than 20,000 rows lies `<ledger>.sums`, with which opening it takes a tenth of the time
(`fl.privacy.ledger_mark`); without it all rows are read.

Whoever writes keeps the file open: one that is deleted, replaced or cut meanwhile takes no more rows, and without a row
nothing is sent.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fl.errors import LedgerError
from fl.privacy import ledger_mark
from fl.privacy.ledger_mark import Prefix
from fl.privacy.ledger_rows import (
    BEGINNING,
    GENESIS,
    LONGEST_ROW_BYTES,
    DamagedError,
    LedgerHeader,
    MechanismRow,
    Place,
    Row,
    encode,
    follows,
    header_of,
    parse_row,
    seq_of,
    verified_rows,
)
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.tally import Tally
from hardware.foundation.documents import DocumentError, open_regular, read_bounded
from hardware.foundation.durable import AppendOnlyFile, overwrite_durably, sync_folder, write_atomically
from hardware.foundation.file_errors import described

__all__ = ["Ledger", "LedgerContents", "LedgerHeader", "read_ledger"]

_KINDS = {"open": 0, "authorise": 1, "account": 2, "resume": 3}
_AUTHORISE = _KINDS["authorise"]


@dataclass(frozen=True)
class LedgerContents:
    """A verified ledger. `mechanisms`: one per authorised transmission, as accounted, else without the jammer.

    proven: of each of them whether there is an account.
    """

    header: LedgerHeader
    mechanisms: tuple[RoundMechanism, ...]
    proven: tuple[bool, ...]
    resumes: int
    head: str
    hashes: frozenset[str]

    @property
    def authorised(self) -> int:
        """Transmissions that were charged."""
        return len(self.proven)

    @property
    def accounted(self) -> int:
        """Those of them of which it is known what they were."""
        return sum(self.proven)

    @property
    def unaccounted(self) -> int:
        """Those that count without the jammer, because no account says what they were."""
        return self.authorised - self.accounted


class _Reading:
    """What the rows read so far come to. kinds: of each row, as numbers of `_KINDS`.

    pending: by row, uplinks that are authorised and not accounted for, as planned.
    """

    def __init__(self, path: Path) -> None:
        self._path, self.kinds, self.head, self.first_hash = path, bytearray(), GENESIS, ""
        self.pending: dict[int, MechanismRow] = {}

    def rows(self) -> Iterator[Row]:
        """Go through the ledger. The first row has made the header when it comes."""
        for line, row in verified_rows(self._path):
            self.take(line, row)
            yield row

    def take(self, line: bytes, row: Row) -> None:
        """Check what a verified row says, and that it may stand where it stands."""
        if not self.kinds:
            self.header = header_of(self._path, line)
        elif not _KINDS.get(row.kind):
            raise LedgerError(f"ledger {self._path} line {row.seq + 1} is of unknown kind '{row.kind}'")
        if row.kind in ("authorise", "account"):
            if row.mechanism is None:
                raise LedgerError(f"ledger {self._path} line {row.seq + 1} cannot be read: it has no mechanism")
            if len(row.mechanism.received_gains) != len(self.header.sizes):
                raise LedgerError(
                    f"ledger {self._path} line {row.seq + 1} cannot be read: it has "
                    f"{len(row.mechanism.received_gains)} gains for {len(self.header.sizes)} clients"
                )
            if row.kind == "authorise":
                self.pending[row.seq] = row.mechanism
            elif self.pending.pop(-1 if row.authorised_seq is None else row.authorised_seq, None) is None:
                raise LedgerError(
                    f"ledger {self._path} line {row.seq + 1} accounts for an uplink that was not authorised"
                )
        self.kinds.append(_KINDS[row.kind])
        self.head, self.first_hash = row.hash, self.first_hash or row.hash

    @property
    def authorised(self) -> int:
        return self.kinds.count(_AUTHORISE)


def read_ledger(path: Path) -> LedgerContents:
    """Verify the ledger at `path` and return what it says. Reads only; `LedgerError` names the first bad line."""
    reading, hashes = _Reading(path), set()
    accounted: dict[int, RoundMechanism] = {}
    for row in reading.rows():
        hashes.add(row.hash)
        if row.kind == "account" and row.mechanism is not None and row.authorised_seq is not None:
            accounted[row.authorised_seq] = row.mechanism.mechanism()
    pending = {seq: row.mechanism().without_jammer() for seq, row in reading.pending.items()}
    spent = dict(sorted({**accounted, **pending}.items()))
    return LedgerContents(
        header=reading.header,
        mechanisms=tuple(spent.values()),
        proven=tuple(seq in accounted for seq in spent),
        resumes=reading.kinds.count(_KINDS["resume"]),
        head=reading.head,
        hashes=frozenset(hashes),
    )


class Ledger:
    """The writing side. Made by `create` or `open`; every method returns only when its row is on disk.

    What it holds in memory, and what an append costs, does not grow with its rows (but for a byte each).
    first_hash: of the first row, by which the ledger is known. last_line: the row that was written last, as on disk.
    """

    def __init__(self, path: Path, reading: _Reading, tally: Tally, prefix: Prefix, marked_rows: int = 0) -> None:
        """Use `create` or `open`. prefix: all bytes of the ledger; marked_rows: those before its mark."""
        self._path, self._next_path = path, _next_to(path)
        self._kinds, self._tally = reading.kinds, tally
        self._prefix, self._marked_rows = prefix, marked_rows
        self.head: str = reading.head
        self.first_hash: str = reading.first_hash
        self.last_line = ""
        self._torn = False
        try:
            self._file = AppendOnlyFile(path)
        except OSError as error:
            raise LedgerError(f"cannot open ledger {path}: {error.strerror}; see to its folder and resume") from error

    @classmethod
    def create(cls, path: Path, header: LedgerHeader) -> "Ledger":
        """Start a ledger at `path`, which must not exist."""
        reading = _Reading(path)
        reading.header = header
        try:
            path.open("xb").close()
        except FileExistsError as error:
            raise LedgerError(f"ledger {path} exists already: resume its run or choose another folder") from error
        except OSError as error:
            raise LedgerError(f"cannot write ledger {path}: {error.strerror}; see to its folder") from error
        ledger = cls(path, reading, Tally(header), Prefix())
        ledger._append("open", header.to_json())
        return ledger

    @classmethod
    def open(
        cls, path: Path, *, resumed: bool = True, config_sha256: str | None = None, seen: str | None = None
    ) -> "Ledger":
        """Take up the ledger at `path` after verifying it and finishing a row that a crash has torn or left out.

        resumed: note in it that a run goes on. config_sha256: of the run that it must be of. seen: hash of a row that
        it must have. Where anything is wrong `LedgerError` says so, and nothing was written.
        """
        taken = _Taken(path, config_sha256, seen)
        pending = taken.read(_announced(path))
        reading, tally = taken.reading, taken.tally
        if not taken.found:
            raise LedgerError(f"ledger {path} lacks rows that the checkpoint has seen: it was cut or replaced")
        tally.settle()
        tally.pending = {seq: row.mechanism().without_jammer() for seq, row in reading.pending.items()}
        if pending is not None:
            _write(path, lambda: overwrite_durably(path, pending.offset, pending.line))
        ledger = cls(path, reading, tally, taken.prefix, taken.marked_rows)
        if resumed:
            authorised = reading.authorised
            ledger._append("resume", {"authorised": authorised, "accounted": authorised - len(reading.pending)})
        return ledger

    def authorise(self, mechanism: RoundMechanism) -> int:
        """Charge an uplink that is about to be sent. Returns the row number, for `account`.

        Until then it counts without the jammer; see the module.
        """
        seq = self._append("authorise", {"mechanism": mechanism.to_json()})
        self._tally.pending[seq] = mechanism.without_jammer()
        return seq

    def account(self, authorised_seq: int, mechanism: RoundMechanism) -> None:
        """Replace what row `authorised_seq` counts as by what the uplink really was."""
        planned = self._tally.pending.get(authorised_seq)
        if planned is None:
            known = 0 <= authorised_seq < len(self._kinds) and self._kinds[authorised_seq] == _AUTHORISE
            raise LedgerError(
                f"row {authorised_seq} is accounted for already: a second account would hide the first"
                if known
                else f"row {authorised_seq} authorised nothing: an uplink is accounted for after it was authorised"
            )
        if (mechanism.uplink, len(mechanism.received_gains)) != (planned.uplink, len(planned.received_gains)):
            raise LedgerError(
                f"row {authorised_seq} authorised uplink {planned.uplink}: another one cannot account for it"
            )
        self._append("account", {"authorised_seq": authorised_seq, "mechanism": mechanism.to_json()})
        del self._tally.pending[authorised_seq]
        self._tally.account(mechanism)

    @property
    def mechanisms(self) -> Mapping[int, RoundMechanism]:
        """What each transmission counts as now, by the number of its `authorise` row: read from the file."""
        contents = read_ledger(self._path)
        authorised = (seq for seq, kind in enumerate(self._kinds) if kind == _AUTHORISE)
        return MappingProxyType(dict(zip(authorised, contents.mechanisms, strict=True)))

    @property
    def losses(self) -> NDArray[np.float64]:
        """S of each client under the header's label and neighbours, shape (K,)."""
        return self._tally.losses

    @property
    def bounds_delta(self) -> float:
        """Probability that any known bound of any uplink fails, at most."""
        return self._tally.bounds_delta

    @property
    def authorised(self) -> int:
        """See `LedgerContents.authorised`."""
        return self._kinds.count(_AUTHORISE)

    @property
    def unaccounted(self) -> int:
        """See `LedgerContents.unaccounted`."""
        return len(self._tally.pending)

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, kind: str, fields: Mapping[str, Any]) -> int:
        seq = len(self._kinds)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line, digest = encode({"seq": seq, "kind": kind, "time": now, **fields, "prev": self.head})
        if self._torn:
            raise LedgerError(f"ledger {self._path} could not be written before: open it again, which finishes its row")
        trouble = self._file.trouble()
        if trouble:
            raise LedgerError(
                f"ledger {self._path} {trouble}; nothing more is sent, because what was sent could no longer be told: "
                "restore the file as it was and resume, or count the privacy of this run as lost"
            )
        self._mark_where_due()
        _write(self._path, lambda: write_atomically(self._next_path, line))
        self._torn = True
        _write(self._path, lambda: self._file.append(line))
        if seq == 0:
            _write(self._path, lambda: sync_folder(self._path.parent))
        self._torn = False
        self._kinds.append(_KINDS[kind])
        self._prefix.add(line)
        self.head = digest
        self.first_hash, self.last_line = self.first_hash or digest, line.decode()
        return seq

    def _mark_where_due(self) -> None:
        """Note what all rows come to, before the next is appended."""
        if len(self._kinds) - self._marked_rows < ledger_mark.EVERY_ROWS:
            return
        self._marked_rows = len(self._kinds)
        ledger_mark.write_mark(
            self._path,
            self._prefix,
            self.head,
            self.first_hash,
            bytes(self._kinds),
            self._tally.sums,
            self._tally.pending,
        )


def _write(path: Path, write: Callable[[], None]) -> None:
    try:
        write()
    except OSError as error:
        raise LedgerError(f"cannot write ledger {path}: {described(error)}; then resume") from error


def _next_to(path: Path) -> Path:
    return path.with_name(path.name + ".next")


@dataclass(frozen=True)
class _Pending:
    """A row that `.next` announces and the ledger lacks, or has torn from `offset` on."""

    offset: int
    line: bytes


def _announced(path: Path) -> bytes:
    """What `.next` holds; nothing where there is none."""
    next_path = _next_to(path)
    try:
        return read_bounded(next_path) if next_path.stat().st_size <= LONGEST_ROW_BYTES else b""
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise LedgerError(f"cannot read {next_path}: {error.strerror}; see to its folder") from error
    except DocumentError as error:
        raise LedgerError(f"cannot read {next_path}: {error}; see to its folder") from error


class _Taken:
    """A ledger that is taken up: read once, with the row that `.next` announces where that is not there whole.

    found: whether the row with the hash `seen` is among them.
    """

    def __init__(self, path: Path, config_sha256: str | None, seen: str | None) -> None:
        self._path, self._config_sha256, self._seen, self.found = path, config_sha256, seen, seen is None
        self.reading = _Reading(path)
        self.tally: Tally
        self.prefix, self.marked_rows = Prefix(), 0
        self._last = b""

    def read(self, announced: bytes) -> _Pending | None:
        """What is to be finished: the torn last line, or a row that is not there at all.

        The second is a crash before the append, or a ledger that was cut: charging it is right in both cases. Where
        `.next` neither is the last row nor follows it, rows are missing: `LedgerError`.
        """
        try:
            for line, row in verified_rows(self._path, self._beginning()):
                self._take(line, row)
        except DamagedError as error:
            torn = follows(announced, error.head, error.seq) and _is_torn(self._path, error.offset, announced)
            if not torn:
                raise
        else:
            if announced in (self._last, b""):
                return None
            self._require_next(announced)
        pending = _Pending(self.prefix.size, announced)
        self._take(announced, parse_row(self._path, announced))
        return pending

    def _take(self, line: bytes, row: Row) -> None:
        self.reading.take(line, row)
        if row.kind == "open":
            self._begin_tally()
        elif row.kind == "account" and row.mechanism is not None:
            self.tally.account_row(row.mechanism)
        self.found = self.found or row.hash == self._seen
        self._last = line
        self.prefix.add(line)

    def _begin_tally(self) -> None:
        if self._config_sha256 not in (None, self.reading.header.config_sha256):
            raise LedgerError(f"ledger {self._path} belongs to a run with another config")
        self.tally = Tally(self.reading.header)

    def _beginning(self) -> Place:
        """Where the first row is that must be read: behind the mark, where there is a good one."""
        known = ledger_mark.verified_beginning(self._path, self._seen)
        if known is None:
            return BEGINNING
        mark, reading = known.mark, self.reading
        reading.header = known.header
        self._begin_tally()
        self.tally.begin_with(mark.sums)
        reading.kinds, reading.head, reading.first_hash = bytearray(mark.kinds), mark.head, mark.first_hash
        reading.pending = dict(mark.pending)
        self.prefix, self.marked_rows, self.found = known.prefix, len(mark.kinds), known.found
        return Place(mark.size, mark.head, len(mark.kinds))

    def _require_next(self, announced: bytes) -> None:
        path, name, rows = self._path, _next_to(self._path).name, len(self.reading.kinds)
        if follows(announced, self.reading.head, rows):
            return
        number = seq_of(announced)
        if number is not None and number >= rows:
            raise LedgerError(f"ledger {path} lacks rows that {name} beside it has seen: it was cut")
        raise LedgerError(f"ledger {path} and {name} beside it do not belong together: one of them was replaced")


def _is_torn(path: Path, offset: int, line: bytes) -> bool:
    """Whether the file holds from `offset` on nothing but a part of `line`, with zeros where the disk had no time."""
    with open_regular(path) as stream:
        stream.seek(offset)
        tail = stream.read(len(line) + 1)
    return len(tail) <= len(line) and all(found in (0, meant) for found, meant in zip(tail, line, strict=False))
