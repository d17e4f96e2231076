"""A connection to a Dask cluster whose workers are processes with one thread each.

A cluster is started with Dask's own commands, on machines that have the same airdp and find the data under the same
path:

    dask scheduler --protocol tls --tls-ca-file ca.pem --tls-cert cert.pem --tls-key key.pem
    dask worker tls://SCHEDULER:8786 --nworkers 4 --nthreads 1 --tls-...        on each machine
"""

import asyncio
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from fl.cluster.access import TLS_FILES, Access
from fl.errors import ClusterError
from hardware.foundation.durable import open_to_append

if TYPE_CHECKING:
    from distributed import Client, Security

ANSWER_S = 10.0
"""How long a scheduler has for its first answer, and its workers to be there."""
_CLOSE_S = 30.0
"""How long Dask has to take leave."""


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


class _OwnFile(logging.FileHandler):
    """Writes through no link."""

    def _open(self) -> TextIOWrapper:
        return os.fdopen(open_to_append(Path(self.baseFilename)), "a", encoding=self.encoding)


@contextmanager
def dask_log(path: Path) -> Iterator[None]:
    """Let Dask write its warnings to a file, which there is none of without one: on the terminal they mean nothing."""
    logger = logging.getLogger("distributed")
    handler = _OwnFile(path, encoding="utf-8", delay=True)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def _check_scheduler(address: str, security: "Security") -> None:
    """Raise `ClusterError` where no scheduler is. `Client` would wait without end for a stranger to shake hands."""
    from distributed.core import rpc

    shown = security.get_connection_args("client")
    if address.startswith("tls://") and shown.get("ssl_context") is None:
        raise ClusterError(
            f"the cluster at '{address}' asks for certificates: give --tls DIR with {', '.join(TLS_FILES.values())}, "
            "or name them in Dask's own configuration"
        )

    async def identify() -> str:
        async with rpc(address, connection_args=shown) as server:
            return str((await server.identity())["type"])

    try:
        # In a thread, because the caller may have an event loop of its own.
        with ThreadPoolExecutor(1) as pool:
            kind = pool.submit(lambda: asyncio.run(asyncio.wait_for(identify(), ANSWER_S))).result()
        if kind != "Scheduler":
            raise ValueError(f"a {kind} does")
    except Exception as error:  # What a stranger sends can make the protocol raise anything.
        raise ClusterError(
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
        raise ClusterError(
            f"the cluster at '{address}' has no workers: start some with `dask worker {address} --nthreads 1`"
        ) from error
    for worker, threads in worker_threads(client).items():
        if threads != 1:
            raise ClusterError(
                f"worker {worker} has {threads} threads: a trial needs a process of its own; "
                f"start it with `dask worker {address} --nworkers {threads} --nthreads 1`"
            )
