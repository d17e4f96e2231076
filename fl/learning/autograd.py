"""The trainer for any model, by PyTorch's autograd; the reference for hand-written ones."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fl.learning import per_sample
from fl.learning.batches import batch_slices
from fl.learning.model import Vector, flatten, unflatten_into
from fl.learning.settings import LocalSettings
from fl.learning.trainer import ClientData


@dataclass(frozen=True)
class AutogradTrainer:
    """A `Trainer` for every `nn.Module`."""

    model: nn.Module

    def sgd_update(
        self,
        start: Vector,
        data: ClientData,
        orders: Iterable[NDArray[np.int64]],
        settings: LocalSettings,
        mu: float,
    ) -> Vector:
        """See `Trainer`: a loop over batches with `torch.optim.SGD`."""
        net = copy.deepcopy(self.model)
        unflatten_into(net, start)
        parameters = list(net.parameters())
        anchors = [p.detach().clone() for p in parameters]
        optimiser = torch.optim.SGD(parameters, lr=settings.lr, momentum=settings.momentum)
        loss_function = nn.CrossEntropyLoss()
        for order in orders:
            permuted = torch.from_numpy(order)
            for batch in batch_slices(len(data.y), settings.batch_size):
                index = permuted[batch]
                optimiser.zero_grad()
                loss_function(net(data.x[index]), data.y[index]).backward()
                if mu > 0:
                    for parameter, anchor in zip(parameters, anchors, strict=True):
                        if parameter.grad is not None:
                            parameter.grad.add_(parameter.detach() - anchor, alpha=mu)
                optimiser.step()
        return flatten(net) - start

    def mean_clipped_step(self, start: Vector, data: ClientData, *, lr: float, clip_norm: float, origin: str) -> Vector:
        """See `Trainer`."""
        return per_sample.autograd_step(self.model, start, data, lr=lr, clip_norm=clip_norm, origin=origin)
