"""Claimed against measured: every attack on every client and view, and whether any of them refutes the claim.

Intervals are those of one attack, 95 %. The verdict allows for there being many: the claim is refuted where one attack
does so at a level of 5 % divided by their number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from fl.audit.estimate import Estimate, estimate_mu
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
class Validation:
    """findings: the worst first. predicted: mu of the worst change of each client by linear algebra."""

    findings: tuple[Finding, ...]
    predicted: dict[str, float]

    @property
    def level(self) -> float:
        """At which one attack refutes."""
        return LEVEL / len(self.findings)

    @property
    def refuted_by(self) -> tuple[Finding, ...]:
        """Attacks that cannot be explained by a claim that holds."""
        return tuple(found for found in self.findings if found.estimate.refutes(found.claimed_mu, self.level))

    @property
    def holds(self) -> bool:
        """The verdict."""
        return not self.refuted_by

    @property
    def resolution(self) -> float:
        """By which part sigma would have to be over-stated for these trials to refute the claim; 0 where they do.

        It is the claim's own margin, of upper bounds of gains and lower bounds of noise, and the error of mu.
        """
        needed = [
            found.claimed_mu / max(found.estimate.lower(self.level), 1e-300)
            for found in self.findings
            if found.direction is not Direction.ENERGY
        ]
        return max(0.0, min(needed) - 1.0)

    def worst(self, view: View) -> Finding:
        """The most successful attack on a view."""
        return next(found for found in self.findings if found.view is view)

    def to_json(self) -> dict[str, Any]:
        """For `airdp validate --json`: views, then clients, the worst first."""
        names = list(dict.fromkeys(found.client for found in self.findings))
        return {
            "verdict": "holds" if self.holds else "refuted",
            "views": {view.value: self.worst(view).to_json() for view in View},
            "clients": [
                {
                    "client": name,
                    "predicted_mu": self.predicted[name],
                    "attacks": [found.to_json() for found in self.findings if found.client == name],
                }
                for name in names
            ],
            "resolution": self.resolution,
            "trials": min(found.estimate.trials for found in self.findings if found.direction is Direction.WORST),
            "confidence": 1.0 - LEVEL,
            "level_of_one_attack": self.level,
        }


def judge(trials: Sequence[Trials]) -> Validation:
    """From the trials of every client."""
    findings = [found for made in trials for found in findings_of(made)]
    findings.sort(key=lambda found: found.ratio, reverse=True)
    return Validation(tuple(findings), {made.client: made.predicted for made in trials})


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
