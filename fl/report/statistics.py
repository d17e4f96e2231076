"""Means over trials with their uncertainty, and differences between curves that share their trials' seeds.

Every interval is that of `fl.sweep.estimate`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fl.report.sources import Curve, Trial, printable
from fl.sweep.estimate import LEAST_TRIALS, Estimate, half_width


@dataclass(frozen=True)
class Band:
    """A curve over uplinks 1..M: mean over the trials that made the uplink, half: NaN where there is no interval.

    rounds: model steps after each uplink. trials: how many made it. All of shape (M,).
    """

    uplinks: NDArray[np.int64]
    rounds: NDArray[np.int64]
    mean: NDArray[np.float64]
    half: NDArray[np.float64]
    trials: NDArray[np.int64]


def band(curve: Curve, metric: str) -> Band:
    """Mean of a column of the metrics over trials, uplink by uplink; trials of a budget may end early."""
    lengths = np.array([trial.uplinks for trial in curve.trials])
    longest = curve.trials[int(lengths.argmax())]
    mean, half = np.empty(lengths.max()), np.empty(lengths.max())
    # Between two lengths the same trials count.
    start = 0
    for stop in np.unique(lengths):
        block = np.array([trial.metrics[metric][start:stop] for trial in curve.trials if trial.uplinks >= stop])
        mean[start:stop], half[start:stop] = block.mean(axis=0), half_width(block)
        start = stop
    return Band(
        uplinks=longest.metrics["uplink"].astype(np.int64),
        rounds=longest.metrics["rounds"].astype(np.int64),
        mean=mean,
        half=half,
        trials=np.array([(lengths >= uplink).sum() for uplink in range(1, lengths.max() + 1)], dtype=np.int64),
    )


@dataclass(frozen=True)
class Outcome:
    """The last model of a curve's trials; accuracy as `Study.score` says, at best 1."""

    curve: Curve
    accuracy: Estimate
    loss: Estimate
    test_loss: Estimate
    uplinks: tuple[int, int]
    rounds: tuple[int, int]


def outcome(curve: Curve) -> Outcome:
    """For a curve with at least one trial; uplinks and rounds: fewest and most."""

    def estimate(name: str) -> Estimate:
        return Estimate.of([trial.final[name] for trial in curve.trials])

    uplinks, rounds = [trial.uplinks for trial in curve.trials], [trial.rounds for trial in curve.trials]
    return Outcome(
        curve=curve,
        accuracy=estimate("accuracy"),
        loss=estimate("loss"),
        test_loss=estimate("test_loss"),
        uplinks=(min(uplinks), max(uplinks)),
        rounds=(min(rounds), max(rounds)),
    )


@dataclass(frozen=True)
class Difference:
    """Final accuracy of A less that of B, trial by trial.

    axis: in which they differ; at: the values of the other axes, which they share. ahead, level: trials in which A is
    better, or both are the same.
    """

    axis: str
    at: str
    a: str
    b: str
    estimate: Estimate
    ahead: int
    level: int

    @property
    def verdict(self) -> str:
        """What the interval says."""
        if self.estimate.half is None:
            return f"open: fewer than {LEAST_TRIALS} trials"
        if abs(self.estimate.mean) <= self.estimate.half:
            return "open"
        return f"{self.a if self.estimate.mean > 0 else self.b} ahead"


def differences(curves: Sequence[Curve]) -> list[Difference]:
    """Each pair of curves that differ in one axis, over the trials that both have with the same seed; axis by axis."""
    found = []
    for first, second in combinations(curves, 2):
        labels = list(zip(first.point.labels, second.point.labels, strict=True))
        changed = [number for number, (one, other) in enumerate(labels) if one != other]
        pairs = _paired(first.trials, second.trials)
        if len(changed) != 1 or not pairs:
            continue
        (axis, a), (_, b) = labels[changed[0]]
        at = ", ".join(value for number, ((_, value), _) in enumerate(labels) if number != changed[0])
        gaps = np.array([one.final["accuracy"] - other.final["accuracy"] for one, other in pairs])
        ahead, level = int((gaps > 0).sum()), int((gaps == 0).sum())
        row = Difference(printable(axis), printable(at), printable(a), printable(b), Estimate.of(gaps), ahead, level)
        found.append((changed[0], row))
    places = {row.at: number for number, (_, row) in reversed(list(enumerate(found)))}
    return [row for _, row in sorted(found, key=lambda entry: (entry[0], places[entry[1].at]))]


def _paired(first: Sequence[Trial], second: Sequence[Trial]) -> list[tuple[Trial, Trial]]:
    by_key = {(trial.number, trial.config.seed): trial for trial in second}
    return [(a, by_key[a.number, a.config.seed]) for a in first if (a.number, a.config.seed) in by_key]
