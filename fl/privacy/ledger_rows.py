"""Rows of a ledger: how they are spelled and chained, and the one reader that verifies them while it goes through.

A row is a line of JSON without blanks, its keys sorted. Its hash is the SHA-256 of the line without `hash`, so a
verifier takes that member out of the bytes instead of writing the row again. (Rows of earlier versions were not sorted:
these are written again.) `prev` is the hash of the row before.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from fl.errors import LedgerError, PrivacyError
from fl.privacy.accountant import checked_delta
from fl.privacy.conditions import JammerTrust, View, rests_on
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.privacy.sensitivity import Label, Neighbours
from hardware.foundation.documents import DocumentError, open_regular

FORMAT = 2
GENESIS = "0" * 64
LONGEST_ROW_BYTES = 16 << 20
"""Of a million clients; a longer line is no row."""
_READABLE = (1, FORMAT)
_HASH = re.compile(rb'"hash":"([0-9a-f]{64})",')

_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Probability = Annotated[float, Field(ge=0, le=1)]


class DamagedError(LedgerError):
    """A ledger that is right until `offset`, where a line is not the next row. head, seq: of the row that should be."""

    def __init__(self, message: str, offset: int, head: str, seq: int) -> None:
        super().__init__(message)
        self.offset, self.head, self.seq = offset, head, seq


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
        if not self.sizes or min(self.sizes) < 1 or sum(self.sizes) >= 1 << 53:
            raise PrivacyError(f"sizes of the clients are {self.sizes}: expected at least one, each 1 or more")

    @property
    def sizes_array(self) -> NDArray[np.int64]:
        """`sizes` as int64 (K,)."""
        return np.asarray(self.sizes, dtype=np.int64)

    def to_json(self) -> dict[str, Any]:
        """The fields of an `open` row."""
        return {
            "format": FORMAT,
            "sizes": list(self.sizes),
            "delta": self.delta,
            "label": self.label.value,
            "neighbours": self.neighbours.value,
            "config_sha256": self.config_sha256,
            "view": self.view.value,
            "jammer": self.jammer.value,
            "delta_bounds": self.delta_bounds,
            "confidence": self.confidence,
            # In words, so that the file alone says what its numbers rest on; nothing reads it.
            "trust": list(rests_on(self.view, self.jammer)),
        }


@dataclass(frozen=True, slots=True)
class MechanismRow:
    """The `mechanism` of a row: the fields of a `RoundMechanism`, typed and in range, and not yet more than that."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    uplink: Annotated[int, Field(ge=1, lt=1 << 53)]
    received_gains: Annotated[list[_NotNegative], Field(min_length=1)]
    sigma: _NotNegative
    sigma_origin: SigmaOrigin
    record_bounded: bool
    clip_norm: _NotNegative
    alpha_u: _NotNegative
    alpha_cj: _NotNegative
    jammer_gain: _NotNegative
    noise_std_real: _NotNegative
    view: View = View.CELLS
    # Ledgers of format 1 do not say it: then there are none, or it is not known where something was measured.
    bounds: list[tuple[str, _Probability]] | None = field(default_factory=lambda: _UNSAID)
    rounding: _NotNegative = 0.0

    @property
    def known_bounds(self) -> tuple[tuple[str, float], ...] | None:
        """See `RoundMechanism.bounds`."""
        if self.bounds is _UNSAID:
            return None if self.sigma_origin is SigmaOrigin.MEASURED else ()
        return None if self.bounds is None else tuple(self.bounds)

    def mechanism(self) -> RoundMechanism:
        """As what it is."""
        return RoundMechanism(
            uplink=self.uplink,
            received_gains=tuple(self.received_gains),
            sigma=self.sigma,
            sigma_origin=self.sigma_origin,
            record_bounded=self.record_bounded,
            clip_norm=self.clip_norm,
            alpha_u=self.alpha_u,
            alpha_cj=self.alpha_cj,
            jammer_gain=self.jammer_gain,
            noise_std_real=self.noise_std_real,
            view=self.view,
            bounds=self.known_bounds,
            rounding=self.rounding,
        )


_UNSAID: list[tuple[str, float]] = []


@dataclass(frozen=True, slots=True)
class Row:
    """A row that was verified. What its kind does not need is not kept."""

    __pydantic_config__ = ConfigDict(strict=True, extra="ignore")

    seq: int
    kind: str
    prev: str
    hash: str
    mechanism: MechanismRow | None = None
    authorised_seq: int | None = None


# The adapter's own method asks for its options anew at each row.
_VALIDATOR = TypeAdapter(Row).validator


def _row_of(line: bytes) -> Row:
    """A line as a row, whatever its hash. Raises `ValidationError`."""
    row: Row = _VALIDATOR.validate_json(line)
    return row


def encode(row: Mapping[str, Any]) -> tuple[bytes, str]:
    """The line of a row, which has no `hash` yet, and the hash."""
    digest = hashlib.sha256(_spell(row)).hexdigest()
    return _spell({**row, "hash": digest}) + b"\n", digest


