"""A client's own ledger beside the server's: has the server charged all that the client has sent?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fl.errors import LedgerError
from fl.nodes.apart.own_budget import LEDGER, client_of
from fl.nodes.apart.own_ledger import used_rows
from fl.privacy.ledger import LedgerContents, read_ledger
from fl.privacy.ledger_rows import verified_rows
from fl.privacy.mechanism import RoundMechanism

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Comparison:
    """client: its number, from 0 on. sent: transmissions that it has charged. unknown: rows that it has sent on and the
    server's ledger lacks. lowered: those that the server counts for less than it has told the client. own_loss,
    server_loss: S of this client in both."""

    folder: Path
    client: int
    sent: int
    unknown: int
    lowered: int
    own_loss: float
    server_loss: float

    @property
    def under_counted(self) -> bool:
        """Whether the server's ledger lacks something of what was sent.

        A client counts more than the server where it has not heard of an account: that row has no jammer in it there.
        """
        return self.unknown > 0 or self.lowered > 0


@dataclass(frozen=True)
class _Charge:
    """A transmission: as it was authorised, and as it was accounted for, None where it was not."""

    planned: RoundMechanism
    accounted: RoundMechanism | None

    @property
    def counts_as(self) -> RoundMechanism:
        return self.planned.without_jammer() if self.accounted is None else self.accounted


def compare(server: Path, folders: Sequence[Path]) -> list[Comparison]:
    """The own ledger in each of `folders` (of a run, in a client's --state) against the server's in a file."""
    contents, charges = read_ledger(server), _charges(server)
    return [_compared(contents, charges, folder) for folder in folders]


def _compared(server: LedgerContents, charges: Mapping[str, _Charge], folder: Path) -> Comparison:
    client = client_of(folder)
    own, header = read_ledger(folder / LEDGER), server.header
    if own.header != header or not 0 <= client < len(header.sizes):
        raise LedgerError(f"{folder} is of another run than the server's ledger")

    def loss(mechanisms: Sequence[RoundMechanism]) -> float:
        return sum(float(one.losses(header.sizes_array, header.label, header.neighbours)[client]) for one in mechanisms)

    used = used_rows(folder)
    pairs = _pairs([charges[row] for row in used if row in charges], list(_charges(folder / LEDGER).values()))
    lowered = [
        mine
        for mine, servers in pairs
        # What the client has not been told counts there without the jammer, and at the server perhaps with it.
        if mine.accounted is not None and loss([mine.accounted]) > loss([servers.counts_as]) * (1.0 + _ROUNDING)
    ]
    return Comparison(
        folder=folder,
        client=client,
        sent=own.authorised,
        unknown=sum(row not in charges for row in used),
        lowered=len(lowered),
        own_loss=loss(own.mechanisms),
        server_loss=loss(server.mechanisms),
    )


def _charges(path: Path) -> dict[str, _Charge]:
    """By hash of the row that authorised it, in their order."""
    planned: dict[int, tuple[str, RoundMechanism]] = {}
    accounted: dict[int, RoundMechanism] = {}
    for _, row in verified_rows(path):
        if row.mechanism is None:
            continue
        if row.kind == "authorise":
            planned[row.seq] = row.hash, row.mechanism.mechanism()
        elif row.authorised_seq is not None:
            accounted[row.authorised_seq] = row.mechanism.mechanism()
    return {digest: _Charge(mechanism, accounted.get(seq)) for seq, (digest, mechanism) in planned.items()}


def _pairs(servers: Sequence[_Charge], own: Sequence[_Charge]) -> list[tuple[_Charge, _Charge]]:
    """Own charges with the server's for the same row. A row may have been used without one: a crash came between."""
    pairs: list[tuple[_Charge, _Charge]] = []
    for charge in servers:
        mine = own[len(pairs)] if len(pairs) < len(own) else None
        if mine is not None and mine.planned == charge.planned:
            pairs.append((mine, charge))
    return pairs
