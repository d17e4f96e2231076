"""How long the trials took: from the sweep's timing.json, or from the metrics of a single run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fl.errors import ModelError, RunFolderError
from fl.report.sources import Curve, Study, Trial
from fl.sweep.estimate import Estimate


@dataclass(frozen=True)
class TimingRow:
    """Of one curve's trials. wall, cpu: seconds a trial; cpu is None where it was not kept. uplinks: of all trials.

    flops_per_cpu_second: of the plain algorithm's products (`fl.run.arithmetic`); None where it is not known.
    """

    curve: Curve
    trials: int
    uplinks: int
    wall: Estimate
    cpu: Estimate | None
    flops_per_cpu_second: float | None

    @property
    def seconds_per_uplink(self) -> float:
        """Wall time of an uplink, all else that a trial does included."""
        return self.wall.mean * self.trials / self.uplinks if self.uplinks else float("nan")


@dataclass(frozen=True)
class Timing:
    """Of a study. wall_seconds, cores, jobs: of the sweep as a whole; None where it was a single run.

    sgemm_flops_per_second: of one core here and now; None where it was not measured.
    """

    rows: tuple[TimingRow, ...]
    wall_seconds: float | None
    cpu_seconds: float | None
    cores: int | None
    jobs: int | None
    sgemm_flops_per_second: float | None

    def times_sgemm(self, row: TimingRow) -> float | None:
        """CPU time of the row's trials relative to what the plain algorithm's products alone would take here."""
        if self.sgemm_flops_per_second is None or not row.flops_per_cpu_second:
            return None
        return self.sgemm_flops_per_second / row.flops_per_cpu_second


def timing_of(study: Study, sgemm_flops_per_second: float | None = None) -> Timing:
    """Rows for the curves of which a time is known."""
    if not study.timing:
        rows = tuple(_from_metrics(curve) for curve in study.filled)
        return Timing(rows, None, None, None, None, sgemm_flops_per_second)
    try:
        entries = [
            (str(entry["point"]), int(entry["trial"]), float(entry["wall_seconds"]), float(entry["cpu_seconds"]))
            for entry in study.timing["trials"]
        ]
        rows = tuple(row for curve in study.filled if (row := _from_entries(curve, entries)))
        return Timing(
            rows=rows,
            wall_seconds=float(study.timing["wall_seconds"]),
            cpu_seconds=sum(cpu for *_, cpu in entries),
            cores=_count(study.timing, "cores"),
            jobs=_count(study.timing, "jobs"),
            sgemm_flops_per_second=sgemm_flops_per_second,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RunFolderError(
            f"{study.path / 'timing.json'} cannot be read: {error!r}; restore it or remove it"
        ) from error


def _count(timing: Mapping[str, Any], key: str) -> int | None:
    return None if timing.get(key) is None else int(timing[key])


def _from_entries(curve: Curve, entries: list[tuple[str, int, float, float]]) -> TimingRow | None:
    trials = {trial.number: trial for trial in curve.trials}
    mine = [entry for entry in entries if entry[0] == curve.point.slug and entry[1] in trials]
    if not mine:
        return None
    cpu = Estimate.of([cpu for *_, cpu in mine])
    flops = [_flops(trials[number]) for _, number, _, _ in mine]
    rate = None if None in flops or not cpu.mean > 0 else sum(filter(None, flops)) / (cpu.mean * len(mine))
    return TimingRow(
        curve=curve,
        trials=len(mine),
        uplinks=sum(trials[number].uplinks for _, number, _, _ in mine),
        wall=Estimate.of([wall for _, _, wall, _ in mine]),
        cpu=cpu,
        flops_per_cpu_second=rate,
    )


def _flops(trial: Trial) -> float | None:
    from fl.run.arithmetic import flops_per_uplink_of

    try:
        return trial.uplinks * flops_per_uplink_of(trial.folder)
    except ModelError:
        return None


def _from_metrics(curve: Curve) -> TimingRow:
    return TimingRow(
        curve=curve,
        trials=len(curve.trials),
        uplinks=sum(trial.uplinks for trial in curve.trials),
        wall=Estimate.of([float(trial.metrics["seconds"].sum()) for trial in curve.trials]),
        cpu=None,
        flops_per_cpu_second=None,
    )
