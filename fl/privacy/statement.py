"""An epsilon never stands alone: a statement carries with it everything that it means and rests on."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.privacy.accountant import Accountant, checked_delta, epsilon_of
from fl.privacy.conditions import JammerTrust, View, rests_on
from fl.privacy.converters import vouched_for
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.sensitivity import Label, Neighbours

CLOSED_FORMS = (Accountant.PAPER, Accountant.EXACT)


def json_number(value: float) -> float | str:
    """`value`, or the string "inf": JSON has no infinity, and `float("inf")` reads the string back."""
    return value if math.isfinite(value) else "inf"


@dataclass(frozen=True)
class PrivacyStatement:
    """Epsilon of a sequence of uplinks for its worst client, with everything that the number means.

    epsilon: by accountant. epsilon_without_backoff: the same with s_i = 1, the bound that needs no channel knowledge.
    total_loss: S of the worst client. worst_client: its 0-based number, None where nothing was sent.
    view: the adversary against whom it holds. delta: in total: that of the mechanism, for which the accountants compute
    epsilon, and the probability that any measured bound fails. bounds: that probability by the bound's name, over all
    uplinks; None where a ledger does not say it, and `delta` is then that of the mechanism alone.
    unaccounted: uplinks of which no account is on disk, and which count without the jammer for that reason.
    jammer: who it is. reason: why epsilon is infinite whatever the losses are, empty where it is not.
    """

    label: Label
    neighbours: Neighbours
    view: View
    delta: float
    bounds: dict[str, float] | None
    sigma_origin: str
    uplinks: int
    total_loss: float
    worst_client: int | None
    epsilon: dict[Accountant, float]
    epsilon_without_backoff: dict[Accountant, float]
    unaccounted: int = 0
    jammer: JammerTrust = JammerTrust.UNKNOWN
    reason: str = ""

    @property
    def mu(self) -> float:
        """Ratio of the one Gaussian mechanism that all uplinks together are: sqrt(2 S)."""
        return math.sqrt(2.0 * self.total_loss)

    @property
    def delta_bounds(self) -> float | None:
        """Probability that any measured bound of any uplink fails, at most; None where it is not known."""
        return None if self.bounds is None else math.fsum(self.bounds.values())

    @property
    def delta_mechanism(self) -> float:
        """What is left of delta for the mechanism."""
        return self.delta - (self.delta_bounds or 0.0)

    @property
    def conditions(self) -> str:
        """What must be read together with the number and its label, in one line."""
        said = (
            f"{self.neighbours.value} neighbours, view {self.view.value}, {self._delta_said}, sigma {self.sigma_origin}"
        )
        if self.reason:
            said = f"{said}; infinite because {self.reason}"
        if not self.unaccounted:
            return said
        return f"{said}, {self.unaccounted} of {self.uplinks} uplinks without account and so without a jammer's noise"

    @property
    def _delta_said(self) -> str:
        if self.bounds is None:
            return f"delta {self.delta:g} of the mechanism alone: how measured bounds may fail is not recorded"
        if not self.delta_bounds:
            return f"delta {self.delta:g}"
        return f"delta {self.delta:g} ({self.delta_mechanism:.3g} mechanism, {self.delta_bounds:.3g} measured bounds)"

    @property
    def notes(self) -> tuple[str, ...]:
        """What the claim rests on, in sentences."""
        return rests_on(self.view, self.jammer, noise_known=self.sigma_origin not in ("none", "unknown"))

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; infinite values as the string "inf"."""
        return {
            "epsilon": {name.value: json_number(value) for name, value in self.epsilon.items()},
            "epsilon_without_backoff": {
                name.value: json_number(value) for name, value in self.epsilon_without_backoff.items()
            },
            "label": self.label.value,
            "neighbours": self.neighbours.value,
            "view": self.view.value,
            "delta": self.delta,
            "delta_split": {"mechanism": self.delta_mechanism, "bounds": self.delta_bounds, "by_bound": self.bounds},
            "confidence": None if self.delta_bounds is None else max(0.0, 1.0 - self.delta_bounds),
            "sigma_origin": self.sigma_origin,
            "trust": list(self.notes),
            "jammer": self.jammer.value,
            "infinite_because": self.reason or None,
            "uplinks": self.uplinks,
            "unaccounted": self.unaccounted,
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
    unaccounted: int = 0,
    view: View | None = None,
    jammer: JammerTrust = JammerTrust.UNKNOWN,
) -> PrivacyStatement:
    """Compose `mechanisms` for every client and state the worst. unaccounted: how many of them are without account.

    delta: in total; accountants get what the bounds of all uplinks leave of it. view: that is claimed; where it is not
    given, the strongest for which all mechanisms hold. A claim for a view that one of them does not hold for is
    infinite, and so is one whose bounds leave nothing of delta.

    Where transmitters round and epsilon is beyond what dither can vouch for, rounding is charged without it
    (`fl.privacy.converters`).

    For Gaussian mechanisms every accountant is increasing in S, so the client with the largest S is the worst under
    all.
    """
    left = delta_left(delta, mechanisms)
    ratios = _ratios(mechanisms, sizes, label, neighbours, left)
    distinct = {id(mechanism): mechanism.without_backoff() for mechanism in _distinct(mechanisms)}
    free = _ratios([distinct[id(mechanism)] for mechanism in mechanisms], sizes, label, neighbours, left)
    # Losses that float64 does not hold are infinite.
    with np.errstate(over="ignore"):
        losses, free_losses = (0.5 * np.square(part).sum(axis=0) for part in (ratios, free))
    worst, worst_free = int(np.argmax(losses)), int(np.argmax(free_losses))
    origins = sorted({mechanism.sigma_origin.value for mechanism in mechanisms})
    view = view or strongest_view(mechanisms)
    bounds = bounds_by_name(mechanisms)
    reason = _infinite_because(mechanisms, view, delta, left)

    def epsilon(column: NDArray[np.float64]) -> dict[Accountant, float]:
        return {name: math.inf if reason else epsilon_of(name, column.tolist(), left) for name in accountants}

    return PrivacyStatement(
        label=label,
        neighbours=neighbours,
        view=view,
        delta=checked_delta(delta),
        bounds=bounds,
        sigma_origin="+".join(origins) if origins else "none",
        uplinks=len(mechanisms),
        total_loss=float(losses[worst]),
        worst_client=worst if losses[worst] > 0 else None,
        epsilon=epsilon(ratios[:, worst]),
        epsilon_without_backoff=epsilon(free[:, worst_free]),
        unaccounted=unaccounted,
        jammer=jammer if any(mechanism.alpha_cj > 0 for mechanism in mechanisms) else JammerTrust.NONE,
        reason=reason,
    )


