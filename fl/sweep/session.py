"""One call's share of a sweep: trials handed to Dask and waited for, progress told, time kept."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl.errors import SweepError
from fl.run.folder import RunFolder
from fl.sweep.plan import TIMING_FILE, Point, SweepFolder, SweepPlan
from fl.sweep.worker import Ending, Failed, Stopped, TrialTask, run_trial

if TYPE_CHECKING:
    from distributed import Client, Future

_POLL_S = 0.2
_GRACE_S = 15.0
"""How long running trials have to finish their uplink when a sweep stops."""
_VAIN_ATTEMPTS = 3
"""How often in a row a trial may lose its workers without making an uplink."""
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


def _run_on_worker(trial: TrialTask, topic: str) -> Ending:
    from distributed import get_worker

    worker = get_worker()
    return run_trial(trial, lambda event: worker.log_event(topic, event))


class Session:
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

    def run(self, trials: Sequence[TrialTask], flag: Path) -> None:
        """Hand all trials to Dask and wait; raises `SweepError` for the first that fails, once the others rest."""
        topic = flag.name
        self.client.subscribe_topic(topic, self._on_event)
        going: dict[Future[Ending], tuple[TrialTask, int]] = {}
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
        trials: Sequence[TrialTask],
        topic: str,
        going: "dict[Future[Ending], tuple[TrialTask, int]]",
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

    def _is_lost(self, future: "Future[Ending]") -> bool:
        """Whether so many workers died in the trial that Dask gives it up."""
        from distributed import KilledWorker

        return future.status == "error" and isinstance(future.exception(), KilledWorker)

    def _may_go_on(self, trial: TrialTask, uplinks: int) -> bool:
        """Whether to hand the trial in again. `uplinks`: how many it had made when it was handed in the last time.

        It need not be what killed the workers: Dask also counts those that had the trial only in their queue.
        """
        key = (trial.slug, trial.number)
        self.vain[key] = 0 if self.uplinks[key] > uplinks else self.vain.get(key, 0) + 1
        return self.vain[key] < _VAIN_ATTEMPTS

    def _finish(self, future: "Future[Ending]", trial: TrialTask) -> None:
        key = (trial.slug, trial.number)
        name = f"trial {trial.number} of point '{self.points[trial.slug].name}'"
        if self._is_lost(future):
            raise SweepError(f"{name} took several workers down before its next uplink: out of memory?")
        try:
            ending = future.result()
        except CancelledError as error:
            raise SweepError(
                "the connection to the cluster is lost: see to its scheduler, then add --resume"
            ) from error
        if isinstance(ending, Failed):
            raise SweepError(f"{name} failed: {ending.reason}; --resume goes on with it")
        if isinstance(ending, Stopped):
            raise SweepError(f"the worker of {name} does not see {trial.flag.parent}: all machines must share it")
        self.finished.add(key)
        self.uplinks[key] = trial.config.last_uplink
        self._write_timing()

    def _let_rest(self, futures: "Iterable[Future[Ending]]") -> None:
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
