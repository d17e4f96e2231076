"""What a client does between two uplinks, and who trains its model."""

from dataclasses import dataclass

import numpy as np
from torch import nn

from fl.learning.autograd import AutogradTrainer
from fl.learning.batches import epoch_orders
from fl.learning.mlp import MLPTrainer
from fl.learning.model import MLP, Vector
from fl.learning.settings import LocalMode, LocalSettings
from fl.learning.trainer import ClientData, Trainer
from fl.privacy.clipping import BoundedUpdate, clip_update, mean_of_clipped


def trainer_for(model: nn.Module) -> Trainer:
    """Compiled kernels for the MLP itself, autograd for anything else: a subclass's forward may differ."""
    return MLPTrainer(model) if type(model) is MLP else AutogradTrainer(model)


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