def _spell(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def is_intact(line: bytes) -> bool:
    """Whether a line, with its end, matches its own hash."""
    found = _HASH.search(line)
    if found is not None and line.endswith(b"\n"):
        digest = hashlib.sha256(line[: found.start()])
        digest.update(memoryview(line)[found.end() : -1])
        if digest.hexdigest().encode() == found[1]:
            return True
    return _is_intact_unsorted(line)


def _is_intact_unsorted(line: bytes) -> bool:
    """The same of a row whose keys are in another order."""
    try:
        row = json.loads(line)
        # Compared with its own encoding too: JSON has many spellings of a value (1e-05, 1E-05), a ledger one.
        if not isinstance(row, dict) or json.dumps(row, separators=(",", ":")).encode() + b"\n" != line:
            return False
        given = row.pop("hash", None)
        return bool(given == hashlib.sha256(_spell(row)).hexdigest())
    except (ValueError, RecursionError):
        return False


def follows(line: bytes, head: str, seq: int) -> bool:
    """Whether a line is a whole row that comes after the row `seq` - 1 with the hash `head`."""
    if line.count(b"\n") != 1 or not is_intact(line):
        return False
    try:
        row = _row_of(line)
    except ValidationError:
        return False
    return row.prev == head and row.seq == seq


def seq_of(line: bytes) -> int | None:
    """Number of a row by itself; None where the line is none."""
    try:
        return _row_of(line).seq if line.count(b"\n") == 1 and is_intact(line) else None
    except ValidationError:
        return None


def checked_row(text: str) -> Row:
    """A single row, as somebody else has sent it: it matches its own hash, and nothing more is known of it."""
    line = text.encode("utf-8", "replace")
    if len(line) > LONGEST_ROW_BYTES or line.count(b"\n") != 1 or not is_intact(line):
        raise LedgerError("not a row of a ledger: it does not match its hash")
    try:
        return _row_of(line)
    except ValidationError as error:
        raise LedgerError("not a row of a ledger: it cannot be read") from error


class Place(NamedTuple):
    """Where a row is: its offset, the hash of the row before it, its number."""

    offset: int
    head: str
    seq: int


BEGINNING = Place(0, GENESIS, 0)


def verified_rows(path: Path, start: Place = BEGINNING) -> Iterator[tuple[bytes, Row]]:
    """Each row of the ledger with its line, verified; one after the other, so that memory does not grow with them.

    start: where to begin, when what comes before it is known.

    Raises `DamagedError` at the first line that is not the next row, and `LedgerError` where one cannot be read.
    """
    try:
        with open_regular(path) as stream:
            stream.seek(start.offset)
            yield from _verified_lines(path, iter(lambda: stream.readline(LONGEST_ROW_BYTES), b""), start)
    except OSError as error:
        raise LedgerError(f"cannot read ledger {path}: {error.strerror}; give the folder of a run") from error
    except DocumentError as error:
        raise LedgerError(f"cannot read ledger {path}: {error}; give the folder of a run") from error


def _verified_lines(path: Path, lines: Iterator[bytes], start: Place) -> Iterator[tuple[bytes, Row]]:
    offset, head, seq = start
    for line in lines:
        fault = _fault(line)
        if fault is not None:
            raise DamagedError(f"ledger {path} line {seq + 1} {fault}", offset, head, seq)
        row = parse_row(path, line)
        if row.prev != head or row.seq != seq:
            raise DamagedError(
                f"ledger {path} line {seq + 1} does not follow the line before it: a row was removed, added or moved",
                offset,
                head,
                seq,
            )
        yield line, row
        offset, head, seq = offset + len(line), row.hash, seq + 1
    if not seq:
        raise DamagedError(
            f"ledger {path} is empty: expected an 'open' row; the privacy of this run is unknown", 0, GENESIS, 0
        )


def _fault(line: bytes) -> str | None:
    if not line.endswith(b"\n"):
        return (
            "is truncated: the last row has no end; "
            "if its run was killed, `airdp run ... --resume` completes it, else the privacy of this run is unknown"
        )
    return None if is_intact(line) else "does not match its hash: the file was edited or damaged"


def parse_row(path: Path, line: bytes) -> Row:
    """A line that is intact."""
    try:
        return _row_of(line)
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
        raise LedgerError(f"ledger {path} holds a row that cannot be read: {said}") from error


def header_of(path: Path, line: bytes) -> LedgerHeader:
    """What the first line, which was verified, says."""
    try:
        first = json.loads(line)
        if first["kind"] != "open" or first["format"] not in _READABLE:
            raise LedgerError(f"ledger {path} does not start with an 'open' row of format {FORMAT} or earlier")
        told = first["format"] == FORMAT
        return LedgerHeader(
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
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, PrivacyError) as error:
        raise LedgerError(f"ledger {path} holds a row that cannot be read: {error}") from error


def _number_or_none(value: Any) -> float | None:
    return None if value is None else float(value)
