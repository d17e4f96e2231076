"""An uplink with the ledger ahead of it: what every loop sends through, the run's and a user's own."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl.privacy.accountant import epsilon_of_loss
from fl.privacy.conditions import JammerTrust, View
from fl.privacy.converters import vouched_for
from fl.privacy.ledger import Ledger, LedgerHeader
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.sensitivity import Label
from fl.privacy.statement import PrivacyStatement, delta_left, state_privacy
from fl.run.config import RunConfig, UplinkKind
from fl.run.delta_split import split_delta
from fl.run.folder import RunFolder
from fl.run.inputs import Inputs
from fl.run.journal import RunJournal
from fl.uplink.contract import Aggregate, UnprotectedError, Updates, Uplink, UplinkPlan
from fl.versions import versions
from hardware.foundation.durable import write_atomically

_BUDGET_TOLERANCE = 1e-9
"""Relative; noise sized for exactly the budget must not be refused for rounding."""


def ledger_header(config: RunConfig, sizes: NDArray[np.int64], view: View) -> LedgerHeader:
    """What the ledger of a run says first."""
    split = split_delta(config)
    return LedgerHeader(
        sizes=tuple(int(size) for size in sizes),
        delta=config.privacy.delta,
        label=config.label,
        neighbours=config.privacy.neighbours,
        config_sha256=config.digest(),
        view=view,
        jammer=JammerTrust(config.jammer.role.value),
        delta_bounds=split.bounds,
        confidence=split.confidence,
    )


def begin_folder(folder: RunFolder, config: RunConfig, inputs: Inputs, sizes: NDArray[np.int64], view: View) -> None:
    """Fill a new folder with what a ledger belongs to: config, versions, inputs, and the ledger's header."""
    write_atomically(folder.config_path, config.to_toml().encode())
    folder.write_json("versions.json", versions())
    inputs.keep(folder)
    Ledger.create(folder.ledger_path, ledger_header(config, sizes, view)).close()


@dataclass(frozen=True)
class ChargedUplink:
    """sizes: n_i (K,). The ledger is open, and belongs to this config and these clients."""

    uplink: Uplink
    ledger: Ledger
    journal: RunJournal
    config: RunConfig
    sizes: NDArray[np.int64]

    def epsilon(self, *planned: RoundMechanism) -> float:
        """Of all uplinks, charged and planned, at what their bounds leave of delta."""
        loss = float(sum((self._losses(mechanism) for mechanism in planned), self.ledger.losses).max())
        left = delta_left(self.config.privacy.delta - self.ledger.bounds_delta, planned)
        if left <= 0.0:
            return math.inf
        if self.config.uplink.kind is UplinkKind.RADIO and not vouched_for(loss, left):
            # Rounding counts whole then, in every uplink until now: too seldom to keep sums of it.
            every = [*self.ledger.mechanisms.values(), *planned]
            loss = float(np.sum([self._losses(mechanism, smoothed=False) for mechanism in every], axis=0).max())
        return epsilon_of_loss(self.config.privacy.accountant, loss, left)

    def exceeds_budget(self, mechanism: RoundMechanism) -> bool:
        """Whether the uplink, sent as it is planned, would spend more than the budget.

        The plan counts on the jammer. An uplink that is cut off counts without it, so a crash may exceed the budget:
        the ledger and every statement then show that, and nothing more is sent.
        """
        budget = self.config.privacy.budget_epsilon
        return budget > 0 and self.epsilon(mechanism) > budget * (1 + _BUDGET_TOLERANCE)

    def exchange(self, plan: UplinkPlan, updates: Updates) -> Aggregate:
        """Carry `updates` to the server: the worst case is on disk before, what was measured after."""
        rows: list[int] = []

        def authorise() -> str:
            self.journal.reserve()
            rows.append(self.ledger.authorise(plan.mechanism))
            row = self.ledger.last_line
            self.journal.authorised(plan.uplink, rows[0])
            return row

        try:
            aggregate = self.uplink.exchange(plan, updates, authorise)
        except UnprotectedError as error:
            self.ledger.account(rows[0], error.mechanism)
            self.uplink.settled(error.mechanism)
            raise
        # Measured noise may turn out below the plan's: on disk before anything else happens.
        self.ledger.account(rows[0], aggregate.mechanism)
        self.uplink.settled(aggregate.mechanism)
        return aggregate

    def statements(self) -> tuple[PrivacyStatement, ...]:
        """What has been spent, under the claimed label first, then under the others."""
        claimed = self.config.label
        mechanisms = list(self.ledger.mechanisms.values())
        return tuple(
            state_privacy(
                mechanisms,
                self.sizes,
                label=label,
                neighbours=self.config.privacy.neighbours,
                delta=self.config.privacy.delta,
                unaccounted=self.ledger.unaccounted,
                jammer=JammerTrust(self.config.jammer.role.value),
            )
            for label in (claimed, *(label for label in Label if label is not claimed))
        )

    def _losses(self, mechanism: RoundMechanism, *, smoothed: bool = True) -> NDArray[np.float64]:
        return mechanism.losses(self.sizes, self.config.label, self.config.privacy.neighbours, smoothed=smoothed)
