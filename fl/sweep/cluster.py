"""An existing Dask cluster that a sweep runs on.

A worker is a process with one thread that runs one trial at a time. A cluster is started with Dask's own commands, on
machines that have the same airdp, share the folder of the sweep and find the data under the same path:

    dask scheduler --protocol tls --tls-ca-file ca.pem --tls-cert cert.pem --tls-key key.pem
    dask worker tls://SCHEDULER:8786 --nworkers 4 --nthreads 1 --tls-...        on each machine

Whoever can talk to a scheduler runs code with the rights of its workers, and what a scheduler answers is unpickled
here: so it is talked to over TLS, where both sides show a certificate of the same authority.
"""

import asyncio
import logging
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fl.errors import ConfigError, SweepError
from fl.sweep.crew import Disconnected, Lost, Outcome, Say
from fl.sweep.expectation import Expected, find_fault
from fl.sweep.worker import Ending, TrialTask, run_trial

if TYPE_CHECKING:
    from distributed import Client, Future, Security

ANSWER_S = 10.0
"""How long a scheduler has for its first answer, and its workers to be there."""
_CHECK_S = 300.0
"""How long workers have to import airdp and to assemble every point."""
_CLOSE_S = 30.0
"""How long Dask has to take leave."""
_LOOK_S = 0.02
TLS_FILES = {"tls_ca_file": "ca.pem", "tls_client_cert": "cert.pem", "tls_client_key": "key.pem"}
"""What a folder of certificates holds."""


@dataclass(frozen=True)
class Access:
    """How to reach a cluster. address: of its scheduler. tls: folder of certificates; None: those that Dask's own
    configuration names. insecure: without TLS, in the knowledge of what that means."""

    address: str
    tls: Path | None = None
    insecure: bool = False

    def check(self) -> None:
        """Refuse a cluster that talks to anybody."""
        if self.tls is not None and not self.encrypted:
            raise ConfigError(f"--tls is for a cluster at tls://…, not '{self.address}'")
        if not self.encrypted and not self.insecure:
            raise ConfigError(
                f"the cluster at '{self.address}' is reached without TLS: whoever reaches it, or answers in its place, "
                "runs code with your rights; start it with TLS (docs/security.md) and give tls://…, "
                "or add --insecure where only you can reach its network"
            )
        missing = [] if self.tls is None else [name for name in TLS_FILES.values() if not (self.tls / name).is_file()]
        if missing:
            raise ConfigError(
                f"{self.tls} has no {missing[0]}: a folder of certificates has {', '.join(TLS_FILES.values())}"
            )

    @property
    def encrypted(self) -> bool:
        """Whether certificates are asked for."""
        return self.address.startswith("tls://")

    def security(self) -> "Security":
        """As Dask wants it."""
        from distributed.security import Security

        files = {} if self.tls is None else {key: str(self.tls / name) for key, name in TLS_FILES.items()}
        return Security(require_encryption=True, **files) if self.encrypted else Security(require_encryption=False)


class DaskCrew:
    """See `fl.sweep.crew.Crew`. The workers of a cluster."""

    def __init__(self, client: "Client") -> None:
        self.client, self._topic, self._handed_in = client, "", 0
        self._going: dict[Future[Ending], TrialTask] = {}

    def begin(self, topic: str, say: Say) -> None:
        """See `Crew.begin`."""
        self._topic = topic
        self.client.subscribe_topic(topic, lambda event: say(event[1]))

    def hand_in(self, trials: Sequence[TrialTask], *, first: bool = False) -> None:
        """See `Crew.hand_in`. All in one call: Dask then keeps what no worker is free for, in the order of the keys."""
        made = self.client.map(
            _run_on_worker,
            trials,
            topic=self._topic,
            key=[f"{self._topic}-{self._handed_in + index:09d}" for index in range(len(trials))],
            pure=False,
            priority=int(first),
        )
        self._handed_in += len(trials)
        self._going.update(zip(made, trials, strict=True))

    def take_back(self, timeout_s: float) -> list[tuple[TrialTask, Outcome]]:
        """See `Crew.take_back`."""
        deadline_s = time.monotonic() + timeout_s
        while not any(future.done() for future in self._going) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
        ended = [future for future in self._going if future.done()]
        return [(self._going.pop(future), _outcome(future)) for future in ended]


def _run_on_worker(trial: TrialTask, topic: str) -> Ending:
    from distributed import get_worker

    worker = get_worker()
    return run_trial(trial, lambda event: worker.log_event(topic, event))


def _outcome(future: "Future[Ending]") -> Outcome:
    from distributed import KilledWorker

    if future.status == "error" and isinstance(future.exception(), KilledWorker):
        # So many workers died in it that Dask gives it up.
        return Lost()
    try:
        ending: Ending = future.result()
        return ending
    except CancelledError:
        return Disconnected()


@contextmanager
def remote_workers(access: Access) -> Iterator["Client"]:
    """A client of the cluster, which must answer and have workers with one thread each."""
    from distributed import Client
    from distributed.utils import silence_logging_cmgr
    from distributed.versions import VersionMismatchWarning

    address = access.address
    with silence_logging_cmgr(logging.CRITICAL):
        security = access.security()
        _check_scheduler(address, security)
        with warnings.catch_warnings():
            # Versions are compared in the words of this program once the workers are known.
            warnings.simplefilter("ignore", VersionMismatchWarning)
            client = Client(address, timeout=ANSWER_S, set_as_default=False, security=security)
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


def _check_scheduler(address: str, security: "Security") -> None:
    """Raise `SweepError` where no scheduler is. `Client` would wait without end for a stranger to shake hands."""
    from distributed.core import rpc

    async def identify() -> str:
        async with rpc(address, connection_args=security.get_connection_args("client")) as server:
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
