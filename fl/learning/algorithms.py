"""What the server does with an aggregate: FedAvg, FedProx and Upcycled-FL behind one small protocol."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fl.errors import ConfigError
from fl.learning.model import Vector


class Algorithm(Protocol):
    """Stateless: the model and the number of the uplink are all it needs."""

    @property
    def proximal_mu(self) -> float:
        """Weight of the clients' proximal term."""
        ...

    @property
    def steps_per_uplink(self) -> int:
        """Model steps that one uplink pays for."""
        ...

    def step(self, model: Vector, aggregate: Vector, uplink: int) -> Vector:
        """The model after the 1-based `uplink` brought `aggregate`, both (d,)."""
        ...


@dataclass(frozen=True)
class FedAvg:
    """McMahan et al. 2017: w <- w + sum p_i u_i, no proximal term."""

    proximal_mu: float = 0.0
    steps_per_uplink: int = 1

    def step(self, model: Vector, aggregate: Vector, uplink: int) -> Vector:
        """One step."""
        del uplink
        return model + aggregate


@dataclass(frozen=True)
class FedProx:
    """Li et al. 2020: FedAvg's step; clients are held back by mu/2 ||w - w_global||^2."""

    proximal_mu: float
    steps_per_uplink: int = 1

    def step(self, model: Vector, aggregate: Vector, uplink: int) -> Vector:
        """One step."""
        del uplink
        return model + aggregate


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

    def step(self, model: Vector, aggregate: Vector, uplink: int) -> Vector:
        """Two steps: the second reuses the first."""
        reuse = self.proximal_mu / (self.proximal_mu + self.lambda_at(uplink))
        return model + aggregate * np.float32(1.0 + reuse)
