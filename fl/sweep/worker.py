"""What a worker of a sweep does: see that it has what it needs, and run trials.

Nothing here depends on Dask. A trial is an ordinary run that is resumed, so a worker that is lost costs its progress
since the last uplink; whoever takes the trial up again finds ledger, checkpoint and clock in the run folder.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl.errors import RunFolderError, SweepError
from fl.experiment.config import RunConfig
from fl.experiment.folder import RunFolder
from fl.experiment.startup import PACKAGES as OWN_PACKAGES
from fl.experiment.startup import check_one_place
from fl.experiment.sweep_plan import TIMING_FILE
from fl.experiment.versions import PACKAGES, package_version
from phy.errors import AirdpError

if TYPE_CHECKING:
    from fl.experiment.runner import UplinkMetrics

_PATIENCE_S = 300.0
"""How long to wait for whoever else is in a trial's folder without seeing it advance."""
_PAUSE_S = 0.5


@dataclass(frozen=True)
class Expected:
    """What a worker must have in common with the machine that started the sweep.

    software: (name, version) pairs. code_sha256: of airdp's sources. parts_sha256: of what `config` is assembled to.
    update_sha256: of what a client makes of that in an epoch.
    """

    software: tuple[tuple[str, str], ...]
    code_sha256: str
    name: str
    config: RunConfig
    parts_sha256: str
    update_sha256: str


@dataclass(frozen=True)
class Trial:
    """One run of a sweep. flag: exists as long as the sweep goes on. expected: None where the machine is the same."""

    slug: str
    number: int
    config: RunConfig
    folder: RunFolder
    flag: Path
    expected: Expected | None


@dataclass(frozen=True)
class Outcome:
    """How a trial ended. finished: with a result, else stopped because the flag was gone, or with an error."""

    finished: bool
    error: str = ""


class _StoppedError(Exception):
    """The sweep has ended."""


def expect(name: str, config: RunConfig) -> Expected:
    """What is found here; raises an `AirdpError` where `config` cannot be run."""
    return Expected(software(), code_sha256(), name, config, *found_sha256(config))


def software() -> tuple[tuple[str, str], ...]:
    """Python and the packages that results or messages depend on."""
    names = [*PACKAGES, "distributed", "cloudpickle", "msgpack"]
    return (("python", platform.python_version()), *((name, package_version(name) or "missing") for name in names))


@cache
def code_sha256() -> str:
    """Of the sources that this process runs: two checkouts may call themselves the same version."""
    return sources_sha256(check_one_place())


def sources_sha256(home: Path) -> str:
    """Of the names and contents of all Python files of airdp's packages below `home`."""
    digest = hashlib.sha256()
    for path in sorted(path for package in OWN_PACKAGES for path in (home / package).rglob("*.py")):
        digest.update(f"{path.relative_to(home).as_posix()}\0{_sha256(path.read_bytes())}\n".encode())
    return digest.hexdigest()


def found_sha256(config: RunConfig) -> tuple[str, str]:
    """Of the data, the clients' sizes and the start model, and of one client's update after one epoch.

    The second differs where the same program on the same data rounds otherwise, as processors of two kinds do.
    """
    from fl.experiment.assemble import assemble
    from fl.learning.local import train_client
    from fl.learning.workforce import in_order
    from fl.streams import Stream, generator

    parts = assemble(config)
    found = (parts.dataset.fingerprint().encode(), parts.sizes.tobytes(), parts.start.tobytes())

    def train(client: int) -> bytes:
        rng = generator(config.seed, Stream.LOCAL, 1, client)
        local = replace(parts.local, epochs=1)
        update = train_client(
            parts.model, parts.start, parts.clients[client], local, config.privacy.clip_norm, rng, origin="a client"
        )
        return update.values.tobytes()

    (update,) = in_order(train, [int(parts.sizes.argmin())], workers=1)
    return _sha256(b"".join(_sha256(part).encode() for part in found)), _sha256(update)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def find_fault(expected: Sequence[Expected], probe: Path) -> str:
    """What is wrong with this worker; empty where nothing is. probe: a file that it must see."""
    if not probe.exists():
        return f"does not see {probe.parent}: put --out into a folder that all machines share"
    return next(filter(None, map(_difference, expected)), "")


