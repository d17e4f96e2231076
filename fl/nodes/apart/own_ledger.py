"""What a client writes down itself of what it sent, and how much of that it allows.

Its ledger has the format of the server's and is written ahead as that is: a row is on the client's own disk before the
first sample leaves. Beside it stands which rows of the server's have been used: each allows one transmission.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from fl.errors import LedgerError, PrivacyError
from fl.privacy.accountant import Accountant, epsilon_of_loss
from fl.privacy.ledger import Ledger, LedgerHeader
from fl.privacy.ledger_rows import Row, checked_row
from fl.privacy.mechanism import RoundMechanism
from hardware.foundation.documents import parse_json
from hardware.foundation.durable import append_durably, write_atomically

LEDGER, PERMITS, CLIENT = "ledger.jsonl", "permits.jsonl", "client.json"


@dataclass(frozen=True)
class Promise:
    """What the client knows of an uplink itself. gain_upper: that it decided on. clip_norm, record_bounded: of its
    update."""

    uplink: int
    gain_upper: float
    clip_norm: float
    record_bounded: bool


@dataclass(frozen=True)
class Budget:
    """Largest epsilon that the client allows for itself, under the run's label; infinite where it has not said."""

    epsilon: float
    accountant: Accountant


@dataclass(frozen=True)
class _Sent:
    """What this process has sent on a row of the server's: number of the own row, and the mechanism as planned."""

    seq: int
    planned: RoundMechanism


class OwnLedger:
    """Of client number `place` in one run, in a folder of its own."""

    def __init__(self, folder: Path, header: LedgerHeader, place: int, budget: Budget) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._header, self._place, self._budget = header, place, budget
        self._permits = folder / PERMITS
        path = folder / LEDGER
        if path.exists():
            self._ledger = Ledger.open(path, config_sha256=header.config_sha256)
        else:
            self._ledger = Ledger.create(path, header)
        self._used = _read_used(self._permits)
        write_atomically(folder / CLIENT, json.dumps({"client": place}).encode())

    def authorise(self, permit: str, promise: Promise) -> None:
        """Check the server's row and charge it here; `PrivacyError` where this client must not send on it."""
        row = checked_row(permit)
        mechanism = self._allowed(row, promise)
        spent = self.epsilon(mechanism)
        if spent > self._budget.epsilon * (1 + 1e-9):
            raise PrivacyError(
                f"uplink {promise.uplink} would bring this client's own epsilon to {spent:.4g}, above its budget of "
                f"{self._budget.epsilon:g} (--budget-epsilon): it does not send"
            )
        # First that it is used: a crash before the charge then costs nothing, and sends nothing.
        append_durably(self._permits, json.dumps({"row": row.hash}).encode() + b"\n")
        self._used[row.hash] = None
        self._used[row.hash] = _Sent(self._ledger.authorise(mechanism), mechanism)

    def _allowed(self, row: Row, promise: Promise) -> RoundMechanism:
        if row.kind != "authorise" or row.mechanism is None:
            raise PrivacyError("the server's row authorises nothing: this client does not send")
        if row.hash in self._used:
            raise PrivacyError("the server's row was used before: this client does not send twice on it")
        mechanism = row.mechanism.mechanism()
        wrong = [
            name
            for name, fits in (
                ("another uplink", mechanism.uplink == promise.uplink),
                ("other clients", len(mechanism.received_gains) == len(self._header.sizes)),
                ("another clip norm", mechanism.clip_norm == promise.clip_norm),
                ("another way of clipping", mechanism.record_bounded == promise.record_bounded),
                ("a weaker adversary", mechanism.view == self._header.view),
            )
            if not fits
        ]
        if not wrong and mechanism.received_gains[self._place] < promise.gain_upper * (1 - 1e-12):
            wrong = [
                f"a gain of {mechanism.received_gains[self._place]:.6g}, and this client may arrive with "
                f"{promise.gain_upper:.6g}"
            ]
        if wrong:
            raise PrivacyError(f"the server's row charges {', '.join(wrong)}: this client does not send")
        return mechanism

    def settle(self, row_hash: str, mechanism: str) -> None:
        """Take over what the server has accounted a transmission for as. A row that is not known here is ignored:
        nothing was sent on it."""
        sent = self._used.get(row_hash)
        if sent is None:
            return
        try:
            accounted = RoundMechanism.from_json(parse_json(mechanism))
        except ValueError as error:
            raise LedgerError(f"not the record of an uplink: {error}") from error
        gains, planned = accounted.received_gains, sent.planned.received_gains
        if len(gains) != len(planned) or gains[self._place] < planned[self._place] or accounted.sigma > _more(sent):
            raise PrivacyError("the server accounts for less than this client has sent: it is not taken over")
        self._ledger.account(sent.seq, accounted)
        self._used[row_hash] = None

    def epsilon(self, *planned: RoundMechanism) -> float:
        """Of this client alone, with what is planned."""
        header = self._header
        losses = self._ledger.losses
        for mechanism in planned:
            losses = losses + mechanism.losses(header.sizes_array, header.label, header.neighbours)
        left = header.delta - self._ledger.bounds_delta - sum(one.bounds_delta or 0.0 for one in planned)
        loss = float(losses[self._place])
        return float("inf") if left <= 0.0 else epsilon_of_loss(self._budget.accountant, loss, left)

    def close(self) -> None:
        """Give the file back."""
        self._ledger.close()


def _more(sent: _Sent) -> float:
    """The most noise that an account may claim: that of the plan, but for rounding."""
    return sent.planned.sigma * (1 + 1e-12)


def used_rows(folder: Path) -> list[str]:
    """Hashes of the server's rows that the client of this folder has sent on, or was about to."""
    return list(_read_used(folder / PERMITS))


def _read_used(path: Path) -> dict[str, _Sent | None]:
    """Rows that were used; the numbers of their own rows are not kept over a restart: what was cut off stays so.

    A line without an end was cut off by a crash before anything was charged or sent: it is closed and left out.
    """
    if not path.exists():
        return {}
    *lines, torn = path.read_bytes().split(b"\n")
    if torn:
        append_durably(path, b"\n")
    used: dict[str, _Sent | None] = {}
    for number, line in enumerate(lines, start=1):
        try:
            used[str(parse_json(line)["row"])] = None
        except (ValueError, KeyError, TypeError):
            # Only what such a crash has left; anything else is a row that could be used a second time.
            if not b'{"row": "'.startswith(line[:9]):
                raise LedgerError(f"{path} line {number} is damaged: nothing more can be sent with it") from None
    return used
