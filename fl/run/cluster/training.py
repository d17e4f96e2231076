"""Clients that train on the workers of a cluster.

Every worker loads the data once, by the config, as this process did; what travels is the global model to the workers
and each client's update back, a few of them at a time. A worker that dies costs the clients that it was working on:
others train them again, with the same result.
"""

import logging
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from fl.cluster.access import Access
from fl.cluster.connection import remote_workers, worker_threads
from fl.errors import ClusterError
from fl.learning.model import Vector
from fl.learning.workforce import in_order
from fl.privacy.clipping import BoundedUpdate
from fl.run.cluster.agreement import check_workers
from fl.run.cluster.expectation import expect
from fl.run.config import RunConfig
from fl.run.learner import make_learner
from fl.run.training import Backgrounds, Train, trained_by

if TYPE_CHECKING:
    from distributed import Client, Future

_LOG = logging.getLogger("airdp")
_PAUSES_S = (0.5, 2.0, 5.0)
_AHEAD = 3
"""Clients handed out per worker before the first is taken, as for threads."""


@contextmanager
def training_on(access: Access, config: RunConfig) -> Iterator["ClusterTraining"]:
    """The workers of a cluster, each seen to make of `config` what this process does."""
    access.check()
    expected = expect(config.name, config)
    with remote_workers(access) as client:
        check_workers(client, [expected])
        yield ClusterTraining(client, config)


@dataclass(frozen=True)
class ClusterTraining:
    """See `fl.run.training.Training`."""

    client: "Client"
    config: RunConfig
    backgrounds: Backgrounds = field(default_factory=dict)

    def _placed(self, model: Vector) -> "Future[Vector]":
        """The model on one worker, of which the others get it with their first client.

        Where that worker has just died the scheduler ends the request: then another one takes it.
        """
        pauses_s = iter(_PAUSES_S)
        while True:
            try:
                placed: Future[Vector] = self.client.scatter(model, hash=False)
                return placed
            except OSError as error:
                pause_s = next(pauses_s, None)
                if pause_s is None:
                    raise
                _LOG.debug("the model could not be placed, trying again in %g s: %s", pause_s, error)
                time.sleep(pause_s)
            except AttributeError as error:
                # What Dask makes of a scheduler that is gone.
                if self.client.scheduler is not None:
                    raise
                raise ConnectionError("there is no scheduler any more") from error

    def updates(self, model: Vector, uplink: int, clients: Sequence[int]) -> Generator[BoundedUpdate, None, None]:
        """See `Training.updates`."""
        written = self.config.model_dump_json()
        waiting: deque[Future[BoundedUpdate]] = deque()
        try:
            shared = self._placed(model)
            ahead = _AHEAD * max(len(worker_threads(self.client)), 1)
            for client in clients:
                waiting.append(self.client.submit(_train_here, written, shared, uplink, client, pure=False))
                if len(waiting) >= ahead:
                    yield _taken(waiting.popleft())
            while waiting:
                yield _taken(waiting.popleft())
        except (CancelledError, OSError, TimeoutError) as error:
            raise ClusterError(
                f"the connection to the cluster was lost in uplink {uplink}: see to its scheduler, then add --resume"
            ) from error
        finally:
            for future in waiting:
                future.cancel()


def _taken(future: "Future[BoundedUpdate]") -> BoundedUpdate:
    from distributed import KilledWorker

    try:
        update: BoundedUpdate = future.result()
    except KilledWorker as error:
        raise ClusterError(f"a client took several workers down: {error}; out of memory?") from error
    return update


def _train_here(written: str, model: Vector, uplink: int, client: int) -> BoundedUpdate:
    train = _trained_by(written)
    (update,) = in_order(lambda one: train(model, uplink, one), [client], workers=1)
    return update


@lru_cache(maxsize=2)
def _trained_by(written: str) -> Train:
    """On a worker: the clients' data is loaded with the first of them, and kept for the run."""
    config = RunConfig.model_validate_json(written)
    return trained_by(make_learner(config), config)
