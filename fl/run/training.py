"""Who trains the clients of a run: threads of this process, or the workers of a cluster."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fl.audit.runs.canaries import Canaries, canaried_update
from fl.learning.model import Vector
from fl.learning.workforce import Workforce
from fl.privacy.clipping import BoundedUpdate
from fl.random_streams import Stream, generator
from fl.run.config import RunConfig
from fl.run.learner import Learner

Backgrounds = Mapping[int, NDArray[np.float64]]


class Training(Protocol):
    """Makes clients' updates. Who makes them changes none of their bits."""

    @property
    def backgrounds(self) -> Backgrounds:
        """Of each client that has canaries, for the audit: see `CanariedUpdate`."""
        ...

    def updates(self, model: Vector, uplink: int, clients: Sequence[int]) -> Generator[BoundedUpdate, None, None]:
        """Of these clients, in this order, from the global `model` (d,). A few are in memory at any time."""
        ...


Train = Callable[[Vector, int, int], BoundedUpdate]
"""From the global model (d,), the uplink and the client to the client's update."""


def trained_by(learner: Learner, config: RunConfig) -> Train:
    """The update of one client, as every process of a run makes it."""

    def train(model: Vector, uplink: int, client: int) -> BoundedUpdate:
        rng = generator(config.seed, Stream.LOCAL, uplink, client)
        return learner.local.update(model, learner.clients[client], rng, origin=_origin(uplink, client))

    return train


def canaried_by(learner: Learner, canaries: Canaries, backgrounds: dict[int, NDArray[np.float64]]) -> Train:
    """The same with canaries; what a client's other records send goes into `backgrounds`."""

    def train(model: Vector, uplink: int, client: int) -> BoundedUpdate:
        data, origin = learner.clients[client], _origin(uplink, client)
        made = canaried_update(canaries, client, learner.local, model, data, origin=origin)
        backgrounds[client] = made.background
        return made.update

    return train


def _origin(uplink: int, client: int) -> str:
    return f"client {client}'s update for uplink {uplink}"


@dataclass(frozen=True)
class ThreadedTraining:
    """See `Training`. By the threads of a workforce."""

    workforce: Workforce
    train: Train
    backgrounds: Backgrounds = field(default_factory=dict)

    def updates(self, model: Vector, uplink: int, clients: Sequence[int]) -> Generator[BoundedUpdate, None, None]:
        """See `Training.updates`."""
        return self.workforce.in_order(lambda client: self.train(model, uplink, client), clients)
