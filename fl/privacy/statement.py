"""An epsilon never stands alone: a statement carries label, neighbours, delta and the origin of sigma with it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.privacy.accountant import Accountant, epsilon_of
from fl.privacy.mechanism import Label, Neighbours, RoundMechanism

CLOSED_FORMS = (Accountant.PAPER, Accountant.EXACT)


def json_number(value: float) -> float | str:
    """`value`, or the string "inf": JSON has no infinity, and `float("inf")` reads the string back."""
    return value if math.isfinite(value) else "inf"


@dataclass(frozen=True)
class PrivacyStatement:
    """Epsilon of a sequence of uplinks for its worst client, with everything that the number means.

    epsilon: by accountant. epsilon_without_backoff: the same with s_i = 1, the bound that needs no channel knowledge.
    total_loss: S of the worst client. worst_client: its 0-based number, None where nothing was sent.
    """

    label: Label
    neighbours: Neighbours
    delta: float
    sigma_origin: str
    uplinks: int
    total_loss: float
    worst_client: int | None
    epsilon: dict[Accountant, float]
    epsilon_without_backoff: dict[Accountant, float]

    @property
    def mu(self) -> float:
        """Ratio of the one Gaussian mechanism that all uplinks together are: sqrt(2 S)."""
        return math.sqrt(2.0 * self.total_loss)

    @property
    def conditions(self) -> str:
        """What must be read together with the number and its label."""
        return f"{self.neighbours.value} neighbours, delta {self.delta:g}, sigma {self.sigma_origin}"

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; infinite values as the string "inf"."""
        return {
            "epsilon": {name.value: json_number(value) for name, value in self.epsilon.items()},
            "epsilon_without_backoff": {
                name.value: json_number(value) for name, value in self.epsilon_without_backoff.items()
            },
            "label": self.label.value,
            "neighbours": self.neighbours.value,
            "delta": self.delta,
            "sigma_origin": self.sigma_origin,
            "uplinks": self.uplinks,
            "S": json_number(self.total_loss),
            "mu": json_number(self.mu),
            "worst_client": self.worst_client,
        }


def state_privacy(
    mechanisms: Sequence[RoundMechanism],
    sizes: NDArray[np.int64],
    *,
    label: Label,
    neighbours: Neighbours,
    delta: float,
    accountants: Sequence[Accountant] = CLOSED_FORMS,
) -> PrivacyStatement:
    """Compose `mechanisms` for every client and state the worst.

    For Gaussian mechanisms every accountant is increasing in S, so the client with the largest S is the worst under
    all.
    """
    ratios = _ratios(mechanisms, sizes, label, neighbours)
    free = _ratios([mechanism.without_backoff() for mechanism in mechanisms], sizes, label, neighbours)
    losses = 0.5 * np.square(ratios).sum(axis=0)
    worst = int(np.argmax(losses))
    worst_free = int(np.argmax(np.square(free).sum(axis=0)))
    origins = sorted({mechanism.sigma_origin.value for mechanism in mechanisms})
    return PrivacyStatement(
        label=label,
        neighbours=neighbours,
        delta=delta,
        sigma_origin="+".join(origins) if origins else "none",
        uplinks=len(mechanisms),
        total_loss=float(losses[worst]),
        worst_client=worst if losses[worst] > 0 else None,
        epsilon={name: epsilon_of(name, ratios[:, worst].tolist(), delta) for name in accountants},
        epsilon_without_backoff={name: epsilon_of(name, free[:, worst_free].tolist(), delta) for name in accountants},
    )


def _ratios(
    mechanisms: Sequence[RoundMechanism], sizes: NDArray[np.int64], label: Label, neighbours: Neighbours
) -> NDArray[np.float64]:
    """Delta/sigma, shape (uplinks, clients)."""
    rows = [mechanism.noise_ratios(sizes, label, neighbours) for mechanism in mechanisms]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(sizes))
