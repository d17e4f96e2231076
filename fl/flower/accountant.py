"""The ledger behind Flower's `PrivacyAccountant`: client-level epsilon of all that went over the air.

Flower counts at the level of clients, with neighbours that lack one client, which here is the label `client` with
zero-out neighbours. Uplinks are in the ledger before they are sent; `compose` adds what else a ServerApp releases about
the same clients, for which there is no ledger: it is kept in `state_dict`.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.supercore.privacy_accounting import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    PrivacySpent,
    SamplingMethod,
)

from fl.errors import LedgerError, PrivacyError
from fl.privacy.accountant import Accountant, checked_delta, checked_epsilon, epsilon_exact, log_delta_exact
from fl.privacy.ledger import LedgerContents, read_ledger
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import state_privacy


@dataclass
class LedgerAccountant:
    """ledger: of a run or an air node. max_epsilon: that `would_exceed` holds against, where it is given none."""

    ledger: Path
    max_epsilon: float | None = None
    _composed: list[tuple[float, int]] = field(default_factory=list)

    @property
    def config(self) -> PrivacyConfig:
        """As Flower says it: all clients take part in every uplink, so nothing is amplified by sampling."""
        header = self._contents().header
        return PrivacyConfig(
            target_delta=header.delta,
            population_size=len(header.sizes),
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
            sampling_method=SamplingMethod.NO_AMPLIFICATION,
            max_epsilon=self.max_epsilon,
        )

    @property
    def num_releases(self) -> int:
        """Uplinks that were charged, sent whole or not, and what was composed."""
        return self._contents().authorised + sum(count for _, count in self._composed)

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Add a release that is not in the ledger. Uplinks are there already: composing them would count them twice."""
        self._composed.append((event.noise_multiplier, _checked_count(count)))

    def get_epsilon(self, delta: float) -> float:
        """Smallest epsilon at `delta`; infinite where measured bounds leave nothing of it."""
        loss, bounds = self._spent()
        left = checked_delta(delta) - bounds
        return epsilon_exact(loss, left) if left > 0 else math.inf

    def get_delta(self, epsilon: float) -> float:
        """Smallest delta at `epsilon`, the probability that a measured bound fails included."""
        loss, bounds = self._spent()
        mechanism = 1.0 if math.isinf(loss) else math.exp(log_delta_exact(loss, checked_epsilon(epsilon)))
        return min(1.0, mechanism + bounds)

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """At `delta`, or at the ledger's own."""
        at = self._contents().header.delta if delta is None else delta
        return PrivacySpent(self.get_epsilon(at), at, self.num_releases, Accountant.EXACT.value)

    def would_exceed(self, event: GaussianPrivacyEvent, max_epsilon: float | None = None, count: int = 1) -> bool:
        """Whether `count` more of `event` would bring epsilon, at the ledger's delta, above the limit."""
        limit = self.max_epsilon if max_epsilon is None else max_epsilon
        if limit is None:
            raise PrivacyError("would_exceed needs a limit: give max_epsilon here or when the accountant is made")
        loss, bounds = self._spent()
        left = self._contents().header.delta - bounds
        return left <= 0 or epsilon_exact(loss + _loss(event.noise_multiplier, _checked_count(count)), left) > limit

    def state_dict(self) -> dict[str, object]:
        """What was composed, and the ledger's last row, by which `load_state_dict` knows it again."""
        return {"composed": [list(pair) for pair in self._composed], "ledger_head": self._contents().head}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Take up what was composed; `LedgerError` where the ledger lacks the row that the state has seen."""
        if state.get("ledger_head") not in self._contents().hashes:
            raise LedgerError(f"ledger {self.ledger} lacks the row that this state has seen: it was cut or replaced")
        composed: Any = state.get("composed")
        try:
            self._composed = [(_multiplier(noise), _checked_count(count)) for noise, count in composed]
        except (TypeError, ValueError) as error:
            raise PrivacyError(f"not the state of a LedgerAccountant: {error}") from error

    def _contents(self) -> LedgerContents:
        return read_ledger(self.ledger)

    def _spent(self) -> tuple[float, float]:
        """S of the worst client, and the probability that any measured bound fails."""
        contents = self._contents()
        said = state_privacy(
            contents.mechanisms,
            contents.header.sizes_array,
            label=Label.CLIENT,
            neighbours=Neighbours.ZERO_OUT,
            delta=contents.header.delta,
        )
        if said.bounds is None:
            return math.inf, 0.0
        return said.total_loss + sum(_loss(noise, count) for noise, count in self._composed), said.delta_bounds or 0.0


def _loss(noise_multiplier: float, count: int) -> float:
    """1/2 (Delta/sigma)^2 of each release."""
    return 0.5 * count / noise_multiplier**2


def _multiplier(value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"a noise multiplier of {value}")
    return float(value)


def _checked_count(count: int) -> int:
    if type(count) is not int or count < 1:
        raise PrivacyError(f"count is {count}: expected a whole number of at least 1")
    return count
