"""All books of a run against what really went to the air: nothing lost, nothing sent without a row, nothing
under-counted."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fl.nodes.apart.own_budget import CLIENT, LEDGER
from fl.nodes.apart.own_ledger import used_rows
from fl.privacy.ledger import LedgerHeader, read_ledger
from fl.privacy.ledger_rows import verified_rows
from fl.privacy.mechanism import RoundMechanism
from tests.fl.nodes.apart.faults.witness import SENT

ROUNDING = 1e-9


class WrongBooksError(AssertionError):
    """What must never be."""


@dataclass
class Entry:
    """A transmission that was charged. final: what it counts as now."""

    row: str
    planned: RoundMechanism
    final: RoundMechanism


@dataclass
class Books:
    """Of one run. rows_seen: hashes of its ledger's rows at the last look. sent: payloads of clients on the air."""

    folder: Path
    out: str
    rows_seen: list[str] = field(default_factory=list)
    sent: int = 0
    charged: int = 0

    def check(self) -> None:
        """`WrongBooksError` where something is wrong; while the server is not writing."""
        path = self.folder / self.out / "ledger.jsonl"
        rows = [row.hash for _, row in verified_rows(path)]
        lost = self.rows_seen != rows[: len(self.rows_seen)]
        if lost:
            raise WrongBooksError(f"{path}: rows that were there are there no more")
        self.rows_seen = rows
        header, server = _entries(path)
        charged = {entry.row: entry for entry in server}
        lines = {path.stem: _lines(path, rows[0]) for path in (self.folder / SENT).glob("*.jsonl")}
        self._check_jammed(charged, lines.get("jammer", []))
        self.sent, self.charged = 0, len(charged)
        kept = {path.parts[-3]: path.parent for path in (self.folder / "state").glob(f"*/{rows[0][:16]}/{LEDGER}")}
        for name, sent in lines.items():
            if name != "jammer" and name not in kept and any(line["kind"] == "Transmit" for line in sent):
                raise WrongBooksError(f"'{name}' has sent, and has no ledger of its own")
        for name, state in kept.items():
            self._check_client(state, header, charged, lines.get(name, []))

    def _check_jammed(self, charged: dict[str, Entry], lines: list[dict[str, Any]]) -> None:
        """The jammer's noise counts only where it went out whole."""
        whole = {line["row"] for line in lines if line["kind"] == "Transmit" and line["whole"]}
        for row, entry in charged.items():
            if entry.final.alpha_cj > 0.0 and row not in whole:
                raise WrongBooksError(f"uplink {entry.final.uplink} counts with a jammer that was not there")

    def _check_client(
        self, state: Path, header: LedgerHeader, charged: dict[str, Entry], lines: list[dict[str, Any]]
    ) -> None:
        place = int(json.loads((state / CLIENT).read_bytes())["client"])
        sent = [line["row"] for line in lines if line["kind"] == "Transmit"]
        self.sent += len(sent)
        if len(set(sent)) != len(sent):
            raise WrongBooksError(f"{state}: it has sent twice on one row")
        if not set(sent) <= set(charged):
            raise WrongBooksError(f"{state}: it has sent on a row that the server's ledger lacks")
        own = _matched(used_rows(state), _entries(state / LEDGER)[1], charged, state)
        if not set(sent) <= set(own):
            raise WrongBooksError(f"{state}: it has sent what its own ledger lacks")
        for row, entry in own.items():
            mine, servers = (
                float(one.losses(header.sizes_array, header.label, header.neighbours)[place])
                for one in (entry.final, charged[row].final)
            )
            if mine < servers * (1.0 - ROUNDING):
                raise WrongBooksError(f"{state}: its own ledger counts {mine} where the server's counts {servers}")


def _lines(path: Path, run: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, path.read_text().splitlines()) if line["run"] == run]


def _entries(path: Path) -> tuple[LedgerHeader, list[Entry]]:
    contents = read_ledger(path)
    authorised = [row for _, row in verified_rows(path) if row.kind == "authorise" and row.mechanism is not None]
    made = [
        Entry(row.hash, row.mechanism.mechanism(), final)
        for row, final in zip(authorised, contents.mechanisms, strict=True)
        if row.mechanism is not None
    ]
    return contents.header, made


def _matched(used: list[str], own: list[Entry], charged: dict[str, Entry], state: Path) -> dict[str, Entry]:
    """Own entries by the server's row. A row may have been used without an entry: a crash came between, and nothing was
    sent then."""
    found: dict[str, Entry] = {}
    waiting = iter(own)
    entry = next(waiting, None)
    for row in used:
        if row not in charged:
            raise WrongBooksError(f"{state}: it was about to send on a row that the server's ledger lacks")
        if entry is not None and entry.planned == charged[row].planned:
            found[row] = entry
            entry = next(waiting, None)
    if entry is not None:
        raise WrongBooksError(f"{state}: its own ledger has an entry for no row of the server's")
    return found
