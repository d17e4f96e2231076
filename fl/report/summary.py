"""Every number of a report, before it becomes a page or JSON."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from fl.report.baseline import BaselineRow, baseline_rows
from fl.report.power import JammerRow, PowerRow, jammer_row, power_row
from fl.report.privacy import PrivacyRow, privacy_rows
from fl.report.settings import Settings, settings_of
from fl.report.sources import Curve, Study
from fl.report.statistics import Difference, Outcome, differences, outcome
from fl.report.theory import CurveBound, bounds_of
from fl.report.timing import Timing, timing_of


@dataclass(frozen=True)
class Summary:
    """A study, evaluated. bounds: None where they were not asked for."""

    study: Study
    outcomes: tuple[Outcome, ...]
    differences: tuple[Difference, ...]
    privacy: tuple[PrivacyRow, ...]
    baseline: tuple[BaselineRow, ...]
    power: tuple[PowerRow, ...]
    jammer: tuple[JammerRow, ...]
    bounds: tuple[CurveBound, ...] | None
    timing: Timing
    settings: Settings


def summarise_study(
    study: Study, on_progress: Callable[[str, float], None] | None, sgemm_flops_per_second: float | None = None
) -> Summary:
    """Evaluate all curves that have a trial; the convergence bound only with `on_progress`, which it calls."""
    curves = study.filled
    return Summary(
        study=study,
        outcomes=tuple(outcome(curve) for curve in curves),
        differences=tuple(differences(curves)),
        privacy=tuple(row for curve in curves for row in privacy_rows(curve)),
        baseline=tuple(row for curve in curves for row in baseline_rows(curve)),
        power=tuple(row for row in map(power_row, curves) if row),
        jammer=tuple(row for row in map(jammer_row, curves) if row),
        bounds=None if on_progress is None else bounds_of(study, on_progress),
        timing=timing_of(study, sgemm_flops_per_second),
        settings=settings_of(study),
    )


def as_json(summary: Summary) -> dict[str, Any]:
    """What `airdp report --json` says about a study; curves by name, infinite values as "inf", unknown ones as null."""
    study = summary.study
    return {
        "name": study.name,
        "title": study.title,
        "folder": str(study.path),
        "score": study.score.name,
        "planned_trials": study.planned_trials,
        "missing": list(study.missing),
        "curves": [
            {
                "curve": curve.name,
                "slug": curve.point.slug,
                "labels": dict(curve.point.labels),
                "trials": [trial.number for trial in curve.trials],
            }
            for curve in study.curves
        ],
        "outcomes": _ready(summary.outcomes),
        "differences": [{**_ready(row), "verdict": row.verdict} for row in summary.differences],
        "privacy": [
            {**_ready(row), "deviation": _ready(row.deviation(row.paper)), "agrees": row.agrees(row.paper)}
            for row in summary.privacy
        ],
        "baseline": _ready(summary.baseline),
        "power": _ready(summary.power),
        "jammer": _ready(summary.jammer),
        "bounds": _ready(summary.bounds),
        "timing": _ready(summary.timing),
    }


def _ready(value: Any) -> Any:
    """JSON-ready, whatever dataclasses it is made of."""
    if isinstance(value, Curve):
        return value.name
    if dataclasses.is_dataclass(value):
        return {field.name: _ready(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _ready(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_ready(part) for part in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value