def strongest_view(mechanisms: Sequence[RoundMechanism]) -> View:
    """The strongest adversary against whom all of them hold; `cells` where there are none."""
    held = bool(mechanisms) and all(mechanism.view is View.SAMPLES for mechanism in mechanisms)
    return View.SAMPLES if held else View.CELLS


def bounds_by_name(mechanisms: Sequence[RoundMechanism]) -> dict[str, float] | None:
    """Probability of failure over all uplinks, by name of the bound; None where one of them does not say."""
    total: dict[str, float] = {}
    for mechanism in mechanisms:
        if mechanism.bounds is None:
            return None
        for name, probability in mechanism.bounds:
            total[name] = total.get(name, 0.0) + probability
    return total


def delta_left(delta: float, mechanisms: Iterable[RoundMechanism]) -> float:
    """delta less the probability that any bound of any uplink fails; not above 0 where nothing is left.

    Bounds that are not known are left out: a statement says so.
    """
    return delta - math.fsum(mechanism.bounds_delta or 0.0 for mechanism in mechanisms)


def _infinite_because(mechanisms: Sequence[RoundMechanism], view: View, delta: float, left: float) -> str:
    weaker = sum(not mechanism.view.covers(view) for mechanism in mechanisms)
    if weaker:
        return f"{weaker} of {len(mechanisms)} uplinks are accounted for the view cells only"
    if left <= 0.0:
        return f"measured bounds may fail with {delta - left:.3g}, which leaves nothing of delta {delta:g}"
    return ""


def _ratios(
    mechanisms: Sequence[RoundMechanism], sizes: NDArray[np.int64], label: Label, neighbours: Neighbours, delta: float
) -> NDArray[np.float64]:
    """Delta/sigma, shape (uplinks, clients); without dither's help where epsilon at `delta` is beyond it."""
    smoothed = _composed(mechanisms, sizes, label, neighbours, smoothed=True)
    if label is Label.CLIENT or delta <= 0.0 or not any(mechanism.rounding for mechanism in mechanisms):
        return smoothed
    with np.errstate(over="ignore"):
        loss = float(0.5 * np.square(smoothed).sum(axis=0).max())
    if vouched_for(loss, delta):
        return smoothed
    return _composed(mechanisms, sizes, label, neighbours, smoothed=False)


def _composed(
    mechanisms: Sequence[RoundMechanism],
    sizes: NDArray[np.int64],
    label: Label,
    neighbours: Neighbours,
    *,
    smoothed: bool,
) -> NDArray[np.float64]:
    found = {
        id(mechanism): mechanism.noise_ratios(sizes, label, neighbours, smoothed=smoothed)
        for mechanism in _distinct(mechanisms)
    }
    rows = [found[id(mechanism)] for mechanism in mechanisms]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(sizes))


def _distinct(mechanisms: Sequence[RoundMechanism]) -> list[RoundMechanism]:
    """Each once, where one stands for many uplinks."""
    return list({id(mechanism): mechanism for mechanism in mechanisms}.values())
