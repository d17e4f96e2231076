"""A run from its beginning to its end: its folder, its parts and radios, its trackers, and its course."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl.cluster.access import Access
from fl.errors import RunFolderError
from fl.learning.workforce import Workforce, cores
from fl.privacy.conditions import View
from fl.privacy.ledger import read_ledger
from fl.run.apart.attendance import NodesElsewhere, attending
from fl.run.apart.uplink import make_apart_uplink
from fl.run.assemble import Parts, assemble, assemble_server
from fl.run.captures import CaptureFolder
from fl.run.charging import begin_folder
from fl.run.config import RunConfig
from fl.run.course.metrics import UplinkMetrics
from fl.run.course.result import RunResult
from fl.run.course.uplinks import Course
from fl.run.folder import ALLOCATION, RunFolder, created, is_unused, locked, refuse_links
from fl.run.journal import journal_of
from fl.run.training import ThreadedTraining, Training, canaried_by, trained_by
from fl.tracking.tracker import Tracked, flattened, make_trackers, tracking
from fl.uplink.contract import Uplink


def default_folder(config: RunConfig) -> Path:
    """Where a run goes that nobody has given a place: runs/NAME-TIME."""
    return Path("runs") / f"{config.name}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"


def run_experiment(
    config: RunConfig,
    out: Path | None,
    *,
    resume: bool = False,
    on_uplink: Callable[[UplinkMetrics], None] | None = None,
    elsewhere: NodesElsewhere | None = None,
    access: Access | None = None,
) -> RunResult:
    """Run `config` in the folder `out` (default: runs/NAME-TIME); with `resume`, go on where its run stopped.

    elsewhere: where clients and jammer are processes of their own, how they are reached. access: to the cluster of
    `local.workers`; None: by its address, with the certificates that Dask's own configuration names.
    """
    if out is None:
        if resume:
            raise RunFolderError("--resume needs --out: the folder of the run that shall go on")
        out = default_folder(config)
    folder = RunFolder(out)
    fresh = is_unused(out)
    if not fresh:
        refuse_links(out)
        _check_same_run(folder, config, resume=resume)
    trackers = make_trackers(config.tracking.to)
    with ExitStack() as stack:
        parts = _parts(config, elsewhere, stack)
        if not fresh:
            parts.inputs.require_same(folder)
            stack.enter_context(locked(folder))
            CaptureFolder.of(folder.path).clean()
        # Before the radios: they are closed first then, and all that is measured depends on its threads alike.
        training = _training(config, parts, access, stack)
        # Radios that do not answer, or are not what they should be, leave nothing behind.
        journal = stack.enter_context(journal_of(folder, config))
        uplink = stack.enter_context(parts.open_uplink(journal))
        if fresh:
            _create(folder, config, parts, uplink.view)
            stack.enter_context(locked(folder))
        told = stack.enter_context(
            tracking(trackers, _tracked(folder, config, uplink), everything=config.tracking.metrics == "all")
        )

        def say(metrics: UplinkMetrics) -> None:
            told.uplink(asdict(metrics))
            if on_uplink is not None:
                on_uplink(metrics)

        going = Course(folder, config, parts, uplink, training, journal, say, resumed=not fresh)
        with going.ledger:
            result = going.go()
        told.finish(result.status, {"accuracy": result.accuracy, "test_loss": result.test_loss})
        return result


def _tracked(folder: RunFolder, config: RunConfig, uplink: Uplink) -> Tracked:
    """What trackers are told of a run; an epsilon needs all of [privacy], its label and its view beside it."""
    settings = {**flattened(config.model_dump(mode="json")), "label": config.label.value, "view": uplink.view.value}
    return Tracked(config.name, folder.path, settings)


def _parts(config: RunConfig, elsewhere: NodesElsewhere | None, stack: ExitStack) -> Parts:
    if elsewhere is None:
        return assemble(config)
    attendance = stack.enter_context(attending(config, elsewhere))
    return assemble_server(
        config, attendance.sizes, lambda calibration, d: make_apart_uplink(config, attendance, calibration, d)
    )


def _training(config: RunConfig, parts: Parts, access: Access | None, stack: ExitStack) -> Training:
    # Here too where others train: all that is measured depends on the number of threads.
    workforce = stack.enter_context(Workforce(config.local.threads or cores()))
    if config.local.cluster is not None:
        from fl.run.cluster.training import training_on

        return stack.enter_context(training_on(access or Access(config.local.cluster), config))
    if parts.canaries is None:
        return ThreadedTraining(workforce, trained_by(parts, config))
    backgrounds: dict[int, NDArray[np.float64]] = {}
    return ThreadedTraining(workforce, canaried_by(parts, parts.canaries, backgrounds), backgrounds)


def _check_same_run(folder: RunFolder, config: RunConfig, *, resume: bool) -> None:
    if not folder.config_path.exists():
        raise RunFolderError(f"{folder.path} is not the folder of a run, and not empty: choose a new folder with --out")
    held = folder.config()
    if held.digest() != config.digest():
        others = ", ".join(held.differing_keys(config))
        own = f", or go on with its own config, {folder.config_path}" if resume else ""
        raise RunFolderError(
            f"{folder.path} holds another run (differs in {others}): choose another folder with --out{own}"
        )
    # What never sent anything, because its radios failed, need not be in the way of another try.
    if not resume and _has_sent(folder):
        raise RunFolderError(
            f"{folder.path} already holds this run: add --resume (in Python: resume=True) to go on, or choose another "
            "folder with --out"
        )


def _has_sent(folder: RunFolder) -> bool:
    return folder.checkpoint_path.exists() or read_ledger(folder.ledger_path).authorised > 0


def _create(folder: RunFolder, config: RunConfig, parts: Parts, view: View) -> None:
    with created(folder.path) as scratch:
        begin_folder(scratch, config, parts.inputs, parts.sizes, view)
        scratch.write_json("partition.json", {"data_sha256": parts.dataset.fingerprint(), **parts.statistics})
        if parts.allocation is not None:
            scratch.write_json(ALLOCATION, parts.allocation.to_json())
