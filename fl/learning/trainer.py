"""What a trainer is: the gradients of one model, on the data of one client after another."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fl.learning.model import Vector
from fl.learning.settings import LocalSettings


@dataclass(frozen=True)
class ClientData:
    """x: float32 (n_i, ...), as the model takes it. y: int64 labels (n_i,), or float32 targets (n_i, outputs)."""

    x: torch.Tensor
    y: torch.Tensor


class Trainer(Protocol):
    """Made for one architecture and used for all clients of a run, by several threads at once.

    It changes neither the model that it was made with, nor `start`, nor the data. All trainers of a model give the same
    updates within rounding.
    """

    def sgd_update(
        self,
        start: Vector,
        data: ClientData,
        orders: Iterable[NDArray[np.int64]],
        settings: LocalSettings,
        mu: float,
    ) -> Vector:
        """w - w_global (d,) after SGD on the loss plus mu/2 ||w - w_global||^2, from `start` (d,).

        orders: one permutation of the samples for each epoch.
        """
        ...

    def mean_clipped_step(self, start: Vector, data: ClientData, *, lr: float, clip_norm: float, origin: str) -> Vector:
        """1/n_i sum_j clip(-lr g_j, clip_norm) (d,), g_j the gradient of sample j's loss at `start` (d,)."""
        ...
