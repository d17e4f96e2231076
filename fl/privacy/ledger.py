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
middle of an append leaves a torn last line whose full text is in `.next`; `Ledger.open` finishes exactly that line. A
row that was announced in `.next` and never appended is appended then, and so charged.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import LedgerError, PrivacyError
from fl.privacy.accountant import checked_delta
from fl.privacy.conditions import JammerTrust, View
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.sensitivity import Label, Neighbours
from hardware.foundation.durable import append_durably, sync_folder, write_atomically

FORMAT = 2
_READABLE = (1, FORMAT)
_GENESIS = "0" * 64


@dataclass(frozen=True)
class LedgerHeader:
    """What a ledger is about. sizes: samples of each client (public). config_sha256: digest of the resolved config.

    delta: in total. delta_bounds: what of it is set aside for measured bounds that may fail, over all planned uplinks.
    confidence: of each such bound, None where there are none. Both are None in ledgers of format 1, which do not say.
    view: against which adversary the run's uplinks hold. jammer: who it is.
    """

    sizes: tuple[int, ...]
    delta: float
    label: Label
    neighbours: Neighbours
    config_sha256: str
    view: View = View.CELLS
    jammer: JammerTrust = JammerTrust.UNKNOWN
    delta_bounds: float | None = None
    confidence: float | None = None

    def __post_init__(self) -> None:
        """Refuse sizes and a delta for which no loss could be computed."""
        checked_delta(self.delta)
        if not self.sizes or min(self.sizes) < 1:
            raise PrivacyError(f"sizes of the clients are {self.sizes}: expected at least one, each 1 or more")

    @property
    def sizes_array(self) -> NDArray[np.int64]:
        """`sizes` as int64 (K,)."""
        return np.asarray(self.sizes, dtype=np.int64)


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


def _digest(row: Mapping[str, Any]) -> str:
    body = {key: value for key, value in row.items() if key != "hash"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()).hexdigest()


