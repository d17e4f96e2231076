"""What a client allows for itself, over all runs that it has taken part in, and what of that is spent.

Nothing in it is the server's to choose: a run that is begun anew, under another label or with a larger delta, finds
what the client has sent before.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fl.errors import LedgerError
from fl.privacy.accountant import Accountant, checked_delta, epsilon_of_loss
from fl.privacy.converters import vouched_for
from fl.privacy.ledger import Ledger, LedgerHeader, read_ledger
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.sensitivity import Label, Neighbours
from hardware.foundation.documents import read_json

LEDGER, CLIENT = "ledger.jsonl", "client.json"
DELTA = 1e-5
"""Where a client says nothing else: the default of `privacy.delta`."""


@dataclass(frozen=True)
class Budget:
    """epsilon: the largest that the client allows, infinite where it has not said. delta: with it, in total.

    label, neighbours: of its own claim; None for those of the run that it takes part in.
    """

    epsilon: float = math.inf
    delta: float = DELTA
    label: Label | None = None
    neighbours: Neighbours | None = None

    def __post_init__(self) -> None:
        """Refuse what is no budget."""
        checked_delta(self.delta)

    @property
    def limited(self) -> bool:
        """Whether there is any."""
        return self.epsilon < math.inf

    def exceeded_by(self, epsilon: float) -> bool:
        """Whether that is more; noise that was sized for exactly the budget must not be refused for rounding."""
        return not epsilon <= self.epsilon * (1 + 1e-9)


@dataclass(frozen=True)
class Spent:
    """loss: S of one client. rough: the same where dither is not counted on (`fl.privacy.converters`). bounds:
    probability that any bound fails on which it rests, 1 where that is not known."""

    loss: float = 0.0
    rough: float = 0.0
    bounds: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.loss + other.loss, self.rough + other.rough, self.bounds + other.bounds)

    def epsilon(self, accountant: Accountant, delta: float) -> float:
        """At what bounds leave of delta."""
        left = delta - self.bounds
        if left <= 0.0:
            return math.inf
        return epsilon_of_loss(accountant, self.loss if vouched_for(self.loss, left) else self.rough, left)


@dataclass(frozen=True)
class Claim:
    """Under which the mechanisms of a run count for one of its clients. place: its number."""

    header: LedgerHeader
    place: int
    label: Label
    neighbours: Neighbours

    @classmethod
    def of(cls, header: LedgerHeader, place: int, budget: Budget) -> "Claim":
        """The client's own, where it has one."""
        return cls(header, place, budget.label or header.label, budget.neighbours or header.neighbours)

    def spent_on(self, mechanisms: Iterable[RoundMechanism]) -> Spent:
        """By all of them together."""
        sizes, total = self.header.sizes_array, Spent()
        for one in mechanisms:
            loss, rough = (
                float(one.losses(sizes, self.label, self.neighbours, smoothed=smoothed)[self.place])
                for smoothed in (True, False)
            )
            total += Spent(loss, rough, 1.0 if one.bounds_delta is None else one.bounds_delta)
        return total


def client_of(folder: Path) -> int:
    """Number of the client who has kept `folder` of a run."""
    try:
        return int(read_json(folder / CLIENT)["client"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LedgerError(f"{folder} is not what a client has kept of a run: {error}") from error


def never_begun(ledger: Path) -> bool:
    """Whether the process that made a ledger ended before its first row: nothing was sent with it."""
    return ledger.stat().st_size == 0 and not ledger.with_name(ledger.name + ".next").exists()


def spent_before(folder: Path, claim: Claim) -> Spent:
    """In all other runs of the state that `folder` of this run is in, under the claim of this one.

    What cannot be read may have been anything: `LedgerError`.
    """
    total = Spent()
    for ledger in sorted(folder.parent.glob(f"*/{LEDGER}")):
        if ledger.parent != folder and not never_begun(ledger):
            # A row that a crash has torn is finished first: it counts.
            Ledger.open(ledger, resumed=False).close()
            contents = read_ledger(ledger)
            other = Claim(contents.header, client_of(ledger.parent), claim.label, claim.neighbours)
            if not 0 <= other.place < len(contents.header.sizes):
                raise LedgerError(f"{ledger.parent} has no client number {other.place}: it was changed")
            total += other.spent_on(contents.mechanisms)
    return total
