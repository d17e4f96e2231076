"""Servers with a memory: momentum and adaptive step sizes on the aggregate, by import path.

    [algorithm]
    name = "fl.learning.server.adaptive:FedAdam"
    arguments = { lr = 0.03 }

The aggregate Delta_m is what the air delivered, noise included; a step reuses it and earlier ones, touches no data and
costs no privacy. Noise has its price elsewhere: v_m of FedAdam and FedYogi sees Delta_m^2, noise and all, so steps
shrink where noise dominates.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan, "Adaptive Federated Optimization", ICLR 2021, alg. 2;
Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution", 2019, for FedAvgM.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError
from fl.learning.model import Vector
from fl.learning.server.algorithms import ServerState


def _require(name: str, value: float, least: float, below: float) -> None:
    if not (math.isfinite(value) and least <= value < below):
        raise ConfigError(f"{name} is {value}, expected a number of at least {least:g} and below {below:g}")


def _kept(state: ServerState, name: str, start: float) -> NDArray[Any]:
    """An array of the memory, or where there is none yet, (d,) of `start`."""
    return state.memory.get(name, np.full_like(state.model, start))


@dataclass(frozen=True)
class FedAvgM:
    """Server momentum: v_m = momentum v_{m-1} + Delta_m, w <- w + lr v_m."""

    lr: float = 1.0
    momentum: float = 0.9
    proximal_mu: float = 0.0
    steps_per_uplink: int = 1

    def __post_init__(self) -> None:
        """Refuse rates that do not converge."""
        _require("lr", self.lr, 1e-12, math.inf)
        _require("momentum", self.momentum, 0.0, 1.0)

    def step(self, state: ServerState, aggregate: Vector, uplink: int) -> ServerState:
        """One step."""
        del uplink
        velocity = np.float32(self.momentum) * _kept(state, "velocity", 0.0) + aggregate
        return ServerState(state.model + np.float32(self.lr) * velocity, {"velocity": velocity})


@dataclass(frozen=True)
class FedAdam:
    """m = beta1 m + (1 - beta1) Delta, v = beta2 v + (1 - beta2) Delta^2, w <- w + lr m/(sqrt(v) + tau).

    v starts at tau^2, as the paper has it; without Adam's bias correction, which the paper leaves out.
    """

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    proximal_mu: float = 0.0
    steps_per_uplink: int = 1

    def __post_init__(self) -> None:
        """Refuse rates that do not converge."""
        _require("lr", self.lr, 1e-12, math.inf)
        _require("tau", self.tau, 1e-12, math.inf)
        _require("beta1", self.beta1, 0.0, 1.0)
        _require("beta2", self.beta2, 0.0, 1.0)

    def step(self, state: ServerState, aggregate: Vector, uplink: int) -> ServerState:
        """One step."""
        del uplink
        mean = np.float32(self.beta1) * _kept(state, "mean", 0.0) + np.float32(1 - self.beta1) * aggregate
        square = self._square(_kept(state, "square", self.tau**2), aggregate * aggregate)
        model = state.model + np.float32(self.lr) * mean / (np.sqrt(square) + np.float32(self.tau))
        return ServerState(model, {"mean": mean, "square": square})

    def _square(self, before: NDArray[Any], squared: Vector) -> NDArray[Any]:
        return np.asarray(np.float32(self.beta2) * before + np.float32(1 - self.beta2) * squared)


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """FedAdam with v = v - (1 - beta2) Delta^2 sign(v - Delta^2): it grows and shrinks by at most Delta^2 a step."""

    def _square(self, before: NDArray[Any], squared: Vector) -> NDArray[Any]:
        return np.asarray(before - np.float32(1 - self.beta2) * squared * np.sign(before - squared))
