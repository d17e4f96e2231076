"""Run a sweep: every trial of every point, on processes of this machine or on a cluster, into one folder.

Everything that can be wrong shows before the first trial starts. After that each trial is a run folder of its own, and
`resume` goes on with whatever is missing, be it after a failed trial, an interrupt or a crash of any process.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from fl.cluster.access import Access
from fl.cluster.connection import dask_log, remote_workers, worker_threads
from fl.errors import ConfigError, RunFolderError, SweepError
from fl.learning.workforce import cores
from fl.run.assemble import assemble
from fl.run.cluster.agreement import check_workers
from fl.run.cluster.expectation import Expected, expect
from fl.run.config import RunConfig, UplinkKind
from fl.run.folder import RunFolder, created, is_unused, locked, refuse_links
from fl.sweep.cluster import DaskCrew
from fl.sweep.crew import Crew
from fl.sweep.local import local_crew
from fl.sweep.plan import LOG_FILE, PLAN_FILE, Point, SweepFolder, SweepPlan
from fl.sweep.session import Session, SweepProgress
from fl.sweep.worker import TrialTask
from hardware.foundation.durable import make_folders
from hardware.lab.file import find_lab
from phy.errors import AirdpError

_FLAG = ".running-"


def run_sweep(
    plan: SweepPlan,
    out: Path,
    *,
    jobs: int | None = None,
    cluster: Access | None = None,
    resume: bool = False,
    on_progress: Callable[[SweepProgress], None] | None = None,
) -> SweepFolder:
    """Run `plan` into the folder `out`; with `resume`, only what the folder lacks.

    jobs: trials at the same time on this machine, one per core if None. cluster: a Dask scheduler to run on instead;
    results are the same. A script that calls this needs an `if __name__ == "__main__":` guard, because the workers are
    processes that import it. Raises an `AirdpError` for whatever the caller can mend.
    """
    started = time.perf_counter()
    folder = SweepFolder(out.absolute())
    fresh = check_folder(folder.path, plan, resume=resume)
    refuse_links(folder.path)
    finished = {point.slug: folder.finished(point) for point in plan.points}
    # All points advance together, so that a sweep that is cut short can be compared.
    missing = [
        (point, number)
        for number in range(1, plan.trials + 1)
        for point in plan.points
        if number not in finished[point.slug]
    ]
    points = {point.slug: point for point, _ in missing}
    jobs = _check_jobs(points.values(), jobs, cluster)
    if cluster is not None:
        cluster.check()
    expected = {slug: _prepare(point, plan, cluster) for slug, point in points.items()}
    if not missing:
        with locked(RunFolder(folder.path)):
            _keep_plan(folder, plan)
        return folder
    with _crew(folder, cluster, min(jobs, len(missing)), list(filter(None, expected.values()))) as (crew, workers):
        if fresh:
            with created(folder.path) as scratch:
                scratch.write_json(PLAN_FILE, plan.to_json())
        with ExitStack() as stack:
            stack.enter_context(locked(RunFolder(folder.path)))
            if cluster is not None:
                stack.enter_context(dask_log(folder.path / LOG_FILE))
            flag = stack.enter_context(_flag(folder.path))
            _keep_plan(folder, plan)
            tasks = [_task(folder, point, number, flag, expected[point.slug]) for point, number in missing]
            facts = {"cores": cores(), "jobs": workers, "cluster": None if cluster is None else cluster.address}
            Session(folder, plan, crew, facts, started, on_progress or (lambda progress: None)).run(tasks, flag)
    return folder


@contextmanager
def _crew(
    folder: SweepFolder, access: Access | None, jobs: int, expected: Sequence[Expected]
) -> Iterator[tuple[Crew, int]]:
    """Who runs the trials, and how many they are."""
    if access is None:
        with local_crew(jobs) as crew:
            yield crew, jobs
        return
    with remote_workers(access) as client:
        with _probe(folder.path) as probe:
            check_workers(client, expected, probe)
        yield DaskCrew(client), len(worker_threads(client))


def check_folder(path: Path, plan: SweepPlan, *, resume: bool) -> bool:
    """Whether nothing is at `path` yet; raises `RunFolderError` where `plan` cannot be run there."""
    if is_unused(path):
        return True
    folder = SweepFolder(path)
    held = folder.plan()
    if held.digest() != plan.digest():
        raise RunFolderError(
            f"{folder.path} holds another grid ({_differences(held, plan)}): choose another folder with --out"
        )
    if not resume:
        raise RunFolderError(
            f"{folder.path} already holds this sweep: add --resume to go on, or choose another folder with --out"
        )
    return False


def _differences(held: SweepPlan, plan: SweepPlan) -> str:
    """The first two, in words."""
    old, new = ({point.slug: point.config for point in one.points} for one in (held, plan))
    said = [f"it lacks {slug}" for slug in new if slug not in old]
    said += [f"it has {slug}" for slug in old if slug not in new]
    for slug in new:
        keys = old[slug].differing_keys(new[slug]) if slug in old else []
        said += [f"{slug} differs in {', '.join(keys)}"] if keys else []
    return "; ".join(said[:2]) + (f"; and {len(said) - 2} more" if len(said) > 2 else "")


def _check_jobs(points: Iterable[Point], jobs: int | None, cluster: Access | None) -> int:
    """Number of local workers. What only one run can have is used by one trial at a time, from the machine it is at."""
    if jobs is not None and cluster is not None:
        raise ConfigError("--jobs is for this machine, --cluster has its own workers: give one of them")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs is {jobs}: expected 1 or more")
    needed = [(point.name, what) for point in points if (what := _exclusive(point.config)) is not None]
    if not needed:
        return jobs or cores()
    if cluster is not None or (jobs or 1) > 1:
        point, what = needed[0]
        raise ConfigError(f"point '{point}' uses {what}, which only one trial can have at a time: use --jobs 1")
    return 1


def _exclusive(config: RunConfig) -> str | None:
    """What a run uses that no other can have at the same time."""
    if config.uplink.kind is not UplinkKind.RADIO:
        return None
    return find_lab(config.radio.lab, config.radio.backend).traits.exclusive


def _prepare(point: Point, plan: SweepPlan, cluster: Access | None) -> Expected | None:
    """See that the point can be run here, and what the workers of a cluster must find."""
    try:
        if cluster is not None:
            return expect(point.name, point.config)
        assemble(point.config)
        return None
    except AirdpError as error:
        if len(plan.points) == 1:
            raise
        raise SweepError(f"point '{point.name}': {error}") from error


@contextmanager
def _probe(path: Path) -> Iterator[Path]:
    """A file for a moment in the folder that is `path` or will hold it."""
    home = next(parent for parent in (path, *path.parents) if parent.is_dir())
    try:
        descriptor, name = tempfile.mkstemp(prefix=".airdp-", dir=home)
    except OSError as error:
        raise RunFolderError(f"cannot write to {home}: {error.strerror}; choose another folder with --out") from error
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        Path(name).unlink()


@contextmanager
def _flag(path: Path) -> Iterator[Path]:
    """A file that workers look for after each uplink: where it is gone, its sweep is over. Old ones go first."""
    for old in path.glob(f"{_FLAG}*"):
        old.unlink()
    descriptor, name = tempfile.mkstemp(prefix=_FLAG, dir=path)
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _keep_plan(folder: SweepFolder, plan: SweepPlan) -> None:
    """Titles and claims may have changed, and trials may have been added; none that were asked for are forgotten."""
    trials = max(plan.trials, folder.plan().trials)
    RunFolder(folder.path).write_json(PLAN_FILE, replace(plan, trials=trials).to_json())


def _task(folder: SweepFolder, point: Point, number: int, flag: Path, expected: Expected | None) -> TrialTask:
    config = point.trial_config(number)
    run_folder = folder.run_folder(point, number)
    if not run_folder.path.parent.exists():
        make_folders(run_folder.path.parent)
    # Two trials fill two cores better than one trial with two threads.
    alone = config.model_copy(update={"local": config.local.model_copy(update={"workers": 1})})
    return TrialTask(point.slug, number, alone, run_folder, flag, expected)
