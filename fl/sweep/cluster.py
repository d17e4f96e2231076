"""Where a sweep runs: workers on this machine, or an existing Dask cluster. Both end in a `distributed.Client`.

A worker is a process with one thread that runs one trial at a time. A cluster is started with Dask's own commands, on
machines that have the same airdp, share the folder of the sweep and find the data under the same path:

    dask scheduler
    dask worker tcp://SCHEDULER:8786 --nworkers 4 --nthreads 1        on each machine
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl.errors import SweepError
from fl.sweep.expectation import Expected, find_fault

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

ANSWER_S = 10.0
"""How long a scheduler has for its first answer, and its workers to be there."""
_CHECK_S = 300.0
"""How long workers have to import airdp and to assemble every point."""
_CLOSE_S = 30.0
"""How long Dask has to end its workers, which it kills after 4 s where they are not just starting."""


@contextmanager
def local_workers(count: int) -> Iterator["Client"]:
    """A client of `count` workers that end with this block, and with this process however it ends."""
    import dask.config
    from distributed import Client, LocalCluster

    settings = {
        "distributed.worker.profile.enabled": False,
        # A worker gets one trial at a time; the others wait where any worker can have them.
        "distributed.scheduler.worker-saturation": 1.0,
        # A trial that has lost its worker is handed in again by the sweep, which knows whether it advances.
        "distributed.scheduler.allowed-failures": 0,
    }
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="airdp-sweep-", ignore_cleanup_errors=True))
        stack.enter_context(dask.config.set(settings))
        stack.enter_context(_environment_kept(dask.config.get("distributed.nanny.pre-spawn-environ")))
        with _no_terminal_signals():
            cluster = LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                processes=True,
                # No dashboard; what remains of its server is on any free port instead of a fixed one.
                dashboard_address=None,
                scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
                # What a worker holds does not grow with its trials; a limit would end those of large models.
                memory_limit=None,
                local_directory=scratch,
                silence_logs=logging.CRITICAL,
            )
            stack.callback(_close, cluster)
            client = Client(cluster, set_as_default=False)
            stack.callback(client.close)
        yield client


def _close(cluster: "LocalCluster") -> None:
    try:
        cluster.close(timeout=_CLOSE_S)
    except TimeoutError:
        for process in multiprocessing.active_children():
            if process.name.startswith("Dask Worker"):
                process.kill()


@contextmanager
def remote_workers(address: str) -> Iterator["Client"]:
    """A client of the cluster at `address`, which must answer and have workers with one thread each."""
    from distributed import Client
    from distributed.utils import silence_logging_cmgr
    from distributed.versions import VersionMismatchWarning

    with silence_logging_cmgr(logging.CRITICAL):
        _check_scheduler(address)
        with warnings.catch_warnings():
            # Versions are compared in the words of this program once the workers are known.
            warnings.simplefilter("ignore", VersionMismatchWarning)
            client = Client(address, timeout=ANSWER_S, set_as_default=False)
        try:
            _check_threads(client, address)
            yield client
        finally:
            client.close(timeout=_CLOSE_S)


@contextmanager
def dask_log(path: Path) -> Iterator[None]:
    """Let Dask write its warnings to a file, which there is none of without one: on the terminal they mean nothing."""
    logger = logging.getLogger("distributed")
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def _check_scheduler(address: str) -> None:
    """Raise `SweepError` where no scheduler is. `Client` would wait without end for a stranger to shake hands."""
    from distributed.core import rpc
    from distributed.security import Security

    async def identify() -> str:
        async with rpc(address, connection_args=Security().get_connection_args("client")) as server:
            return str((await server.identity())["type"])

    try:
        # In a thread, because the caller may have an event loop of its own.
        with ThreadPoolExecutor(1) as pool:
            kind = pool.submit(lambda: asyncio.run(asyncio.wait_for(identify(), ANSWER_S))).result()
        if kind != "Scheduler":
            raise ValueError(f"a {kind} does")
    except Exception as error:  # What a stranger sends can make the protocol raise anything.
        raise SweepError(
            f"no Dask scheduler answers at '{address}' ({str(error) or f'waited {ANSWER_S:.0f} s'}): "
            "expected an address such as tcp://host:8786, which `dask scheduler` prints"
        ) from error


def worker_threads(client: "Client") -> Mapping[str, int]:
    """Threads of each worker by its address."""
    threads: dict[str, int] = client.nthreads()
    return threads


def _check_threads(client: "Client", address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=ANSWER_S)
    except TimeoutError as error:
        raise SweepError(
            f"the cluster at '{address}' has no workers: start some with `dask worker {address} --nthreads 1`"
        ) from error
    for worker, threads in worker_threads(client).items():
        if threads != 1:
            raise SweepError(
                f"worker {worker} has {threads} threads: a trial needs a process of its own; "
                f"start it with `dask worker {address} --nworkers {threads} --nthreads 1`"
            )


def check_workers(client: "Client", expected: Sequence[Expected], probe: Path) -> None:
    """Raise `SweepError` where a worker lacks what it needs. probe: a file of the folder that all must share."""
    checks = {
        worker: client.submit(find_fault, tuple(expected), probe, workers=[worker], pure=False)
        for worker in worker_threads(client)
    }
    deadline = time.monotonic() + _CHECK_S
    for worker, check in checks.items():
        try:
            failure = check.exception(timeout=max(deadline - time.monotonic(), 0))
        except TimeoutError as error:
            raise SweepError(f"worker {worker} did not answer within {_CHECK_S:.0f} s: look at its log") from error
        fault = f"cannot run airdp ({type(failure).__name__}: {failure})" if failure else check.result()
        if fault is not None:
            raise SweepError(f"worker {worker} {fault}")


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
def _environment_kept(names: Mapping[str, Any]) -> Iterator[None]:
    """Dask sets these variables for its workers in this process too."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
