"""What a report is made of: folders of sweeps and of single runs, read and checked, never written.

Only finished trials of a sweep count, so that every curve is a mean of whole runs; the others are named. A single run
that has not finished is shown as far as it came. A file that contradicts another is refused by name: a report of it
would state a privacy that nobody has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import LedgerError, RunFolderError
from fl.privacy.ledger import LedgerContents, read_ledger
from fl.run.config import RunConfig, digest_of
from fl.run.folder import RunFolder
from fl.sweep.plan import Point, SweepFolder
from fl.sweep.score import ACCURACY, Score, score_of
from hardware.foundation.documents import read_toml
from phy.errors import AirdpError

_COLUMNS = (
    "uplink",
    "rounds",
    "accuracy",
    "loss",
    "test_loss",
    "epsilon",
    "alpha_u",
    "alpha_cj",
    "postponed",
    "backoff_max",
    "backed_off",
    "clipped",
    "weight_received",
    "signal_norm",
    "noise_norm",
    "seconds",
)
_FINAL = ("accuracy", "loss", "test_loss")


def printable(text: str) -> str:
    """One line of `text` that page and pictures can show: what is not a visible character becomes U+FFFD."""
    line = " ".join(text.split())
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line)


@dataclass(frozen=True)
class Trial:
    """One run. metrics: a column of metrics.jsonl by name, float64 (uplinks,). senders: clients that sent, (uplinks,).

    status: of result.json, or that it is unfinished. model_sha256: None until it has finished. final: accuracy, loss
    and test_loss of the last model. score: what its accuracy is (`Target.score`).
    """

    number: int
    folder: RunFolder
    config: RunConfig
    metrics: Mapping[str, NDArray[np.float64]]
    senders: NDArray[np.int64]
    ledger: LedgerContents
    status: str
    final: Mapping[str, float]
    score: str
    model_sha256: str | None
    data_sha256: str
    versions: Mapping[str, Any]

    @property
    def finished(self) -> bool:
        """Whether it has a result."""
        return self.model_sha256 is not None

    @property
    def uplinks(self) -> int:
        """Uplinks that were made."""
        return len(self.metrics["uplink"])

    @property
    def rounds(self) -> int:
        """Model steps that were made."""
        return int(self.metrics["rounds"][-1]) if self.uplinks else 0


@dataclass(frozen=True)
class Curve:
    """A point of the sweep with its finished trials; none where all are missing."""

    point: Point
    trials: tuple[Trial, ...]

    @property
    def name(self) -> str:
        """What tells the point from the others."""
        return printable(self.point.name)

    @property
    def config(self) -> RunConfig:
        """As resolved, with the seed of trial 1."""
        return self.point.config


@dataclass(frozen=True)
class Study:
    """A sweep, or a single run as a sweep with one point and one trial.

    missing: what was planned and is not there. timing: content of timing.json, empty where there is none.
    """

    path: Path
    name: str
    title: str
    description: str
    axes: tuple[str, ...]
    planned_trials: int
    curves: tuple[Curve, ...]
    missing: tuple[str, ...]
    timing: Mapping[str, Any]
    is_sweep: bool

    @property
    def folder_name(self) -> str:
        """Last part of the path: a page that is passed on should not tell where it was made."""
        return self.path.resolve().name

    @property
    def filled(self) -> tuple[Curve, ...]:
        """Curves with at least one trial."""
        return tuple(curve for curve in self.curves if curve.trials)

    @property
    def score(self) -> Score:
        """What `accuracy` is in its trials."""
        return score_of(trial.score for curve in self.filled for trial in curve.trials)


def read_study(path: Path) -> Study:
    """Read the folder of a sweep or of a run; raises an `AirdpError` that names what cannot be used."""
    if (path / "sweep.json").is_file():
        return _read_sweep(SweepFolder(path))
    if (path / "config.toml").is_file():
        return _read_run(RunFolder(path))
    raise RunFolderError(
        f"{path} is neither the folder of a sweep (no sweep.json in it) nor of a run (no config.toml): "
        "give a folder that `airdp sweep` or `airdp run` has made"
    )


def _read_sweep(folder: SweepFolder) -> Study:
    plan = folder.plan()
    curves, missing = [], []
    for point in plan.points:
        finished = sorted(folder.finished(point))
        curves.append(
            Curve(
                point,
                tuple(_read_trial(folder.run_folder(point, t), t, point.trial_config(t)) for t in finished),
            )
        )
        missing += [
            _missing_trial(folder.run_folder(point, trial), point, trial)
            for trial in range(1, plan.trials + 1)
            if trial not in finished
        ]
    if not any(curve.trials for curve in curves):
        raise RunFolderError(
            f"no trial of the sweep in {folder.path} has finished: there is nothing to report yet; "
            "go on with `airdp sweep ... --resume`"
        )
    return Study(
        path=folder.path,
        name=plan.name,
        title=printable(plan.title or plan.name),
        description=printable(plan.description),
        axes=plan.axes,
        planned_trials=plan.trials,
        curves=tuple(curves),
        missing=tuple(missing),
        timing=folder.timing(),
        is_sweep=True,
    )


def _missing_trial(folder: RunFolder, point: Point, trial: int) -> str:
    try:
        begun = len(folder.metrics())
        state = f"stopped or running, {begun} of {point.config.last_uplink} uplinks made" if begun else "not begun"
    except RunFolderError:
        state = "stopped, and its metrics.jsonl is damaged"
    return f"{printable(point.name)}, trial {trial}: {state}"


def _read_run(folder: RunFolder) -> Study:
    config = folder.config()
    folder.require_run()
    trial = _read_trial(folder, 1, config)
    if not trial.uplinks and not trial.finished:
        raise RunFolderError(
            f"the run in {folder.path} has not finished an uplink: there is nothing to report yet; "
            "go on with `airdp run ... --resume`"
        )
    unfinished = f"the run: stopped or running, {trial.uplinks} of {config.last_uplink} uplinks made"
    return Study(
        path=folder.path,
        name=config.name,
        title=config.name,
        description=printable(config.description),
        axes=(),
        planned_trials=1,
        curves=(Curve(Point(slug=config.name.lower(), labels=(), claims=(), config=config), (trial,)),),
        missing=() if trial.finished else (unfinished,),
        timing={},
        is_sweep=False,
    )


def _read_trial(folder: RunFolder, number: int, planned: RunConfig) -> Trial:
    config = folder.config()
    if config.digest() != planned.digest():
        raise RunFolderError(
            f"{folder.path} was not run with the config that its sweep plans for it: restore it, or start the sweep "
            "anew in another folder"
        )
    rows = folder.metrics()
    result = _read_object(folder, "result.json") if (folder.path / "result.json").exists() else None
    partition, versions = _read_object(folder, "partition.json"), _read_object(folder, "versions.json")
    ledger = read_ledger(folder.ledger_path)
    try:
        metrics = {name: np.array([float(row[name]) for row in rows]) for name in _COLUMNS}
        jamming = np.array([row["jamming_client"] is not None for row in rows], dtype=np.int64)
        last = rows[-1] if rows else (result or dict.fromkeys(_FINAL, "nan"))
        final = {name: float(last[name]) for name in _FINAL}
        charged, made = (None, None) if result is None else (result["transmissions_charged"], result["uplinks"])
        status, model_sha256 = ("unfinished", None) if result is None else (result["status"], result["model_sha256"])
        data_sha256, score = partition["data_sha256"], str(partition.get("score", ACCURACY))
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(
            f"{folder.path} holds a metrics.jsonl, result.json or partition.json that is damaged: {error!r}"
        ) from error
    _check_ledger(folder, ledger, metrics["uplink"], charged)
    if made is not None and made != len(rows):
        raise RunFolderError(
            f"{folder.metrics_path} has {len(rows)} lines and result.json says {made} uplinks: the folder is damaged"
        )
    return Trial(
        number=number,
        folder=folder,
        config=config,
        metrics=metrics,
        senders=len(ledger.header.sizes) - jamming,
        ledger=ledger,
        status=str(status),
        final=final,
        score=score,
        model_sha256=None if model_sha256 is None else str(model_sha256),
        data_sha256=str(data_sha256),
        versions=versions,
    )


def _read_object(folder: RunFolder, name: str) -> dict[str, Any]:
    data = folder.read_json(name)
    if not isinstance(data, dict):
        raise RunFolderError(f"{folder.path / name} is damaged: expected an object")
    return data


def _check_ledger(folder: RunFolder, ledger: LedgerContents, uplinks: NDArray[np.float64], charged: int | None) -> None:
    """Refuse a ledger that is whole but not this run's, or that was cut at its end. charged: as result.json has it."""
    path = folder.ledger_path
    if ledger.header.config_sha256 != digest_as_written(folder.config_path):
        raise LedgerError(f"ledger {path} belongs to a run with another config than the one beside it")
    missing = sorted({int(uplink) for uplink in uplinks} - {mechanism.uplink for mechanism in ledger.mechanisms})
    if missing or (charged is not None and charged != ledger.authorised):
        what = f"uplink {missing[0]} is not in it" if missing else f"it has {ledger.authorised} transmissions"
        expected = "" if missing else f", result.json says {charged}"
        raise LedgerError(f"ledger {path} was cut or replaced: {what}{expected}; the privacy of this run is unknown")


def digest_as_written(config_path: Path) -> str:
    """What `RunConfig.digest` was when the file was written: keys that airdp has got since then are not in it."""
    return digest_of(read_toml(config_path))


def read_studies(paths: Sequence[Path]) -> tuple[Study, ...]:
    """All of `paths`, in their order; raises `AirdpError` where there is none or one is given twice."""
    if not paths:
        raise AirdpError("no folder given: name at least one folder of a sweep or of a run")
    resolved = [path.resolve() for path in paths]
    twice = [path for path, real in zip(paths, resolved, strict=True) if resolved.count(real) > 1]
    if twice:
        raise RunFolderError(f"{twice[0]} is given twice: name each folder once")
    return tuple(read_study(path) for path in paths)
