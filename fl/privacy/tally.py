"""What has been spent until now, as sums that grow with each uplink: their size does not depend on how many there were.

Losses are added in the order of the accounts, one after the other, so that a run that is taken up again has the same
sums to the last bit.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl.privacy.ledger_rows import LedgerHeader, MechanismRow
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.privacy.sensitivity import charged_sensitivity

_NO_NOISE = (SigmaOrigin.NONE, SigmaOrigin.UNKNOWN)
_CHUNK_ROWS = 1024


@dataclass(frozen=True)
class Sums:
    """Of all accounts. losses: S of each client. bounds: two parts of the sum of what may fail."""

    losses: tuple[float, ...]
    bounds: tuple[float, ...]


class Tally:
    """Of one ledger, under the label and the neighbours of its header.

    pending: by row, uplinks that were authorised and have no account, each without the jammer.
    """

    def __init__(self, header: LedgerHeader) -> None:
        self._header, self._sizes = header, header.sizes_array
        self._losses = np.zeros(len(header.sizes))
        # Two parts of one sum: what the first cannot hold is in the second.
        self._bounds, self._bounds_rest = 0.0, 0.0
        self._waiting: list[MechanismRow] = []
        self.pending: dict[int, RoundMechanism] = {}

    def losses_of(self, mechanism: RoundMechanism) -> NDArray[np.float64]:
        """1/2 (Delta_i/sigma)^2 of each client, shape (K,)."""
        return mechanism.losses(self._sizes, self._header.label, self._header.neighbours)

    @property
    def losses(self) -> NDArray[np.float64]:
        """S of each client, shape (K,), of all uplinks."""
        self.settle()
        total = self._losses.copy()
        for mechanism in self.pending.values():
            total += self.losses_of(mechanism)
        return total

    @property
    def bounds_delta(self) -> float:
        """Probability that any known bound of any uplink fails, at most."""
        self.settle()
        pending = (mechanism.bounds_delta or 0.0 for mechanism in self.pending.values())
        return math.fsum((self._bounds, self._bounds_rest, *pending))

    def account(self, mechanism: RoundMechanism) -> None:
        """Add an uplink as it was."""
        self.settle()
        self._losses = self._losses + self.losses_of(mechanism)
        self._add_bounds(mechanism.bounds_delta or 0.0)

    def account_row(self, row: MechanismRow) -> None:
        """The same of a row that was read: many are added at once."""
        self._waiting.append(row)
        if len(self._waiting) == _CHUNK_ROWS:
            self.settle()

    @property
    def sums(self) -> Sums:
        """Without what is pending."""
        self.settle()
        return Sums(tuple(self._losses.tolist()), (self._bounds, self._bounds_rest))

    def begin_with(self, sums: Sums) -> None:
        """Take these for what was accounted for until now. ValueError where they are not this ledger's."""
        losses, (self._bounds, self._bounds_rest) = np.array(sums.losses, np.float64), sums.bounds
        if losses.shape != self._losses.shape:
            raise ValueError(f"{losses.size} losses for {self._losses.size} clients")
        self._losses = losses

    def settle(self) -> None:
        """Add what is still waiting to be added."""
        rows, self._waiting = self._waiting, []
        if not rows:
            return
        losses = self._losses_of_rows(rows)
        # Accumulated, not summed: numpy sums in pairs, and a run has added one at a time.
        self._losses = np.add.accumulate(np.vstack([self._losses, losses]), axis=0)[-1]
        for row in rows:
            bounds = row.known_bounds
            if bounds:
                self._add_bounds(math.fsum(probability for _, probability in bounds))

    def _losses_of_rows(self, rows: Sequence[MechanismRow]) -> NDArray[np.float64]:
        """Shape (rows, K); the same numbers as `losses_of` of each."""
        every = itertools.chain.from_iterable(row.received_gains for row in rows)
        gains = np.fromiter(every, np.float64, len(rows) * self._sizes.size).reshape(len(rows), self._sizes.size)
        bounded = np.array([row.record_bounded for row in rows])
        sigma = np.array([0.0 if row.sigma_origin in _NO_NOISE else row.sigma for row in rows])
        rounding = np.array([[row.rounding] for row in rows])
        ratios = np.empty(gains.shape)
        for one in (False, True):
            ratios[bounded == one] = charged_sensitivity(
                self._header.label,
                self._header.neighbours,
                self._sizes,
                gains[bounded == one],
                record_bounded=one,
                rounding=rounding[bounded == one],
            )
        with np.errstate(over="ignore"):
            np.divide(ratios, sigma[:, None], out=ratios, where=sigma[:, None] > 0)
            ratios[sigma == 0] = np.where(gains[sigma == 0] > 0, math.inf, 0.0)
            return 0.5 * np.square(ratios)

    def _add_bounds(self, probability: float) -> None:
        total = self._bounds + probability
        self._bounds_rest += math.fsum((self._bounds, probability, -total))
        self._bounds = total