def _encode(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def read_ledger(path: Path) -> LedgerContents:
    """Verify the ledger at `path` and return what it says. Reads only; `LedgerError` names the first bad line."""
    return _interpret(path, _verified_rows(path, _read_bytes(path)))


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LedgerError(f"cannot read ledger {path}: {error.strerror}; give the folder of a run") from error


def _verified_rows(path: Path, content: bytes) -> list[dict[str, Any]]:
    if not content:
        raise LedgerError(f"ledger {path} is empty: expected an 'open' row; the privacy of this run is unknown")
    lines = content.split(b"\n")
    if lines.pop():
        raise LedgerError(
            f"ledger {path} line {len(lines) + 1} is truncated: the last row has no end; "
            "if its run was killed, `airdp run ... --resume` completes it, else the privacy of this run is unknown"
        )
    rows: list[dict[str, Any]] = []
    previous = _GENESIS
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            # Compared with its own encoding too: JSON has many spellings of a value (1e-05, 1E-05), a ledger one.
            intact = isinstance(row, dict) and row.get("hash") == _digest(row) and _encode(row) == line + b"\n"
        except (ValueError, RecursionError):
            intact = False
        if not intact:
            raise LedgerError(f"ledger {path} line {number} does not match its hash: the file was edited or damaged")
        if row.get("prev") != previous or row.get("seq") != number - 1:
            raise LedgerError(
                f"ledger {path} line {number} does not follow the line before it: a row was removed, added or moved"
            )
        previous = row["hash"]
        rows.append(row)
    return rows


def _interpret(path: Path, rows: list[dict[str, Any]]) -> LedgerContents:
    try:
        first = rows[0]
        if first["kind"] != "open" or first["format"] not in _READABLE:
            raise LedgerError(f"ledger {path} does not start with an 'open' row of format {FORMAT} or earlier")
        told = first["format"] == FORMAT
        header = LedgerHeader(
            sizes=tuple(int(size) for size in first["sizes"]),
            delta=float(first["delta"]),
            label=Label(first["label"]),
            neighbours=Neighbours(first["neighbours"]),
            config_sha256=str(first["config_sha256"]),
            view=View(first["view"]) if told else View.CELLS,
            jammer=JammerTrust(first["jammer"]) if told else JammerTrust.UNKNOWN,
            delta_bounds=_number_or_none(first["delta_bounds"]) if told else None,
            confidence=_number_or_none(first["confidence"]) if told else None,
        )
        spent: dict[int, RoundMechanism] = {}
        accounted: set[int] = set()
        for row in rows[1:]:
            if row["kind"] == "authorise":
                spent[row["seq"]] = RoundMechanism.from_json(row["mechanism"]).without_jammer()
            elif row["kind"] == "account":
                if row["authorised_seq"] not in spent or row["authorised_seq"] in accounted:
                    raise LedgerError(
                        f"ledger {path} line {row['seq'] + 1} accounts for an uplink that was not authorised"
                    )
                spent[row["authorised_seq"]] = RoundMechanism.from_json(row["mechanism"])
                accounted.add(row["authorised_seq"])
            elif row["kind"] != "resume":
                raise LedgerError(f"ledger {path} line {row['seq'] + 1} is of unknown kind '{row['kind']}'")
    except (KeyError, TypeError, ValueError, PrivacyError) as error:
        raise LedgerError(f"ledger {path} holds a row that cannot be read: {error}") from error
    return LedgerContents(
        header=header,
        mechanisms=tuple(spent.values()),
        proven=tuple(seq in accounted for seq in spent),
        resumes=sum(row["kind"] == "resume" for row in rows),
        head=rows[-1]["hash"],
        hashes=frozenset(row["hash"] for row in rows),
    )


def _number_or_none(value: Any) -> float | None:
    return None if value is None else float(value)


class Ledger:
    """The writing side. Made by `create` or `open`; every method returns only when its row is on disk.

    mechanisms: what each transmission counts as now, by the number of its `authorise` row.
    """

    def __init__(self, path: Path, rows: list[dict[str, Any]]) -> None:
        """Use `create` or `open`."""
        self._path = path
        self._next_path = path.with_name(path.name + ".next")
        self._seq = len(rows)
        self.head: str = rows[-1]["hash"] if rows else _GENESIS
        self.mechanisms: dict[int, RoundMechanism] = {}
        self._accounted: set[int] = set()
        self._torn = False

    @classmethod
    def create(cls, path: Path, header: LedgerHeader) -> "Ledger":
        """Start a ledger at `path`, which must not exist."""
        if path.exists():
            raise LedgerError(f"ledger {path} exists already: resume its run or choose another folder")
        ledger = cls(path, [])
        ledger._append(
            "open",
            {
                "format": FORMAT,
                "sizes": list(header.sizes),
                "delta": header.delta,
                "label": header.label.value,
                "neighbours": header.neighbours.value,
                "config_sha256": header.config_sha256,
                "view": header.view.value,
                "jammer": header.jammer.value,
                "delta_bounds": header.delta_bounds,
                "confidence": header.confidence,
            },
        )
        return ledger

    @classmethod
    def open(cls, path: Path, *, resumed: bool = True) -> "Ledger":
        """Take up the ledger at `path` after verifying it and finishing a row that a crash has torn or left out.

        resumed: note in it that a run goes on.
        """
        content = _finish_pending(path, _read_bytes(path))
        rows = _verified_rows(path, content)
        contents = _interpret(path, rows)
        ledger = cls(path, rows)
        authorised = [row["seq"] for row in rows if row["kind"] == "authorise"]
        ledger.mechanisms = dict(zip(authorised, contents.mechanisms, strict=True))
        ledger._accounted = {row["authorised_seq"] for row in rows if row["kind"] == "account"}
        if resumed:
            ledger._append("resume", {"authorised": contents.authorised, "accounted": contents.accounted})
        return ledger

    def authorise(self, mechanism: RoundMechanism) -> int:
        """Charge an uplink that is about to be sent. Returns the row number, for `account`.

        Until then it counts without the jammer; see the module.
        """
        seq = self._append("authorise", {"mechanism": mechanism.to_json()})
        self.mechanisms[seq] = mechanism.without_jammer()
        return seq

    def account(self, authorised_seq: int, mechanism: RoundMechanism) -> None:
        """Replace what row `authorised_seq` counts as by what the uplink really was."""
        if authorised_seq not in self.mechanisms:
            raise LedgerError(
                f"row {authorised_seq} authorised nothing: an uplink is accounted for after it was authorised"
            )
        if authorised_seq in self._accounted:
            raise LedgerError(f"row {authorised_seq} is accounted for already: a second account would hide the first")
        planned = self.mechanisms[authorised_seq]
        if (mechanism.uplink, len(mechanism.received_gains)) != (planned.uplink, len(planned.received_gains)):
            raise LedgerError(
                f"row {authorised_seq} authorised uplink {planned.uplink}: another one cannot account for it"
            )
        self._append("account", {"authorised_seq": authorised_seq, "mechanism": mechanism.to_json()})
        self._accounted.add(authorised_seq)
        self.mechanisms[authorised_seq] = mechanism

    @property
    def unaccounted(self) -> int:
        """See `LedgerContents.unaccounted`."""
        return len(self.mechanisms) - len(self._accounted)

    def _append(self, kind: str, fields: Mapping[str, Any]) -> int:
        seq = self._seq
        row = {
            "seq": seq,
            "kind": kind,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            **fields,
            "prev": self.head,
        }
        row["hash"] = _digest(row)
        line = _encode(row)
        if self._torn:
            raise LedgerError(f"ledger {self._path} could not be written before: open it again, which finishes its row")
        try:
            write_atomically(self._next_path, line)
            self._torn = True
            append_durably(self._path, line)
            if seq == 0:
                sync_folder(self._path.parent)
        except OSError as error:
            raise LedgerError(f"cannot write ledger {self._path}: {error.strerror}; mend that and resume") from error
        self._torn = False
        self._seq, self.head = seq + 1, row["hash"]
        return seq


def _finish_pending(path: Path, content: bytes) -> bytes:
    """Finish what `.next` announces: the rest of a torn last line, or a row that was announced and is not there.

    The second is a crash before the append, or a ledger that was cut: charging it is right in both cases. Where `.next`
    neither is the last row nor follows it, rows are missing: `LedgerError`. Nothing is written unless all of it
        verifies.
    """
    next_path = path.with_name(path.name + ".next")
    if not next_path.exists():
        return content
    announced = next_path.read_bytes()
    torn = content.rpartition(b"\n")[2]
    if content.endswith(announced) and not torn:
        return content
    if not (announced.endswith(b"\n") and announced.count(b"\n") == 1 and announced.startswith(torn)):
        if torn or not content:
            return content
        _interpret(path, _verified_rows(path, content))
        raise LedgerError(
            f"ledger {path} and {next_path.name} beside it do not belong together: one of them was replaced"
        )
    missing = announced[len(torn) :]
    try:
        _verified_rows(path, content + missing)
    except LedgerError as error:
        if torn:
            raise
        _interpret(path, _verified_rows(path, content))
        raise LedgerError(f"ledger {path} lacks rows that {next_path.name} beside it has seen: it was cut") from error
    append_durably(path, missing)
    return content + missing
