"""What the server does with an aggregate: FedAvg, FedProx and Upcycled-FL behind one small protocol.

A step sees the aggregate and what earlier steps made of earlier ones, never data: it is post-processing of what the
ledger has charged for, and costs no privacy, whatever it computes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError, ModelError
from fl.import_path import build
from fl.learning.model import Vector


@dataclass(frozen=True)
class ServerState:
    """All that a step starts from: the model (d,), and arrays that the algorithm itself keeps from step to step.

    Both are in the checkpoint, as they are: a resumed run takes the steps that an uninterrupted one would have.
    """

    model: Vector
    memory: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)


@runtime_checkable
class Algorithm(Protocol):
    """A function of what it is given: nothing is kept outside of `ServerState`, so that runs resume."""

    @property
    def proximal_mu(self) -> float:
        """Weight of the clients' proximal term."""
        ...

    @property
    def steps_per_uplink(self) -> int:
        """Model steps that one uplink pays for."""
        ...

    def step(self, state: ServerState, aggregate: Vector, uplink: int) -> ServerState:
        """The state after the 1-based `uplink` brought `aggregate` (d,)."""
        ...


@dataclass(frozen=True)
class FedAvg:
    """McMahan et al. 2017: w <- w + sum p_i u_i, no proximal term."""

    proximal_mu: float = 0.0
    steps_per_uplink: int = 1

    def step(self, state: ServerState, aggregate: Vector, uplink: int) -> ServerState:
        """One step."""
        del uplink
        return replace(state, model=state.model + aggregate)


@dataclass(frozen=True)
class FedProx:
    """Li et al. 2020: FedAvg's step; clients are held back by mu/2 ||w - w_global||^2."""

    proximal_mu: float
    steps_per_uplink: int = 1

    def step(self, state: ServerState, aggregate: Vector, uplink: int) -> ServerState:
        """One step."""
        del uplink
        return replace(state, model=state.model + aggregate)


@dataclass(frozen=True)
class UpcycledFL:
    """Yin et al. 2023: FedProx's step, then w^{2m} = w^{2m-1} + mu/(mu + lambda_m) (w^{2m-1} - w^{2m-2}).

    The second step touches no data, so it costs no privacy. schedule: (last uplink, lambda) pairs; the last lambda
    stays.
    """

    proximal_mu: float
    schedule: tuple[tuple[int, float], ...]
    steps_per_uplink: int = 2

    def __post_init__(self) -> None:
        """Refuse schedules that are not increasing in m or not positive in lambda."""
        lasts = [last for last, _ in self.schedule]
        positive = all(math.isfinite(value) and value > 0 for _, value in self.schedule)
        if not lasts or sorted(set(lasts)) != lasts or lasts[0] < 1 or not positive:
            raise ConfigError(
                f"algorithm.schedule is {self.schedule}: expected rising uplink numbers, each with a lambda above 0"
            )

    def lambda_at(self, uplink: int) -> float:
        """lambda_m of the 1-based uplink m."""
        return next((value for last, value in self.schedule if uplink <= last), self.schedule[-1][1])

    def step(self, state: ServerState, aggregate: Vector, uplink: int) -> ServerState:
        """Two steps: the second reuses the first."""
        reuse = self.proximal_mu / (self.proximal_mu + self.lambda_at(uplink))
        return replace(state, model=state.model + aggregate * np.float32(1.0 + reuse))


def import_algorithm(path: str, arguments: Mapping[str, Any]) -> Algorithm:
    """Build `package.module:Class` with `arguments`; raises `ModelError` unless it keeps to the protocol."""
    made = build("algorithm.name", path, arguments)
    if not isinstance(made, Algorithm):
        raise ModelError(
            f"algorithm.name '{path}' made a {type(made).__name__}: expected proximal_mu, steps_per_uplink and "
            "step(state, aggregate, uplink), as fl.learning.server.algorithms has them"
        )
    mu: object = made.proximal_mu
    steps: object = made.steps_per_uplink
    if not isinstance(mu, int | float) or not (math.isfinite(mu) and mu >= 0):
        raise ModelError(f"algorithm.name '{path}': proximal_mu is {mu!r}, expected a finite number of 0 or more")
    if not isinstance(steps, int) or steps < 1:
        raise ModelError(f"algorithm.name '{path}': steps_per_uplink is {steps!r}, expected a whole number above 0")
    return made


def check_algorithm(algorithm: Algorithm, start: Vector) -> None:
    """Try a step with an aggregate of zeros, before anything is sent and charged; raises `ModelError`."""
    after = advance(algorithm, ServerState(start.copy()), np.zeros_like(start), 1)
    if not np.isfinite(after.model).all():
        raise ModelError(
            f"the step of {type(algorithm).__name__} turned a sum of zeros into a model that is not finite: it may "
            "divide by zero; nothing was sent"
        )


def advance(algorithm: Algorithm, state: ServerState, aggregate: Vector, uplink: int) -> ServerState:
    """One step, and what it returned is a state that a run can go on from; raises `ModelError` where it is not."""
    name = type(algorithm).__name__
    try:
        after = algorithm.step(state, aggregate, uplink)
    except Exception as error:  # user code may raise anything
        raise ModelError(f"the step of {name} failed in uplink {uplink}: {error!r}") from error
    if not isinstance(after, ServerState):
        raise ModelError(f"the step of {name} returned a {type(after).__name__}: expected a ServerState")
    if after.model.dtype != np.float32 or after.model.shape != state.model.shape:
        raise ModelError(
            f"the step of {name} returned a model of {after.model.dtype} {after.model.shape}: expected float32 "
            f"{state.model.shape}"
        )
    kept: list[object] = list(after.memory.values())
    if any(not isinstance(array, np.ndarray) or array.dtype.hasobject for array in kept):
        raise ModelError(f"the step of {name} keeps something else than arrays of numbers, which cannot be kept")
    return after