def _difference(expected: Expected) -> str:
    here = software()
    others = [
        f"{name} {found}, not {wanted}"
        for (name, found), (_, wanted) in zip(here, expected.software, strict=True)
        if found != wanted
    ]
    if others:
        return f"has other software ({', '.join(others)}): install the same everywhere"
    if code_sha256() != expected.code_sha256:
        return "has another state of airdp's sources under the same version: install the same everywhere"
    try:
        parts_sha256, update_sha256 = found_sha256(expected.config)
    except AirdpError as error:
        return f"cannot run point '{expected.name}': {error} (as seen from {Path.cwd()})"
    if parts_sha256 != expected.parts_sha256:
        return f"finds other data for point '{expected.name}': give all machines the same data"
    if update_sha256 != expected.update_sha256:
        return f"rounds otherwise at point '{expected.name}': start the sweep on a machine of the workers' kind"
    return ""


def run_trial(trial: Trial, say: Callable[[dict[str, Any]], None]) -> Outcome:
    """Run a trial or go on with it, on one core. `say` is told of its start and of each uplink.

    What the user can mend is part of the outcome: not every such error survives being sent from process to process.
    """
    clock = _Clock()
    try:
        with _alone_in(trial):
            if (trial.folder.path / "result.json").exists():
                return Outcome(finished=True)
            fault = _difference(trial.expected) if trial.expected else ""
            if fault:
                raise SweepError(f"worker {platform.node()} {fault}")
            _go_on(trial, clock, say)
    except _StoppedError:
        return Outcome(finished=False)
    except (AirdpError, OSError) as error:
        return Outcome(finished=False, error=" ".join(str(error).split()))
    return Outcome(finished=True)


def _go_on(trial: Trial, clock: "_Clock", say: Callable[[dict[str, Any]], None]) -> None:
    from fl.experiment.runner import run_experiment
    from fl.learning.workforce import single_threaded_torch

    clock.load(trial.folder)

    def tell(uplink: int, accuracy: float | None) -> None:
        say({"slug": trial.slug, "trial": trial.number, "uplink": uplink, "accuracy": accuracy})

    def on_uplink(metrics: "UplinkMetrics") -> None:
        clock.save(trial.folder, metrics.uplink)
        tell(metrics.uplink, metrics.accuracy)
        _check(trial.flag)

    checkpoint = trial.folder.load_checkpoint()
    tell(checkpoint.uplink if checkpoint else 0, None)
    # Outside training as well: the number of threads changes the order of sums, and with it the last digits of a loss.
    with single_threaded_torch():
        result = run_experiment(trial.config, trial.folder.path, resume=True, on_uplink=on_uplink)
    clock.save(trial.folder, result.uplinks)


def _check(flag: Path) -> None:
    if not flag.exists():
        raise _StoppedError


@contextmanager
def _alone_in(trial: Trial) -> Iterator[None]:
    """Wait for another process that is in the trial, and keep others out.

    There is one where a worker was given up for lost and lives. The folder's own lock ends such a run with an error,
    and on a network file system it is not seen by other machines: only locks on files that are open for writing are.
    """
    path = trial.folder.path
    lock = path.with_name(f".{path.name}.lock")
    _check(trial.flag)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
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
            before = folder.read_json(TIMING_FILE)
            try:
                self._wall_seconds += before["wall_seconds"]
                self._cpu_seconds += before["cpu_seconds"]
            except (KeyError, TypeError) as error:
                raise RunFolderError(f"{folder.path / TIMING_FILE} is damaged: delete it to go on") from error

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
