"""Run a sweep: every trial of every point, over Dask, into one folder.

Everything that can be wrong shows before the first trial starts. After that each trial is a run folder of its own, and
`resume` goes on with whatever is missing, be it after a failed trial, an interrupt or a crash of any process.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl.errors import ConfigError, RunFolderError, SweepError
from fl.experiment.assemble import assemble
from fl.experiment.config import RunConfig, UplinkKind
from fl.experiment.folder import RunFolder, created, is_unused, locked
from fl.experiment.sweep_cluster import check_workers, dask_log, local_workers, remote_workers, worker_threads
from fl.experiment.sweep_plan import LOG_FILE, PLAN_FILE, TIMING_FILE, Point, SweepFolder, SweepPlan
from fl.experiment.sweep_worker import Expected, Outcome, Trial, expect, run_trial
from fl.learning.workforce import cores
from hardware.lab import find_lab
from phy.errors import AirdpError

if TYPE_CHECKING:
    from distributed import Client, Future

_POLL_S = 0.2
_GRACE_S = 15.0
"""How long running trials have to finish their uplink when a sweep stops."""
_VAIN_ATTEMPTS = 3
"""How often in a row a trial may lose its workers without making an uplink."""
_FLAG = ".running-"
_OWN_AIR = ("loopback", "pluto-virtual")
"""Backends whose radios and air each run has for itself."""
_Key = tuple[str, int]
"""Slug and number of a trial."""


@dataclass(frozen=True)
class TrialProgress:
    """A trial that is being worked on. accuracy: None until its first uplink of this session."""

    point: Point
    trial: int
    uplinks: int
    uplinks_total: int
    accuracy: float | None


@dataclass(frozen=True)
class SweepProgress:
    """A sweep at one moment. remaining_seconds: None until this call has seen a few uplinks.

    stopping: it ends early, after the uplinks that are running.
    """

    trials: int
    trials_total: int
    uplinks: int
    uplinks_total: int
    running: tuple[TrialProgress, ...]
    remaining_seconds: float | None
    stopping: bool


def run_sweep(
    plan: SweepPlan,
    out: Path,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    resume: bool = False,
    on_progress: Callable[[SweepProgress], None] | None = None,
) -> SweepFolder:
    """Run `plan` into the folder `out`; with `resume`, only what the folder lacks.

    jobs: trials at the same time on this machine, one per core if None. cluster: address of a Dask scheduler to run on
    instead; results are the same. A script that calls this needs an `if __name__ == "__main__":` guard, because the
    workers are processes that import it. Raises an `AirdpError` for whatever the caller can mend.
    """
    started = time.perf_counter()
    folder = SweepFolder(out.absolute())
    fresh = check_folder(folder.path, plan, resume=resume)
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
    expected = {slug: _prepare(point, plan, cluster) for slug, point in points.items()}
    if not missing:
        with locked(RunFolder(folder.path)):
            _keep_plan(folder, plan)
        return folder
    with local_workers(min(jobs, len(missing))) if cluster is None else remote_workers(cluster) as client:
        if cluster is not None:
            jobs = len(worker_threads(client))
            with _probe(folder.path) as probe:
                check_workers(client, list(filter(None, expected.values())), probe)
        if fresh:
            with created(folder.path) as scratch:
                scratch.write_json(PLAN_FILE, plan.to_json())
        with locked(RunFolder(folder.path)), dask_log(folder.path / LOG_FILE), _flag(folder.path) as flag:
            _keep_plan(folder, plan)
            trials = [_trial(folder, point, number, flag, expected[point.slug]) for point, number in missing]
            facts = {"cores": cores(), "jobs": jobs, "cluster": cluster}
            _Session(folder, plan, client, facts, started, on_progress or (lambda progress: None)).run(trials, flag)
    return folder


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
        keys = _different_keys(old[slug], new[slug]) if slug in old else []
        said += [f"{slug} differs in {', '.join(keys)}"] if keys else []
    return "; ".join(said[:2]) + (f"; and {len(said) - 2} more" if len(said) > 2 else "")


def _different_keys(old: RunConfig, new: RunConfig) -> list[str]:
    def flat(config: RunConfig) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, section in config.model_dump(
            mode="json", exclude={"description": True, "local": {"workers"}}
        ).items():
            parts = section.items() if isinstance(section, dict) else [("", section)]
            found.update({f"{name}.{key}".rstrip("."): value for key, value in parts})
        return found

    before, after = flat(old), flat(new)
    return [key for key in after if before.get(key) != after[key]]


def _check_jobs(points: Iterable[Point], jobs: int | None, cluster: str | None) -> int:
    """Number of local workers. Real radios can only be used by one trial at a time, from the machine they are at."""
    if jobs is not None and cluster is not None:
        raise ConfigError("--jobs is for this machine, --cluster has its own workers: give one of them")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs is {jobs}: expected 1 or more")
    on_air = next((point.name for point in points if _uses_real_radios(point.config)), None)
    if on_air is None:
        return jobs or cores()
    if cluster is not None or (jobs or 1) > 1:
        raise ConfigError(f"point '{on_air}' uses real radios, which only one trial can have at a time: use --jobs 1")
    return 1


def _uses_real_radios(config: RunConfig) -> bool:
    if config.uplink.kind is not UplinkKind.RADIO:
        return False
    return (config.radio.backend or find_lab(config.radio.lab).backend) not in _OWN_AIR


def _prepare(point: Point, plan: SweepPlan, cluster: str | None) -> Expected | None:
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


def _trial(folder: SweepFolder, point: Point, number: int, flag: Path, expected: Expected | None) -> Trial:
    config = point.trial_config(number)
    run_folder = folder.run_folder(point, number)
    run_folder.path.parent.mkdir(exist_ok=True)
    # Two trials fill two cores better than one trial with two threads.
    alone = config.model_copy(update={"local": config.local.model_copy(update={"workers": 1})})
    return Trial(point.slug, number, alone, run_folder, flag, expected)


def _run_on_worker(trial: Trial, topic: str) -> Outcome:
    from distributed import get_worker

    worker = get_worker()
    return run_trial(trial, lambda event: worker.log_event(topic, event))


class _Session:
    """One call's share of a sweep."""

    def __init__(
        self,
        folder: SweepFolder,
        plan: SweepPlan,
        client: "Client",
        facts: Mapping[str, Any],
        started: float,
        on_progress: Callable[[SweepProgress], None],
    ) -> None:
        self.folder, self.plan, self.client, self.facts = folder, plan, client, facts
        self.started, self.on_progress = started, on_progress
        self.wall_seconds_before = float(folder.timing().get("wall_seconds", 0.0))
        self.points = {point.slug: point for point in plan.points}
        self.finished = {(point.slug, trial) for point in plan.points for trial in folder.finished(point)}
        self.uplinks = {
            (point.slug, trial): self._uplinks_at_start(point, trial)
            for point in plan.points
            for trial in range(1, plan.trials + 1)
        }
        self.uplinks_at_start = sum(self.uplinks.values())
        # Time and number at the first uplink that this call has seen: starting processes is no measure of the pace.
        self.pace_since: tuple[float, int] | None = None
        self.running: dict[_Key, float | None] = {}
        self.vain: dict[_Key, int] = {}

    def _uplinks_at_start(self, point: Point, trial: int) -> int:
        if (point.slug, trial) in self.finished:
            return point.config.last_uplink
        checkpoint = self.folder.run_folder(point, trial).load_checkpoint()
        return checkpoint.uplink if checkpoint else 0

    def run(self, trials: Sequence[Trial], flag: Path) -> None:
        """Hand all trials to Dask and wait; raises `SweepError` for the first that fails, once the others rest."""
        topic = flag.name
        self.client.subscribe_topic(topic, self._on_event)
        going: dict[Future[Outcome], tuple[Trial, int]] = {}
        try:
            self._submit(trials, topic, going)
            while going:
                time.sleep(_POLL_S)
                for future in [future for future in going if future.done()]:
                    trial, uplinks = going.pop(future)
                    if self._is_lost(future) and self._may_go_on(trial, uplinks):
                        self._submit([trial], topic, going, priority=1)
                    else:
                        self._finish(future, trial)
                self._tell()
        finally:
            flag.unlink(missing_ok=True)
            with ExitStack() as last:
                last.callback(self._write_timing)
                last.callback(self._let_rest, going)
                self._tell(stopping=bool(going))

    def _submit(
        self,
        trials: Sequence[Trial],
        topic: str,
        going: "dict[Future[Outcome], tuple[Trial, int]]",
        priority: int = 0,
    ) -> None:
        """All in one call: Dask then keeps what no worker is free for, in the order of the keys."""
        made = self.client.map(
            _run_on_worker,
            trials,
            topic=topic,
            key=[f"{topic}-{index:06d}-{time.monotonic_ns()}" for index in range(len(trials))],
            pure=False,
            priority=priority,
        )
        for future, trial in zip(made, trials, strict=True):
            going[future] = (trial, self.uplinks[trial.slug, trial.number])

    def _is_lost(self, future: "Future[Outcome]") -> bool:
        """Whether so many workers died in the trial that Dask gives it up."""
        from distributed import KilledWorker

        return future.status == "error" and isinstance(future.exception(), KilledWorker)

    def _may_go_on(self, trial: Trial, uplinks: int) -> bool:
        """Whether to hand the trial in again. `uplinks`: how many it had made when it was handed in the last time.

        It need not be what killed the workers: Dask also counts those that had the trial only in their queue.
        """
        key = (trial.slug, trial.number)
        self.vain[key] = 0 if self.uplinks[key] > uplinks else self.vain.get(key, 0) + 1
        return self.vain[key] < _VAIN_ATTEMPTS

    def _finish(self, future: "Future[Outcome]", trial: Trial) -> None:
        key = (trial.slug, trial.number)
        name = f"trial {trial.number} of point '{self.points[trial.slug].name}'"
        if self._is_lost(future):
            raise SweepError(f"{name} took several workers down before its next uplink: out of memory?")
        try:
            outcome = future.result()
        except CancelledError as error:
            raise SweepError(
                "the connection to the cluster is lost: see to its scheduler, then add --resume"
            ) from error
        if outcome.error:
            raise SweepError(f"{name} failed: {outcome.error}; --resume goes on with it")
        if not outcome.finished:
            raise SweepError(f"the worker of {name} does not see {trial.flag.parent}: all machines must share it")
        self.finished.add(key)
        self.uplinks[key] = trial.config.last_uplink
        self._write_timing()

    def _let_rest(self, futures: "Iterable[Future[Outcome]]") -> None:
        """Wait for running trials to finish their uplink: the flag is gone, and trials that begin now end at once."""
        deadline = time.monotonic() + _GRACE_S
        while time.monotonic() < deadline and not all(future.done() for future in futures):
            time.sleep(_POLL_S)

    def _on_event(self, event: tuple[float, Mapping[str, Any]]) -> None:
        """Called in Dask's thread."""
        said = event[1]
        key = (said["slug"], said["trial"])
        self.uplinks[key], self.running[key] = said["uplink"], said["accuracy"]

    def _tell(self, *, stopping: bool = False) -> None:
        done = sum(self.uplinks.values())
        total = self.plan.trials * sum(point.config.last_uplink for point in self.plan.points)
        now = time.perf_counter()
        if self.pace_since is None and done > self.uplinks_at_start:
            self.pace_since = (now, done)
        remaining_seconds = None
        if self.pace_since is not None and done > self.pace_since[1]:
            since, before = self.pace_since
            remaining_seconds = (now - since) * (total - done) / (done - before)
        self.on_progress(
            SweepProgress(
                trials=len(self.finished & self.uplinks.keys()),
                trials_total=len(self.uplinks),
                uplinks=done,
                uplinks_total=total,
                running=tuple(
                    TrialProgress(
                        point=self.points[slug],
                        trial=trial,
                        uplinks=self.uplinks[slug, trial],
                        uplinks_total=self.points[slug].config.last_uplink,
                        accuracy=accuracy,
                    )
                    for (slug, trial), accuracy in list(self.running.items())
                    if (slug, trial) not in self.finished
                ),
                remaining_seconds=remaining_seconds,
                stopping=stopping,
            )
        )

    def _write_timing(self) -> None:
        """The time of every finished trial, from its own folder, and of all calls together."""
        trials = [
            {"point": point.slug, "trial": trial, **folder.read_json(TIMING_FILE)}
            for point in self.plan.points
            for trial, folder in (
                (trial, self.folder.run_folder(point, trial)) for trial in self.folder.finished(point)
            )
            # Missing where a process was killed after the result of a run without uplinks.
            if (folder.path / TIMING_FILE).exists()
        ]
        seconds = self.wall_seconds_before + time.perf_counter() - self.started
        RunFolder(self.folder.path).write_json(TIMING_FILE, {**self.facts, "wall_seconds": seconds, "trials": trials})
