"""Settings of power control, and how the server chooses alpha_u: one small type for each rule."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError
from fl.uplink.modes import Backoff, Rescale
from fl.uplink.power_control import alpha_u_for_noise, alpha_u_without_backoff


@dataclass(frozen=True)
class Fixed:
    """The same number in every uplink."""

    value: float

    def __post_init__(self) -> None:
        """Refuse what cannot be a factor."""
        _checked(self.value)


@dataclass(frozen=True)
class Scheduled:
    """A number for each uplink, planned in advance."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what cannot be a factor."""
        for value in self.values:
            _checked(value)


@dataclass(frozen=True)
class ForNoise:
    """The receiver's own noise shall be `sigma` per coordinate after division by alpha_u."""

    sigma: float

    def __post_init__(self) -> None:
        """Refuse a level that no noise has."""
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise ConfigError(f"the noise that alpha_u is sized for is {self.sigma}: expected a finite number above 0")


@dataclass(frozen=True)
class Largest:
    """The largest with which nobody has to back off, chosen anew from the gains of each uplink."""


AlphaU = Fixed | Scheduled | ForNoise | Largest


@dataclass(frozen=True)
class PowerSettings:
    """The server's rule for alpha_u, how clients back off, and what the server multiplies the sum with."""

    alpha_u: AlphaU
    backoff: Backoff = Backoff.WORST_CASE
    rescale: Rescale = Rescale.RESCALED


@dataclass(frozen=True)
class UplinkState:
    """What a rule may look at, all of it public. weights, gains, limits: p_i, h_i and P_i of each client (K,).

    noise_std_real: of the receiver. margin: by how much more than nominally the largest client's gain is charged.
    """

    uplink: int
    noise_std_real: float
    weights: NDArray[np.float64]
    gains: NDArray[np.complex128]
    limits: NDArray[np.float64]
    margin: float = 1.0


def choose_alpha_u(rule: AlphaU, state: UplinkState) -> float:
    """alpha_u of one uplink."""
    match rule:
        case Fixed(value):
            return value
        case Scheduled(values):
            return values[state.uplink - 1]
        case ForNoise(sigma):
            return alpha_u_for_noise(state.noise_std_real, state.margin * sigma)
        case Largest():
            return alpha_u_without_backoff(state.weights, state.gains, state.limits)


def _checked(value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"alpha_u is {value}: expected a finite number above 0")
