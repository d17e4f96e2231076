"""What a client does between two uplinks: the settings, the order of its batches, and the choice of trainer."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fl.learning import autograd, mlp, record
from fl.learning.batches import epoch_orders
from fl.learning.mode import LocalMode
from fl.learning.model import MLP
from fl.privacy.clipping import BoundedUpdate, clip_update, mean_of_clipped


@dataclass(frozen=True)
class LocalSettings:
    """mu: proximal weight of mu/2 ||w - w_global||^2; 0 turns it off. The learning rate and momentum are SGD's."""

    mode: LocalMode
    epochs: int
    batch_size: int
    lr: float
    momentum: float
    mu: float


@dataclass(frozen=True)
class ClientData:
    """x: float32 (n_i, features). y: int64 (n_i,)."""

    x: torch.Tensor
    y: torch.Tensor


def train_client(
    model: nn.Module,
    start: NDArray[np.float32],
    data: ClientData,
    settings: LocalSettings,
    clip_norm: float,
    rng: np.random.Generator,
    *,
    origin: str,
) -> BoundedUpdate:
    """The client's bounded update from the global model `start` (d,). `model` gives the architecture only.

    The MLP itself goes through hand-written gradients, anything else (subclasses too, whose forward may differ) through
    autograd; the updates are the same within rounding.
    """
    if settings.mode is LocalMode.RECORD:
        mean = record.mean_clipped_step(
            model, start, data.x, data.y, lr=settings.lr, clip_norm=clip_norm, origin=origin
        )
        return mean_of_clipped(mean, len(data.y), clip_norm, origin=origin)
    orders: Iterator[NDArray[np.int64]] = epoch_orders(len(data.y), settings.epochs, rng)
    train = mlp.sgd_update if type(model) is MLP else autograd.sgd_update
    update = train(
        model,  # type: ignore[arg-type]
        start,
        data.x,
        data.y,
        orders,
        batch_size=settings.batch_size,
        lr=settings.lr,
        momentum=settings.momentum,
        mu=settings.mu,
    )
    return clip_update(update, clip_norm, origin=origin)
