"""A sweep in numbers: what its finished trials came to, point by point."""

import math
from dataclasses import dataclass
from typing import Any

from fl.errors import RunFolderError
from fl.sweep.estimate import Estimate
from fl.sweep.plan import Point, SweepFolder
from fl.sweep.score import ACCURACY


@dataclass(frozen=True)
class PointSummary:
    """The finished trials of one point.

    accuracy: at the end; score: what it is (`Target.score`). epsilon: by accountant, the largest of the trials, under
    the claimed label; channels and partitions differ by trial.
    """

    point: Point
    trials: tuple[int, ...]
    accuracy: Estimate
    score: str
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
            "accuracy": self.accuracy.mean,
            "accuracy_interval_95": self.accuracy.half,
            "score": self.score,
            "epsilon": {name: value if math.isfinite(value) else str(value) for name, value in self.epsilon.items()},
            "accountant": self.accountant,
            "label": self.label,
            "neighbours": self.neighbours,
            "delta": self.delta,
            "model_sha256": list(self.model_sha256),
        }


def summarise_sweep(folder: SweepFolder) -> list[PointSummary]:
    """Every point of the sweep that has a finished trial."""
    finished = [(point, folder.finished(point)) for point in folder.plan().points]
    return [_summarise(folder, point, trials) for point, trials in finished if trials]


def _summarise(folder: SweepFolder, point: Point, trials: list[int]) -> PointSummary:
    results = [folder.run_folder(point, trial).read_json("result.json") for trial in trials]
    try:
        first = results[0]
        return PointSummary(
            point=point,
            trials=tuple(trials),
            accuracy=Estimate.of([float(result["accuracy"]) for result in results]),
            score=str(first.get("score", ACCURACY)),
            accountant=point.config.privacy.accountant.value,
            epsilon={name: max(float(result["epsilon"][name]) for result in results) for name in first["epsilon"]},
            label=first["label"],
            neighbours=first["neighbours"],
            delta=first["delta"],
            model_sha256=tuple(result["model_sha256"] for result in results),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"a result.json in {folder.path / point.slug} is damaged: {error!r}") from error
