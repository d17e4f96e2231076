"""Claimed against measured: every attack on every client and view, every part of the claim, and whether any of them
refutes it.

Intervals are those of one attack, 95 %. The verdict allows for there being many: the claim is refuted where one attack
or one part does so at a level of 5 % divided by their number. A claim that is not refuted need not be shown to hold:
`below` says of a view whether the best known estimate of the worst direction has its whole interval below the claim.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from fl.audit.estimate import Estimate, estimate_mu, fitted_mu
from fl.audit.parts import PartFinding, part_findings
from fl.audit.trials import Trials

LEVEL = 0.05
WORST = 16
"""Changes that `worst` takes: so few that all of them are worse than others where only some directions are."""


class View(StrEnum):
    """What the adversary holds: every sample of the receiver, or the demodulated sum alone."""

    SAMPLES = "samples"
    CELLS = "cells"


class Direction(StrEnum):
    """`worst`: the few changes that can be told best; `worst-one`: the first of them; `worst-many`: all of that kind;
    `random`; `every`: all of both kinds, which show the noise best; `energy`: no direction."""

    WORST = "worst"
    WORST_ONE = "worst-one"
    WORST_MANY = "worst-many"
    RANDOM = "random"
    EVERY = "every"
    ENERGY = "energy"


@dataclass(frozen=True)
class Finding:
    """One attack."""

    client: str
    view: View
    direction: Direction
    claimed_mu: float
    estimate: Estimate

    @property
    def ratio(self) -> float:
        """Measured over claimed."""
        return self.estimate.mu / self.claimed_mu

    @property
    def proven(self) -> float:
        """Part of the claim that the attack has reached for certain: the lower end of its interval."""
        return self.estimate.interval()[0] / self.claimed_mu

    def refutes(self, level: float) -> bool:
        """See `Estimate.refutes`."""
        return self.estimate.refutes(self.claimed_mu, level)

    def slack(self, level: float) -> float:
        """Factor of the claim that is left before it is refuted at this level."""
        return self.claimed_mu / max(self.estimate.lower(level), 1e-300)

    def to_json(self) -> dict[str, Any]:
        """For `airdp validate --json`."""
        return {
            "client": self.client,
            "view": self.view.value,
            "direction": self.direction.value,
            "claimed_mu": self.claimed_mu,
            "measured_mu": self.estimate.mu,
            "ci": list(self.estimate.interval()),
            "trials": self.estimate.trials,
        }


@dataclass(frozen=True)
class ClientValidation:
    """One client. findings, parts: those that leave least of the claim first. claimed_mu: rms over the uplinks.

    predicted_mu: of its worst change, by linear algebra. fitted: of the same, from all worst changes together.
    """

    client: str
    claimed_mu: float
    findings: tuple[Finding, ...]
    parts: tuple[PartFinding, ...]
    predicted_mu: float
    fitted: Estimate

    @property
    def everything(self) -> tuple[Finding | PartFinding, ...]:
        """Attacks and parts."""
        return (*self.findings, *self.parts)

    @property
    def tightest(self) -> tuple[PartFinding, PartFinding]:
        """The total noise, and the gain, that leave least of what is claimed of them."""
        noise = next(found for found in self.parts if found.is_sigma)
        return noise, next(found for found in self.parts if not found.is_noise)

    @property
    def below(self) -> bool:
        """Whether the whole interval of the worst direction's mu lies below the claim, all its trials together."""
        return self.fitted.interval()[1] < self.claimed_mu


