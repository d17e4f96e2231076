"""What a run's uplinks say about its canaries, and what follows from it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.audit.runs.bounds import LEVEL, AuditBounds, bound_all
from fl.audit.runs.canaries import Canaries
from fl.errors import PrivacyError
from fl.uplink.contract import Aggregate

NAMES = ("statistics", "shifts", "sigma")


@dataclass(frozen=True)
class UplinkEvidence:
    """One uplink. statistics: projections (M,) of the sum less what others sent, in units of tau.

    shifts: what each canary adds to its own where it is there (M,). sigma: noise per coordinate by the account.
    """

    statistics: NDArray[np.float64]
    shifts: NDArray[np.float64]
    sigma: float

    def __post_init__(self) -> None:
        """Refuse arrays that are no such numbers: they may come from a file that anybody has packed."""
        shapes, kinds = {self.statistics.shape, self.shifts.shape}, {self.statistics.dtype.kind, self.shifts.dtype.kind}
        if len(shapes) != 1 or self.statistics.ndim != 1 or kinds != {"f"}:
            raise PrivacyError(f"statistics and shifts are {kinds} of shapes {shapes}: expected real numbers (M,) each")

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """For a file of the run's folder."""
        return {"statistics": self.statistics, "shifts": self.shifts, "sigma": np.array(self.sigma)}


def uplink_evidence(
    canaries: Canaries,
    aggregate: Aggregate,
    backgrounds: dict[int, NDArray[np.float64]],
    scale: float,
    clip_norm: float,
) -> UplinkEvidence:
    """From what the server got. backgrounds: by client. scale: of the aggregate's values, tau or 1."""
    total = sum(canaries.sizes)
    shares = 1.0 / aggregate.contributions.backoffs
    statistics = canaries.project(aggregate.values) / scale
    for client, background in backgrounds.items():
        statistics -= background * (shares[client] * canaries.sizes[client] / total / clip_norm)
    return UplinkEvidence(statistics, shares[canaries.owners] / total, aggregate.mechanism.sigma)


@dataclass(frozen=True)
class Evidence:
    """All uplinks together. statistics: (M,) in units of the noise that was accounted. expected: mu of each (M,)."""

    statistics: NDArray[np.float64]
    expected: NDArray[np.float64]
    present: NDArray[np.bool_]
    uplinks: int

    @classmethod
    def of(cls, uplinks: Sequence[UplinkEvidence], present: NDArray[np.bool_]) -> "Evidence":
        """Weighted by shift/sigma^2, the best that an adversary can do with Gaussian noise."""
        if not uplinks:
            raise PrivacyError("the run has made no uplink with canaries: there is nothing to audit")
        if not all(0.0 < uplink.sigma < math.inf for uplink in uplinks):
            raise PrivacyError("an uplink was sent without noise that is known: there is no claim to audit")
        if not all(uplink.shifts.shape == present.shape for uplink in uplinks):
            raise PrivacyError(f"an uplink has not the {present.size} canaries of its run: its file was replaced")
        if not np.isfinite([[uplink.statistics, uplink.shifts] for uplink in uplinks]).all():
            raise PrivacyError("what an uplink says of a canary is no number: its file is damaged")
        expected = np.sqrt(np.sum([(uplink.shifts / uplink.sigma) ** 2 for uplink in uplinks], axis=0))
        sums = np.sum([uplink.shifts / uplink.sigma * (uplink.statistics / uplink.sigma) for uplink in uplinks], axis=0)
        return cls(sums / np.maximum(expected, 1e-300), expected, present, len(uplinks))

    @property
    def mu(self) -> float:
        """Expected separation, the mean over the canaries."""
        return float(self.expected.mean())

    def bounds(self, delta: float, alpha: float = LEVEL) -> AuditBounds:
        """Lower bounds of epsilon."""
        return bound_all(self.statistics, self.present, expected=self.mu, delta=delta, alpha=alpha)

    def to_json(self) -> dict[str, Any]:
        """What the bounds were made of."""
        inside, outside = self.statistics[self.present], self.statistics[~self.present]
        return {
            "uplinks": self.uplinks,
            "canaries": int(self.present.size),
            "present": int(np.count_nonzero(self.present)),
            "mu_expected": self.mu,
            "mean_inside": float(inside.mean()) if inside.size else None,
            "mean_outside": float(outside.mean()) if outside.size else None,
            "deviation": float(np.sqrt((inside.var() + outside.var()) / 2)) if inside.size and outside.size else None,
        }
