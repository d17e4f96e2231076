"""Canaries: records of a run whose clipped terms are replaced by known directions, each there or not by a coin.

A canary's term is tau v_j where it is there and 0 where it is not: that is the zero-out neighbour, and its share of the
sum is Delta = 1/(n s_i) in units of tau, the same as charged for any record. The v_j are rows of a seeded Hadamard
matrix over 2^q of the model's coordinates, so they are orthonormal and one fast transform projects on all of them. An
adversary who knows every other record subtracts what the others send, and so does the audit.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError
from fl.learning.local import LocalTraining
from fl.learning.model import Vector
from fl.learning.trainer import ClientData
from fl.privacy.clipping import BoundedUpdate, mean_of_clipped
from fl.random_streams import Stream, generator

_LENGTH = 1.0 - 2.0**-20
"""Of a canary in units of tau: rounding to float32 must not make it longer than tau."""


def hadamard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal Walsh-Hadamard transform of (L,), L a power of two; its own inverse."""
    out = values.astype(np.float64)
    half = 1
    while half < out.size:
        pairs = out.reshape(-1, 2, half)
        out = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    return np.asarray(out / math.sqrt(out.size))


@dataclass(frozen=True)
class Canaries:
    """count: M. coordinates: d. sizes: n_i of each client. Everything else follows from the seed."""

    count: int
    coordinates: int
    sizes: tuple[int, ...]
    seed: int

    def __post_init__(self) -> None:
        """Refuse more canaries than there are records or orthogonal directions."""
        most = min(sum(self.sizes), 1 << (self.coordinates.bit_length() - 1))
        if not 1 <= self.count <= most:
            raise ConfigError(
                f"audit.canaries is {self.count}: expected 1 to {most}, for {sum(self.sizes)} records and "
                f"{self.coordinates} coordinates"
            )

    @cached_property
    def _drawn(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """Coordinates, signs, rows and records of the canaries."""
        rng = generator(self.seed, Stream.AUDIT)
        length = 1 << (self.coordinates.bit_length() - 1)
        places = rng.permutation(self.coordinates)[:length]
        signs = rng.choice([-1.0, 1.0], length)
        rows = rng.permutation(length)[: self.count]
        records = rng.permutation(sum(self.sizes))[: self.count]
        return places, signs, rows, records

    @cached_property
    def present(self) -> NDArray[np.bool_]:
        """Which are there (M,), with probability 1/2 each."""
        return np.asarray(generator(self.seed, Stream.AUDIT, 1).random(self.count) < 0.5)

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """The client of each (M,)."""
        return np.asarray(np.searchsorted(np.cumsum(self.sizes), self._drawn[3], side="right"), np.int64)

    def records(self, client: int) -> NDArray[np.int64]:
        """Numbers of the client's records that are canaries."""
        first = sum(self.sizes[:client])
        return np.asarray(self._drawn[3][self.owners == client] - first)

    def mixture(self, client: int) -> NDArray[np.float64]:
        """Sum of the directions (d,) of those canaries of a client that are there."""
        places, signs, rows, _ = self._drawn
        coefficients = np.zeros(places.size)
        coefficients[rows[(self.owners == client) & self.present]] = 1.0
        values = np.zeros(self.coordinates)
        values[places] = signs * hadamard(coefficients)
        return values

    def project(self, values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Inner products (M,) of a vector (d,) with all directions."""
        places, signs, rows, _ = self._drawn
        return np.asarray(hadamard(signs * values[places].astype(np.float64))[rows])


@dataclass(frozen=True)
class CanariedUpdate:
    """background: projections (M,) of what the client's other records send, which the adversary knows."""

    update: BoundedUpdate
    background: NDArray[np.float64]


def canaried_update(
    canaries: Canaries, client: int, local: LocalTraining, start: Vector, data: ClientData, *, origin: str
) -> CanariedUpdate:
    """A client's update in the mode `record`, with some of its records' terms replaced."""
    size = len(data.y)
    ordinary = np.setdiff1d(np.arange(size), canaries.records(client))
    background = np.zeros(start.size, np.float64)
    if ordinary.size:
        rest = ClientData(data.x[ordinary], data.y[ordinary])
        step = local.trainer.mean_clipped_step(
            start, rest, lr=local.settings.lr, clip_norm=local.clip_norm, origin=origin
        )
        background += step.astype(np.float64) * (ordinary.size / size)
    mean = background + canaries.mixture(client) * (_LENGTH * local.clip_norm / size)
    update = mean_of_clipped(mean.astype(np.float32), size, local.clip_norm, origin=origin)
    return CanariedUpdate(update, canaries.project(background))
