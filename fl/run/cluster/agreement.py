"""Whether all workers of a cluster are like the machine that asks."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fl.cluster.connection import worker_threads
from fl.errors import ClusterError
from fl.run.cluster.expectation import Expected, find_fault

if TYPE_CHECKING:
    from distributed import Client

_CHECK_S = 300.0
"""How long workers have to import airdp and to assemble every point."""


def check_workers(client: "Client", expected: Sequence[Expected], probe: Path | None = None) -> None:
    """Raise `ClusterError` where a worker lacks what it needs. probe: a file of the folder that all
    must share, where they must."""
    checks = {
        worker: client.submit(find_fault, tuple(expected), probe, workers=[worker], pure=False)
        for worker in worker_threads(client)
    }
    deadline = time.monotonic() + _CHECK_S
    for worker, check in checks.items():
        try:
            failure = check.exception(timeout=max(deadline - time.monotonic(), 0))
        except TimeoutError as error:
            raise ClusterError(f"worker {worker} did not answer within {_CHECK_S:.0f} s: look at its log") from error
        fault = f"cannot run airdp ({type(failure).__name__}: {failure})" if failure else check.result()
        if fault is not None:
            raise ClusterError(f"worker {worker} {fault}")
