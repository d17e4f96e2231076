"""What a client writes down itself of what it sent, and how much of that it allows.

Its ledger has the format of the server's and is written ahead as that is: a row is on the client's own disk before the
first sample leaves. Beside it stands which rows of the server's have been used: each allows one transmission.
"""

import json
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fl.errors import LedgerError, PrivacyError
from fl.nodes.apart.own_budget import CLIENT, LEDGER, Budget, Claim, Spent, client_of, never_begun, spent_before
from fl.privacy.accountant import Accountant
from fl.privacy.ledger import Ledger, LedgerHeader, read_ledger
from fl.privacy.ledger_rows import Row, checked_row
from fl.privacy.mechanism import RoundMechanism
from hardware.foundation.documents import MOST_LINES_BYTES, DocumentError, parse_json, read_bounded
from hardware.foundation.durable import append_durably, make_folders, write_atomically

PERMITS = "permits.jsonl"
_EXACT = 1e-12
_LOG = logging.getLogger("airdp")


@dataclass(frozen=True)
class Promise:
    """What the client knows of an uplink itself. gain_upper: that it may arrive with. clip_norm, record_bounded: of its
    update. alpha_u, noise_std_real: as they were announced to it. bounds: least probability with which any of the
    bounds that the row rests on fails, by number of senders and whether somebody jams."""

    uplink: int
    gain_upper: float
    rounding: float
    clip_norm: float
    record_bounded: bool
    alpha_u: float
    noise_std_real: float
    bounds: Callable[[int, bool], float]


@dataclass(frozen=True)
class _Sent:
    """What this process has sent on a row of the server's: number of the own row, and the mechanism as planned."""

    seq: int
    planned: RoundMechanism


class OwnLedger:
    """Of client number `place` in one run, in a folder of its own beside those of other runs."""

    def __init__(self, folder: Path, header: LedgerHeader, place: int, budget: Budget, accountant: Accountant) -> None:
        make_folders(folder)
        self._header, self._place, self._budget, self._accountant = header, place, budget, accountant
        self._claim = Claim.of(header, place, budget)
        # What nobody limits need not be known, and a ledger that cannot be read is then in nobody's way.
        self._settled = spent_before(folder, self._claim) if budget.limited else Spent()
        self._permits = folder / PERMITS
        path = folder / LEDGER
        if path.exists() and not never_begun(path):
            self._ledger = self._taken_up(folder)
        else:
            path.unlink(missing_ok=True)
            # Before the ledger: where there is one it is known whose it is, whenever this process ends.
            write_atomically(folder / CLIENT, json.dumps({"client": place}).encode())
            self._ledger = Ledger.create(path, header)
        self._used = _read_used(self._permits)
        # A server may call one run by two names: each row still allows one transmission.
        self._elsewhere = _used_elsewhere(folder)

    def _taken_up(self, folder: Path) -> Ledger:
        """The ledger that is there already, whose rows count; a row that a crash has torn is finished first."""
        path = folder / LEDGER
        Ledger.open(path, resumed=False).close()
        contents = read_ledger(path)
        # With other sizes, or as another client's, what it says would count as something else.
        if contents.header != self._header or client_of(folder) != self._place:
            raise LedgerError(
                f"{path} was begun with another config, other sizes of the clients or by another client than the run "
                "that the server goes on with: nothing can be sent with it"
            )
        # Those that were cut off stay so: nobody knows here which row of the server's they were sent on.
        self._settled += self._claim.spent_on(contents.mechanisms)
        return Ledger.open(path)

    def authorise(self, permit: str, promise: Promise) -> None:
        """Check the server's row and charge it here; `PrivacyError` where this client must not send on it."""
        row = checked_row(permit)
        mechanism = self._allowed(row, promise)
        spent, claim = self.epsilon(mechanism), self._claim
        if self._budget.exceeded_by(spent):
            raise PrivacyError(
                f"uplink {promise.uplink} would bring this client's own epsilon to {spent:.4g}, above its budget of "
                f"{self._budget.epsilon:g} (--budget-epsilon) at delta {self._budget.delta:g}, {claim.label.value}, "
                f"{claim.neighbours.value}, all its runs together: it does not send"
            )
        if not self._used and promise.uplink > 2:
            _LOG.warning(
                "this client has nothing written down of the uplinks before %d: if it took part in them its --state "
                "was lost, and its budget does not count them; the server's ledger does",
                promise.uplink,
            )
        # First that it is used: a crash before the charge then costs nothing, and sends nothing.
        append_durably(self._permits, json.dumps({"row": row.hash}).encode() + b"\n")
        self._used[row.hash] = None
        self._used[row.hash] = _Sent(self._ledger.authorise(mechanism), mechanism)

    def _allowed(self, row: Row, promise: Promise) -> RoundMechanism:
        if row.kind != "authorise" or row.mechanism is None:
            raise PrivacyError("the server's row authorises nothing: this client does not send")
        if row.hash in self._used or row.hash in self._elsewhere:
            raise PrivacyError("the server's row was used before: this client does not send twice on it")
        mechanism = row.mechanism.mechanism()
        noise = math.hypot(mechanism.jammer_gain * mechanism.alpha_cj, mechanism.noise_std_real)
        senders = sum(gain > 0.0 for gain in mechanism.received_gains)
        bounds = promise.bounds(senders, mechanism.alpha_cj > 0.0)
        wrong = [
            name
            for name, fits in (
                ("another uplink", mechanism.uplink == promise.uplink),
                ("other clients", len(mechanism.received_gains) == len(self._header.sizes)),
                ("another clip norm", mechanism.clip_norm == promise.clip_norm),
                ("another way of clipping", mechanism.record_bounded == promise.record_bounded),
                ("a weaker adversary", mechanism.view == self._header.view),
                ("less for its converter", mechanism.rounding >= promise.rounding * (1 - _EXACT)),
                ("another common factor than it announced", mechanism.alpha_u == promise.alpha_u),
                ("more noise of its receiver than it announced", mechanism.noise_std_real <= promise.noise_std_real),
                ("more noise than its parts make", mechanism.sigma * mechanism.alpha_u <= noise * (1 + _EXACT)),
                ("less than its bounds may fail", (mechanism.bounds_delta or 0.0) >= bounds * (1 - _EXACT)),
            )
            if not fits
        ]
        if not wrong and not mechanism.received_gains[self._place] >= promise.gain_upper * (1 - _EXACT):
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
        if _lessens(accounted, sent.planned, self._place):
            raise PrivacyError("the server accounts for less than this client has sent: it is not taken over")
        self._ledger.account(sent.seq, accounted)
        self._settled += self._claim.spent_on([accounted])
        self._used[row_hash] = None

    def epsilon(self, *planned: RoundMechanism) -> float:
        """Of this client alone, over all its runs, with what is planned: under its own claim, at its own delta."""
        pending = [sent.planned.without_jammer() for sent in self._used.values() if sent is not None]
        spent = self._settled + self._claim.spent_on([*pending, *planned])
        return spent.epsilon(self._accountant, self._budget.delta)

    def close(self) -> None:
        """Give the file back."""
        self._ledger.close()