@dataclass(frozen=True)
class Validation:
    """clients: the worst first."""

    clients: tuple[ClientValidation, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All attacks, the worst first."""
        every = [found for client in self.clients for found in client.findings]
        return tuple(sorted(every, key=lambda found: found.proven, reverse=True))

    @property
    def level(self) -> float:
        """At which one attack or one part refutes."""
        return LEVEL / sum(len(client.everything) for client in self.clients)

    @property
    def refuted_by(self) -> tuple[Finding | PartFinding, ...]:
        """What cannot be explained by a claim that holds."""
        return tuple(found for client in self.clients for found in client.everything if found.refutes(self.level))

    @property
    def holds(self) -> bool:
        """The verdict."""
        return not self.refuted_by

    @property
    def below(self) -> bool:
        """Whether every client's worst direction is shown to be below its claim, not only not above it."""
        return all(client.below for client in self.clients)

    @property
    def resolution(self) -> float:
        """By which part sigma would have to be over-stated for these trials to refute the claim; 0 where they do.

        It is the claim's own margin at its smallest, and the error of what was measured.
        """
        attacks = [found.slack(self.level) for found in self.findings if found.direction is not Direction.ENERGY]
        noise = [found.slack(self.level) for client in self.clients for found in client.parts if found.is_sigma]
        return max(0.0, min(attacks + noise) - 1.0)

    def worst(self, view: View) -> Finding:
        """The most successful attack on a view."""
        return next(found for found in self.findings if found.view is view)

    def to_json(self) -> dict[str, Any]:
        """For `airdp validate --json`: views, then clients, the worst first."""
        return {
            "verdict": "holds" if self.holds else "refuted",
            "refuted_by": [found.to_json() for found in self.refuted_by],
            "views": {view.value: self.worst(view).to_json() for view in View},
            "below_claim": self.below,
            "clients": [self._client_json(client) for client in self.clients],
            "resolution": self.resolution,
            "trials": min(found.estimate.trials for found in self.findings if found.direction is Direction.WORST),
            "confidence": 1.0 - LEVEL,
            "level_of_one_attack": self.level,
        }

    def _client_json(self, client: ClientValidation) -> dict[str, Any]:
        refuted = any(found.refutes(self.level) for found in client.everything)
        return {
            "client": client.client,
            "verdict": "refuted" if refuted else "holds",
            "claimed_mu": client.claimed_mu,
            "worst_direction": {
                "measured_mu": client.fitted.mu,
                "ci": list(client.fitted.interval()),
                "trials": client.fitted.trials,
                "below_claim": client.below,
            },
            "predicted_mu": client.predicted_mu,
            "attacks": [found.to_json() for found in client.findings],
            "parts": [found.to_json() for found in client.parts],
        }


def judge(trials: Sequence[Trials]) -> Validation:
    """From the trials of every client."""
    clients = [_client(made) for made in trials]
    clients.sort(key=lambda client: client.findings[0].proven, reverse=True)
    return Validation(tuple(clients))


def _client(trials: Trials) -> ClientValidation:
    half = trials.present.shape[1] // 2
    findings = sorted(findings_of(trials), key=lambda found: found.proven, reverse=True)
    parts = sorted(_parts(trials), key=lambda found: found.slack(LEVEL))
    return ClientValidation(
        client=trials.client,
        claimed_mu=findings[0].claimed_mu,
        findings=tuple(findings),
        parts=tuple(parts),
        predicted_mu=float(trials.predicted.max()),
        fitted=fitted_mu(trials.samples[:, :half], trials.present[:, :half], trials.share, trials.shape),
    )


def _parts(trials: Trials) -> list[PartFinding]:
    return part_findings(trials.client, trials.looks, trials.gains, coherent=trials.coherent)


def findings_of(trials: Trials) -> list[Finding]:
    """All attacks on one client."""
    half = trials.present.shape[1] // 2
    claimed = float(np.sqrt(np.mean(trials.claimed**2)))
    worst, many = slice(0, min(WORST, half)), slice(0, half)
    random, every = slice(half, 2 * half), slice(0, 2 * half)
    energy = np.repeat(trials.energy[:, None], worst.stop, axis=1)
    attacks = [
        (View.SAMPLES, Direction.WORST, trials.samples[:, worst], worst),
        (View.SAMPLES, Direction.WORST_ONE, trials.samples[:, :1], slice(0, 1)),
        (View.SAMPLES, Direction.WORST_MANY, trials.samples[:, many], many),
        (View.SAMPLES, Direction.RANDOM, trials.samples[:, random], random),
        (View.SAMPLES, Direction.EVERY, trials.samples[:, every], every),
        (View.SAMPLES, Direction.ENERGY, energy, worst),
        (View.CELLS, Direction.WORST, trials.cells[:, worst], worst),
        (View.CELLS, Direction.RANDOM, trials.cells[:, random], random),
        (View.CELLS, Direction.EVERY, trials.cells[:, every], every),
    ]
    return [
        Finding(
            trials.client, view, direction, claimed, estimate_mu(statistics, trials.present[:, changes], trials.share)
        )
        for view, direction, statistics, changes in attacks
    ]
