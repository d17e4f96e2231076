"""How far a long ledger was verified, and what it came to until there: a shortcut beside it, `<ledger>.sums`.

A reader that finds the same bytes before the mark, by their SHA-256, need not take their rows apart again: 300 MB are
hashed in a fifth of a second and parsed in three. Where the mark is missing, damaged, or of other bytes, everything is
read: then the rows say what is wrong. Like the chain it has no key, and shows damage and careless edits.

It is written when so many rows have come since the last one, and never rests on itself alone: what it says was computed
from rows that this program has written or verified. Nothing is lost with it.
"""

import base64
import hashlib
import json
import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fl.errors import LedgerError
from fl.privacy.ledger_rows import LONGEST_ROW_BYTES, LedgerHeader, MechanismRow, encode, header_of, is_intact
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.tally import Sums
from hardware.foundation.documents import DocumentError, open_regular, read_bounded
from hardware.foundation.durable import write_atomically

EVERY_ROWS = 20_000
_FORMAT = 1
_CHUNK_BYTES = 1 << 20
_MOST_ROWS = 1 << 28
_MECHANISM = TypeAdapter(MechanismRow).validator
_LOG = logging.getLogger("airdp")


class Prefix:
    """The bytes of a ledger until now, as their hash. size: how many."""

    def __init__(self) -> None:
        self._hash, self.size = hashlib.sha256(), 0

    def add(self, content: bytes) -> None:
        """These come next."""
        self._hash.update(content)
        self.size += len(content)

    @property
    def sha256(self) -> str:
        """Of all of them."""
        return self._hash.hexdigest()


@dataclass(frozen=True)
class Mark:
    """size, sha256: of the bytes before it. head, first_hash: of the last row there and of the first. kinds: of each
    row. sums: of its accounts. pending: by row, uplinks without one."""

    size: int
    sha256: str
    head: str
    first_hash: str
    kinds: bytes
    sums: Sums
    pending: Mapping[int, MechanismRow]


@dataclass(frozen=True)
class Verified:
    """A ledger that begins as its mark says. found: whether the row that was asked for is before the mark."""

    mark: Mark
    header: LedgerHeader
    prefix: Prefix
    found: bool


def write_mark(
    path: Path,
    prefix: Prefix,
    head: str,
    first_hash: str,
    kinds: bytes,
    sums: Sums,
    pending: Mapping[int, RoundMechanism],
) -> None:
    """Of the ledger at `path` as it is. Where that does not work there is none: it is read whole then."""
    fields = {
        "format": _FORMAT,
        "size": prefix.size,
        "sha256": prefix.sha256,
        "head": head,
        "first_hash": first_hash,
        "kinds": base64.b64encode(zlib.compress(bytes(kinds))).decode(),
        "losses": [loss.hex() for loss in sums.losses],
        "bounds": [part.hex() for part in sums.bounds],
        "pending": {str(seq): mechanism.to_json() for seq, mechanism in pending.items()},
    }
    try:
        write_atomically(beside(path), encode(fields)[0])
    except OSError as error:
        _LOG.warning("%s was not written (%s): opening the ledger takes longer", beside(path), error.strerror)


def verified_beginning(path: Path, seen: str | None) -> Verified | None:
    """What the mark beside the ledger at `path` says, where the ledger begins with just those bytes; else None.

    seen: hash of a row that is looked for.
    """
    mark = _read(path)
    if mark is None:
        return None
    prefix, found, wanted = Prefix(), seen is None, f'"hash":"{seen}"'.encode()
    try:
        with open_regular(path) as stream:
            first = stream.readline(LONGEST_ROW_BYTES)
            stream.seek(0)
            before = b""
            while prefix.size < mark.size:
                content = stream.read(min(_CHUNK_BYTES, mark.size - prefix.size))
                if not content:
                    return None
                found = found or wanted in before + content
                before = content[-len(wanted) :]
                prefix.add(content)
            # A ledger that ends at its mark is read whole: its last row is compared with what was announced.
            if prefix.sha256 != mark.sha256 or not stream.read(1):
                return None
        header = header_of(path, first)
        return Verified(mark, header, prefix, found) if _fits(mark, header) else None
    except (OSError, DocumentError, LedgerError):
        # Whatever it is, reading all of it meets it again and says it.
        return None


def _fits(mark: Mark, header: LedgerHeader) -> bool:
    """Whether a mark can be one of a ledger with so many clients."""
    gains = (len(planned.received_gains) for planned in mark.pending.values())
    return (
        0 < len(mark.kinds) < _MOST_ROWS
        and len(mark.sums.bounds) == 2
        and {len(mark.sums.losses), *gains} == {len(header.sizes)}
    )


def beside(path: Path) -> Path:
    """Where the mark of a ledger is."""
    return path.with_name(path.name + ".sums")


def _read(path: Path) -> Mark | None:
    try:
        content = read_bounded(beside(path))
        fields: dict[str, Any] = json.loads(content) if is_intact(content) else {}
        if fields.get("format") != _FORMAT:
            return None
        unpacked = zlib.decompressobj()
        return Mark(
            size=int(fields["size"]),
            sha256=str(fields["sha256"]),
            head=str(fields["head"]),
            first_hash=str(fields["first_hash"]),
            kinds=unpacked.decompress(base64.b64decode(fields["kinds"]), _MOST_ROWS),
            sums=Sums(tuple(map(float.fromhex, fields["losses"])), tuple(map(float.fromhex, fields["bounds"]))),
            # In the order of their rows, in which they are added up.
            pending={
                seq: _MECHANISM.validate_json(json.dumps(fields["pending"][str(seq)]))
                for seq in sorted(map(int, fields["pending"]))
            },
        )
    except (OSError, DocumentError, ValidationError, ValueError, TypeError, KeyError, AttributeError, zlib.error):
        # Missing, or not as it was written: a shortcut less.
        return None
