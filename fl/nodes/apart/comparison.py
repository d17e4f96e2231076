"""A client's own ledger beside the server's: has the server charged all that the client has sent?"""

from dataclasses import dataclass
from pathlib import Path

from fl.errors import LedgerError
from fl.nodes.apart.own_budget import LEDGER, client_of
from fl.nodes.apart.own_ledger import used_rows
from fl.privacy.ledger import LedgerContents, read_ledger


@dataclass(frozen=True)
class Comparison:
    """client: its number, from 0 on. sent: transmissions that it has charged. unknown: rows that it has sent on and the
    server's ledger lacks. own_loss, server_loss: S of this client in both."""

    folder: Path
    client: int
    sent: int
    unknown: int
    own_loss: float
    server_loss: float

    @property
    def under_counted(self) -> bool:
        """Whether the server's ledger lacks something that was sent.

        A client counts more than the server where it has not heard of an account: that row has no jammer in it there.
        """
        return self.unknown > 0


def compare(server: LedgerContents, folder: Path) -> Comparison:
    """The own ledger in `folder` (of a run, in a client's --state) against the server's."""
    client = client_of(folder)
    own = read_ledger(folder / LEDGER)
    if own.header != server.header or not 0 <= client < len(server.header.sizes):
        raise LedgerError(f"{folder} is of another run than the server's ledger")
    unknown = [row for row in used_rows(folder) if row not in server.hashes]
    header = server.header

    def loss(contents: LedgerContents) -> float:
        return sum(
            float(one.losses(header.sizes_array, header.label, header.neighbours)[client])
            for one in contents.mechanisms
        )

    return Comparison(folder, client, own.authorised, len(unknown), loss(own), loss(server))
