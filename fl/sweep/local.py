"""Processes of this machine that run trials, one at a time each, and talk to this one through pipes.

There is no address that another program could connect to. A worker that dies is replaced, and the sweep decides what
becomes of its trial. All of them end with this process, however it ends.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from fl.sweep.crew import Lost, Outcome, Say
from fl.sweep.worker import TrialTask, run_trial

_JOIN_S = 5.0
# A trial has a core of its own: more threads in its linear algebra would wait for each other.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@contextmanager
def local_crew(count: int) -> Iterator["LocalCrew"]:
    """`count` workers that end with this block."""
    crew = LocalCrew(count)
    try:
        yield crew
    finally:
        crew.close()


@dataclass
class _Worker:
    """trial: that it works on, None while it waits. held: its end closes with this process, and the worker with it."""

    process: BaseProcess
    pipe: "Connection[Any, Any]"
    held: "Connection[Any, Any]"
    trial: TrialTask | None = None


class LocalCrew:
    """See `fl.sweep.crew.Crew`."""

    def __init__(self, count: int) -> None:
        self._waiting: deque[TrialTask] = deque()
        self._say: Say = lambda event: None
        self._workers: list[_Worker] = []
        try:
            for _ in range(count):
                self._workers.append(_start())
        except BaseException:
            self.close()
            raise

    def begin(self, topic: str, say: Say) -> None:
        """See `Crew.begin`."""
        self._say = say

    def hand_in(self, trials: Sequence[TrialTask], *, first: bool = False) -> None:
        """See `Crew.hand_in`."""
        if first:
            self._waiting.extendleft(reversed(trials))
        else:
            self._waiting.extend(trials)
        self._hand_out()

    def take_back(self, timeout_s: float) -> list[tuple[TrialTask, Outcome]]:
        """See `Crew.take_back`."""
        wait([worker.pipe for worker in self._workers], timeout_s)
        ended = []
        for place, worker in enumerate(self._workers):
            trial, outcome = worker.trial, self._listen(worker)
            if isinstance(outcome, Lost):
                _end([worker])
                self._workers[place] = _start()
            if trial is not None and outcome is not None:
                worker.trial = None
                ended.append((trial, outcome))
        self._hand_out()
        return ended

    def close(self) -> None:
        """End all workers, whatever they do."""
        _end(self._workers)
        self._workers = []

    def _listen(self, worker: _Worker) -> Outcome | None:
        """How the worker's trial ended, None while it has not; tells what it says meanwhile."""
        try:
            while worker.pipe.poll():
                kind, said = worker.pipe.recv()
                if kind == "event":
                    self._say(said)
                elif kind == "defect":
                    raise RuntimeError(f"a worker failed:\n{said}")
                else:
                    outcome: Outcome = said
                    return outcome
        except (EOFError, OSError):
            return Lost()
        return None

    def _hand_out(self) -> None:
        for worker in self._workers:
            if self._waiting and worker.trial is None:
                try:
                    worker.pipe.send(self._waiting[0])
                except OSError:
                    # It has died meanwhile: `take_back` finds that out, and replaces it.
                    continue
                worker.trial = self._waiting.popleft()


def _start() -> _Worker:
    context = multiprocessing.get_context("spawn")
    pipe, its_pipe = context.Pipe()
    held, its_held = context.Pipe()
    process = context.Process(target=_work, args=(its_pipe, its_held), name="airdp sweep worker", daemon=True)
    with _no_terminal_signals(), _environment():
        process.start()
    its_pipe.close()
    its_held.close()
    return _Worker(process, pipe, held)


def _end(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.held.close()
        worker.pipe.close()
    for worker in workers:
        worker.process.join(_JOIN_S)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.process.close()


def _work(pipe: "Connection[Any, Any]", held: "Connection[Any, Any]") -> None:
    """The life of a worker."""
    # Blocked until here (`_no_terminal_signals`): ending a worker is for the process that started it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(held,), daemon=True).start()

    def say(event: Mapping[str, Any]) -> None:
        pipe.send(("event", dict(event)))

    try:
        while True:
            trial = pipe.recv()
            try:
                ending = run_trial(trial, say)
            except Exception:
                pipe.send(("defect", traceback.format_exc()))
            else:
                pipe.send(("ending", ending))
    except (EOFError, OSError):
        # Nobody is there any more.
        return


def _end_with(held: "Connection[Any, Any]") -> None:
    """Wait for the other end to go; then this process does, at once: what it has not finished is made again."""
    try:
        held.recv()
    except (EOFError, OSError):
        os._exit(1)


@contextmanager
def _no_terminal_signals() -> Iterator[None]:
    """Start threads and processes that Ctrl-C and a closed terminal do not reach: ending them is for this process.

    A blocked signal is inherited by threads, and through them by the processes that they start now or later.
    """
    # Whichever thread starts this helper process of multiprocessing gets SIGINT unblocked: let it not be one of those.
    resource_tracker.ensure_running()
    signals = {signal.SIGINT, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment() -> Iterator[None]:
    """Variables for the workers, which processes inherit from this one."""
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update({name: value for name, value in _ENVIRONMENT.items() if before[name] is None})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