def _lessens(accounted: RoundMechanism, planned: RoundMechanism, place: int) -> bool:
    """Whether an account makes less of an uplink than was planned: noise may fall, gains may rise, and it may rest on
    more bounds; nothing else."""
    bounds, known = accounted.bounds or (), planned.bounds or ()
    as_planned = replace(
        accounted,
        bounds=planned.bounds,
        received_gains=planned.received_gains,
        sigma=planned.sigma,
        sigma_origin=planned.sigma_origin,
        noise_std_real=planned.noise_std_real,
        alpha_cj=planned.alpha_cj,
    )
    gains = accounted.received_gains
    return (
        as_planned != planned
        or bounds[: len(known)] != known
        or len(gains) != len(planned.received_gains)
        or not gains[place] >= planned.received_gains[place]
        or not accounted.sigma <= planned.sigma * (1 + _EXACT)
    )


def used_rows(folder: Path) -> list[str]:
    """Hashes of the server's rows that the client of this folder has sent on, or was about to."""
    return list(_read_used(folder / PERMITS))


def _used_elsewhere(folder: Path) -> frozenset[str]:
    """Rows that were used in other runs of the state that `folder` of this run is in."""
    others = (path for path in sorted(folder.parent.glob(f"*/{PERMITS}")) if path.parent != folder)
    return frozenset(row for path in others for row in _read_used(path))


def _read_used(path: Path) -> dict[str, _Sent | None]:
    """Rows that were used; the numbers of their own rows are not kept over a restart: what was cut off stays so.

    A line without an end was cut off by a crash before anything was charged or sent: it is closed and left out.
    """
    if not path.exists():
        return {}
    try:
        *lines, torn = read_bounded(path, MOST_LINES_BYTES).split(b"\n")
    except DocumentError as error:
        raise LedgerError(f"{path} cannot be read: {error}; nothing more can be sent with it") from error
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
