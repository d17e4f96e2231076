"""Curves under Liu and Simeone's power control: epsilon as they count it, and what their rule did."""

from collections.abc import Sequence
from dataclasses import dataclass

from fl.errors import RunFolderError
from fl.privacy.accountant import Accountant
from fl.privacy.liu_simeone import state_published
from fl.privacy.sensitivity import Label, Neighbours
from fl.report.privacy import Span
from fl.report.sources import Curve, Trial
from fl.run.folder import ALLOCATION
from fl.uplink.modes import PowerControl


@dataclass(frozen=True)
class BaselineRow:
    """One curve at one delta. published: epsilon by their accountant, smallest and largest over the trials.

    privacy_free: trials in which the budget does not bind. limited: uplinks whose power the weakest channel limits, of
    all `uplinks` that were planned.
    """

    curve: Curve
    claim: float | None
    delta: float
    label: Label
    neighbours: Neighbours
    published: Span
    privacy_free: int
    limited: int
    uplinks: int


def baseline_rows(curve: Curve) -> list[BaselineRow]:
    """For each claim, or at the config's delta where there is none; nothing for curves under another rule."""
    if curve.config.power.control is not PowerControl.LIU_SIMEONE:
        return []
    claims: Sequence[tuple[float | None, float]] = curve.point.claims or [(None, curve.config.privacy.delta)]
    planned = [_allocation(trial) for trial in curve.trials]
    rows = []
    for claim, delta in claims:
        said = [
            state_published(trial.ledger.mechanisms, trial.ledger.header.sizes_array, delta=delta)
            for trial in curve.trials
        ]
        rows.append(
            BaselineRow(
                curve=curve,
                claim=claim,
                delta=delta,
                label=said[0].label,
                neighbours=said[0].neighbours,
                published=Span.of([statement.epsilon[Accountant.LIU_SIMEONE] for statement in said]),
                privacy_free=sum(free for free, _, _ in planned),
                limited=sum(limited for _, limited, _ in planned),
                uplinks=sum(uplinks for _, _, uplinks in planned),
            )
        )
    return rows


def _allocation(trial: Trial) -> tuple[bool, int, int]:
    data = trial.folder.read_json(ALLOCATION)
    try:
        return bool(data["privacy_free"]), int(data["uplinks_limited_by_power"]), int(data["uplinks"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{trial.folder.path / ALLOCATION} is damaged: {error!r}; restore it") from error
