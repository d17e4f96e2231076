"""A sweep in numbers: what its finished trials came to, point by point."""

import math
import statistics
from dataclasses import dataclass
from typing import Any

from fl.errors import RunFolderError
from fl.experiment.sweep_plan import Point, SweepFolder


@dataclass(frozen=True)
class PointSummary:
    """The finished trials of one point.

    accuracy: mean at the end. accuracy_interval: half the width of its 95 % interval (Student), None for one trial.
    epsilon: by accountant, the largest of the trials, under the claimed label; channels and partitions differ by trial.
    """

    point: Point
    trials: tuple[int, ...]
    accuracy: float
    accuracy_interval: float | None
    accountant: str
    epsilon: dict[str, float]
    label: str
    neighbours: str
    delta: float
    model_sha256: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """One entry of what `airdp sweep --json` prints; an infinite epsilon is the string inf."""
        return {
            "point": self.point.slug,
            "name": self.point.name,
            "labels": dict(self.point.labels),
            "trials": list(self.trials),
            "accuracy": self.accuracy,
            "accuracy_interval_95": self.accuracy_interval,
            "epsilon": {name: value if math.isfinite(value) else str(value) for name, value in self.epsilon.items()},
            "accountant": self.accountant,
            "label": self.label,
            "neighbours": self.neighbours,
            "delta": self.delta,
            "model_sha256": list(self.model_sha256),
        }


def summarise(folder: SweepFolder) -> list[PointSummary]:
    """Every point of the sweep that has a finished trial."""
    finished = [(point, folder.finished(point)) for point in folder.plan().points]
    return [_summarise(folder, point, trials) for point, trials in finished if trials]


def _summarise(folder: SweepFolder, point: Point, trials: list[int]) -> PointSummary:
    results = [folder.run_folder(point, trial).read_json("result.json") for trial in trials]
    try:
        accuracies = [float(result["accuracy"]) for result in results]
        first = results[0]
        return PointSummary(
            point=point,
            trials=tuple(trials),
            accuracy=statistics.fmean(accuracies),
            accuracy_interval=half_interval_95(accuracies),
            accountant=point.config.privacy.accountant.value,
            epsilon={name: max(float(result["epsilon"][name]) for result in results) for name in first["epsilon"]},
            label=first["label"],
            neighbours=first["neighbours"],
            delta=first["delta"],
            model_sha256=tuple(result["model_sha256"] for result in results),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"a result.json in {folder.path / point.slug} is damaged: {error!r}") from error


def half_interval_95(values: list[float]) -> float | None:
    """Half the width of the 95 % confidence interval of the mean, by Student's t; None for a single value."""
    from scipy.stats import t

    if len(values) < 2:
        return None
    return float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
