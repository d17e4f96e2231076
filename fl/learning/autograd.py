"""Local SGD the plain way, for any model, and the reference for the hand-written trainer."""

import copy
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fl.learning.batches import batch_slices
from fl.learning.model import flatten, unflatten_into


def sgd_update(
    model: nn.Module,
    start: NDArray[np.float32],
    x: torch.Tensor,
    y: torch.Tensor,
    orders: Iterator[NDArray[np.int64]],
    *,
    batch_size: int,
    lr: float,
    momentum: float,
    mu: float,
) -> NDArray[np.float32]:
    """w - w_global (d,) after momentum SGD on cross-entropy plus mu/2 ||w - w_global||^2. `model` is not changed."""
    net = copy.deepcopy(model)
    unflatten_into(net, start)
    parameters = list(net.parameters())
    anchors = [p.detach().clone() for p in parameters]
    optimiser = torch.optim.SGD(parameters, lr=lr, momentum=momentum)
    loss_function = nn.CrossEntropyLoss()
    for order in orders:
        permuted = torch.from_numpy(order)
        for batch in batch_slices(len(y), batch_size):
            index = permuted[batch]
            optimiser.zero_grad()
            loss_function(net(x[index]), y[index]).backward()
            if mu > 0:
                for parameter, anchor in zip(parameters, anchors, strict=True):
                    if parameter.grad is not None:
                        parameter.grad.add_(parameter.detach() - anchor, alpha=mu)
            optimiser.step()
    return flatten(net) - start
