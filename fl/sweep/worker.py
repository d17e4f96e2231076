"""What a worker of a sweep does: it runs trials.

Nothing here depends on Dask. A trial is an ordinary run that is resumed, so a worker that is lost costs its progress
since the last uplink; whoever takes the trial up again finds ledger, checkpoint and clock in the run folder.
"""

import fcntl
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl.errors import SweepError
from fl.run.cluster.expectation import Expected, difference
from fl.run.config import RunConfig
from fl.run.folder import RunFolder
from fl.sweep.plan import TIMING_FILE, trial_timing
from hardware.foundation.file_errors import described
from phy.errors import AirdpError

if TYPE_CHECKING:
    from fl.run.course.metrics import UplinkMetrics

_PATIENCE_S = 300.0
"""How long to wait for whoever else is in a trial's folder without seeing it advance."""
_PAUSE_S = 0.5


@dataclass(frozen=True)
class TrialTask:
    """A trial to be run. flag: exists as long as the sweep goes on. expected: None where the machine is the same."""

    slug: str
    number: int
    config: RunConfig
    folder: RunFolder
    flag: Path
    expected: Expected | None


@dataclass(frozen=True)
class Finished:
    """With a result."""


@dataclass(frozen=True)
class Stopped:
    """After an uplink, because the flag was gone."""


@dataclass(frozen=True)
class Failed:
    """For a reason that the user can mend."""

    reason: str


Ending = Finished | Stopped | Failed
"""How the work on a trial ended."""


class _StoppedError(Exception):
    """The sweep has ended."""


def run_trial(trial: TrialTask, say: Callable[[dict[str, Any]], None]) -> Ending:
    """Run a trial or go on with it, on one core. `say` is told of its start and of each uplink.

    What the user can mend is an ending: not every such error survives being sent from process to process.
    """
    clock = _Clock()
    try:
        with _alone_in(trial):
            if (trial.folder.path / "result.json").exists():
                return Finished()
            fault = None if trial.expected is None else difference(trial.expected)
            if fault is not None:
                raise SweepError(f"worker {platform.node()} {fault}")
            _go_on(trial, clock, say)
    except _StoppedError:
        return Stopped()
    except AirdpError as error:
        return Failed(" ".join(str(error).split()))
    except OSError as error:
        return Failed(described(error))
    return Finished()


def _go_on(trial: TrialTask, clock: "_Clock", say: Callable[[dict[str, Any]], None]) -> None:
    from fl.learning.workforce import single_threaded_torch
    from fl.run.runner import run_experiment

    clock.load(trial.folder)

    def tell(uplink: int, accuracy: float | None, shown: str) -> None:
        said = {"slug": trial.slug, "trial": trial.number, "uplink": uplink}
        say({**said, "accuracy": accuracy, "shown": shown})

    def on_uplink(metrics: "UplinkMetrics") -> None:
        clock.save(trial.folder, metrics.uplink)
        tell(metrics.uplink, metrics.accuracy, f"{metrics.score} {metrics.shown.strip()}")
        _check(trial.flag)

    checkpoint = trial.folder.load_checkpoint()
    tell(checkpoint.uplink if checkpoint else 0, None, "")
    # Outside training as well: the number of threads changes the order of sums, and with it the last digits of a loss.
    with single_threaded_torch():
        result = run_experiment(trial.config, trial.folder.path, resume=True, on_uplink=on_uplink)
    clock.save(trial.folder, result.uplinks)


def _check(flag: Path) -> None:
    if not flag.exists():
        raise _StoppedError


@contextmanager
def _alone_in(trial: TrialTask) -> Iterator[None]:
    """Wait for another process that is in the trial, and keep others out.

    There is one where a worker was given up for lost and lives. The folder's own lock ends such a run with an error,
    and on a network file system it is not seen by other machines: only locks on files that are open for writing are.
    """
    path = trial.folder.path
    lock = path.with_name(f".{path.name}.lock")
    _check(trial.flag)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        seen, since = -1, time.monotonic()
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                advance = trial.folder.metrics_path.stat().st_size if trial.folder.metrics_path.exists() else 0
                if advance != seen:
                    seen, since = advance, time.monotonic()
                elif time.monotonic() - since > _PATIENCE_S:
                    raise SweepError(
                        f"another process is in {path} and has not advanced for {_PATIENCE_S:.0f} s: end it"
                    ) from error
            time.sleep(_PAUSE_S)
            _check(trial.flag)
        # What a killed process was still preparing when it ended.
        for scratch in path.parent.glob(f".{path.name}.*/"):
            shutil.rmtree(scratch)
        yield
        # Whoever still waits for it, or makes it anew, finds the result and has nothing to do.
        lock.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


class _Clock:
    """Wall and CPU time of a trial, kept in its folder so that they add up over all processes that worked on it.

    CPU time is that of all threads of this process, which works on one trial at a time.
    """

    def __init__(self) -> None:
        self._wall_seconds, self._cpu_seconds = -time.perf_counter(), -time.process_time()

    def load(self, folder: RunFolder) -> None:
        """Add the time until the last finished uplink of those before."""
        if (folder.path / TIMING_FILE).exists():
            before = trial_timing(folder)
            self._wall_seconds += before["wall_seconds"]
            self._cpu_seconds += before["cpu_seconds"]

    def save(self, folder: RunFolder, uplinks: int) -> None:
        """Write the time until now."""
        folder.write_json(
            TIMING_FILE,
            {
                "wall_seconds": self._wall_seconds + time.perf_counter(),
                "cpu_seconds": self._cpu_seconds + time.process_time(),
                "uplinks": uplinks,
            },
        )
