"""What a client does between two uplinks, and who trains its model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from fl.errors import ModelError
from fl.import_path import import_object
from fl.learning.autograd import AutogradTrainer, MakeOptimiser, momentum_sgd
from fl.learning.batches import epoch_orders
from fl.learning.losses import Loss, cross_entropy
from fl.learning.mlp import MLPTrainer
from fl.learning.model import MLP, Vector
from fl.learning.settings import LocalMode, LocalSettings
from fl.learning.trainer import ClientData, Trainer
from fl.privacy.clipping import BoundedUpdate, clip_update, mean_of_clipped


def trainer_for(
    model: nn.Module, loss: Loss = cross_entropy, make_optimiser: MakeOptimiser = momentum_sgd
) -> MLPTrainer | AutogradTrainer:
    """Compiled kernels for the MLP itself with SGD on cross-entropy, autograd for anything else.

    Not for subclasses: their forward may differ.
    """
    if type(model) is MLP and loss is cross_entropy and make_optimiser is momentum_sgd:
        return MLPTrainer(model)
    return AutogradTrainer(model, loss, make_optimiser)


def import_optimiser(path: str, arguments: Mapping[str, Any]) -> MakeOptimiser:
    """What makes a `package.module:Class` of the parameters, the learning rate `local.lr` and `arguments`."""
    kind = import_object("local.optimiser", path)

    def make(parameters: list[nn.Parameter], settings: LocalSettings) -> torch.optim.Optimizer:
        try:
            made = kind(parameters, lr=settings.lr, **arguments)
        except Exception as error:  # user code may raise anything
            raise ModelError(
                f"local.optimiser '{path}' cannot be built with lr {settings.lr} and {dict(arguments)}: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not isinstance(made, torch.optim.Optimizer):
            raise ModelError(f"local.optimiser '{path}' made a {type(made).__name__}: expected a torch.optim.Optimizer")
        return made

    return make


@dataclass(frozen=True)
class LocalTraining:
    """The same for all clients and uplinks of a run. mu: the algorithm's proximal weight. clip_norm: tau."""

    trainer: Trainer
    settings: LocalSettings
    mu: float
    clip_norm: float

    def update(self, start: Vector, data: ClientData, rng: np.random.Generator, *, origin: str) -> BoundedUpdate:
        """A client's bounded update from the global model `start` (d,). origin: what errors call it."""
        if self.settings.mode is LocalMode.RECORD:
            mean = self.trainer.mean_clipped_step(
                start, data, lr=self.settings.lr, clip_norm=self.clip_norm, origin=origin
            )
            return mean_of_clipped(mean, len(data.y), self.clip_norm, origin=origin)
        orders = epoch_orders(len(data.y), self.settings.epochs, rng)
        update = self.trainer.sgd_update(start, data, orders, self.settings, self.mu)
        return clip_update(update, self.clip_norm, origin=origin)
