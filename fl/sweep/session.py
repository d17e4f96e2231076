"""One call's share of a sweep: trials handed out and waited for, progress told, time kept."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fl.errors import SweepError
from fl.run.folder import RunFolder
from fl.sweep.crew import Crew, Disconnected, Lost, Outcome
from fl.sweep.plan import TIMING_FILE, Point, SweepFolder, SweepPlan, trial_timing
from fl.sweep.worker import Failed, Stopped, TrialTask

_POLL_S = 0.2
_GRACE_S = 15.0
"""How long running trials have to finish their uplink when a sweep stops."""
_VAIN_ATTEMPTS = 3
"""How often in a row a trial may lose its workers without making an uplink."""
_Key = tuple[str, int]
"""Slug and number of a trial."""


@dataclass(frozen=True)
class TrialProgress:
    """A trial that is being worked on. accuracy: None until its first uplink of this session; shown: in words."""

    point: Point
    trial: int
    uplinks: int
    uplinks_total: int
    accuracy: float | None
    shown: str


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


class Session:
    """One call's share of a sweep."""

    def __init__(
        self,
        folder: SweepFolder,
        plan: SweepPlan,
        crew: Crew,
        facts: Mapping[str, Any],
        started: float,
        on_progress: Callable[[SweepProgress], None],
    ) -> None:
        self.folder, self.plan, self.crew, self.facts = folder, plan, crew, facts
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
        self.running: dict[_Key, tuple[float | None, str]] = {}
        self.vain: dict[_Key, int] = {}
        # Trials that are handed in, with the uplinks that they had made then.
        self.going: dict[_Key, int] = {}

    def _uplinks_at_start(self, point: Point, trial: int) -> int:
        if (point.slug, trial) in self.finished:
            return point.config.last_uplink
        checkpoint = self.folder.run_folder(point, trial).load_checkpoint()
        return checkpoint.uplink if checkpoint else 0

    def run(self, trials: Sequence[TrialTask], flag: Path) -> None:
        """Hand all trials out and wait; raises `SweepError` for the first that fails, once the others rest."""
        self.crew.begin(flag.name, self._on_event)
        try:
            self._hand_in(trials)
            while self.going:
                for trial, outcome in self.crew.take_back(_POLL_S):
                    uplinks = self.going.pop((trial.slug, trial.number))
                    if isinstance(outcome, Lost) and self._may_go_on(trial, uplinks):
                        self._hand_in([trial], first=True)
                    else:
                        self._finish(outcome, trial)
                self._tell()
        finally:
            flag.unlink(missing_ok=True)
            with ExitStack() as last:
                last.callback(self._write_timing)
                last.callback(self._let_rest)
                self._tell(stopping=bool(self.going))

    def _hand_in(self, trials: Sequence[TrialTask], *, first: bool = False) -> None:
        self.going |= {(trial.slug, trial.number): self.uplinks[trial.slug, trial.number] for trial in trials}
        self.crew.hand_in(trials, first=first)

    def _may_go_on(self, trial: TrialTask, uplinks: int) -> bool:
        """Whether to hand the trial in again. `uplinks`: how many it had made when it was handed in the last time.

        It need not be what killed the workers: Dask also counts those that had the trial only in their queue.
        """
        key = (trial.slug, trial.number)
        self.vain[key] = 0 if self.uplinks[key] > uplinks else self.vain.get(key, 0) + 1
        return self.vain[key] < _VAIN_ATTEMPTS

    def _finish(self, outcome: Outcome, trial: TrialTask) -> None:
        key = (trial.slug, trial.number)
        name = f"trial {trial.number} of point '{self.points[trial.slug].name}'"
        if isinstance(outcome, Lost):
            raise SweepError(f"{name} took several workers down before its next uplink: out of memory?")
        if isinstance(outcome, Disconnected):
            raise SweepError("the connection to the cluster is lost: see to its scheduler, then add --resume")
        if isinstance(outcome, Failed):
            raise SweepError(f"{name} failed: {outcome.reason}; --resume goes on with it")
        if isinstance(outcome, Stopped):
            raise SweepError(f"the worker of {name} does not see {trial.flag.parent}: all machines must share it")
        self.finished.add(key)
        self.uplinks[key] = trial.config.last_uplink
        self._write_timing()

    def _let_rest(self) -> None:
        """Wait for running trials to finish their uplink: the flag is gone, and trials that begin now end at once."""
        deadline = time.monotonic() + _GRACE_S
        while self.going and time.monotonic() < deadline:
            for trial, _ in self.crew.take_back(_POLL_S):
                self.going.pop((trial.slug, trial.number), None)

    def _on_event(self, said: Mapping[str, Any]) -> None:
        """Called in any thread."""
        key = (said["slug"], said["trial"])
        self.uplinks[key] = said["uplink"]
        # Only the start of a trial that goes on has none: what was known of it stays.
        known = (said["accuracy"], said["shown"])
        self.running[key] = self.running.get(key, known) if said["accuracy"] is None else known

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
                        shown=shown,
                    )
                    for (slug, trial), (accuracy, shown) in list(self.running.items())
                    if (slug, trial) not in self.finished
                ),
                remaining_seconds=remaining_seconds,
                stopping=stopping,
            )
        )

    def _write_timing(self) -> None:
        """The time of every finished trial, from its own folder, and of all calls together."""
        trials = [
            {"point": point.slug, "trial": trial, **trial_timing(folder)}
            for point in self.plan.points
            for trial, folder in (
                (trial, self.folder.run_folder(point, trial)) for trial in self.folder.finished(point)
            )
            # Missing where a process was killed after the result of a run without uplinks.
            if (folder.path / TIMING_FILE).exists()
        ]
        seconds = self.wall_seconds_before + time.perf_counter() - self.started
        RunFolder(self.folder.path).write_json(TIMING_FILE, {**self.facts, "wall_seconds": seconds, "trials": trials})
