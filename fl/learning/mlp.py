"""The trainer for the MLP, with hand-written gradients: the same updates as autograd, many times faster.

The first layer holds almost all parameters, and its gradient on a batch is dZ^T X_b: a combination of the client's own
samples. So is every momentum buffer and the proximal term, because they start at zero. The layer therefore stays

    [W1 b1] = [W1_0 b1_0] + A^T [X 1],      A of shape (n_i, hidden)

and SGD can run on A. With G = [X 1][X 1]^T and Z0 = X W1_0^T + b1_0 computed once, a batch needs Z = Z0[b] + G[b] A
instead of a product with 784 columns, and its gradient with respect to A is dZ itself: no product at all. Exact, with
fewer operations while a client has fewer than about twice as many samples as there are features. Above that SGD runs on
the change C of the weights, with Z = Z0[b] + [X 1][b] C^T: the same loop with other inputs, and dZ^T [X 1][b] to add.
A single epoch needs of G only what is between a batch and those before it, about a third.

The gradient with respect to the images is never needed, and the bias is a column of ones, in both layers.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fl.errors import ModelError
from fl.learning import per_sample
from fl.learning.batches import batch_slices
from fl.learning.mlp_epoch import LANES, UNITS, First, Rates, Samples, Second, padded, train_epoch
from fl.learning.model import MLP, Vector, mlp_layers
from fl.learning.settings import LocalSettings
from fl.learning.trainer import ClientData


def prefers_sample_space(samples: int, features: int) -> bool:
    """Whether A is the cheaper place: G A costs n columns against twice `features` for the two products it replaces."""
    return samples < 2 * features


@dataclass(frozen=True)
class MLPTrainer:
    """A `Trainer` with compiled kernels. The model gives the sizes only: a subclass's forward would be passed over."""

    model: MLP

    def sgd_update(
        self,
        start: Vector,
        data: ClientData,
        orders: Iterable[NDArray[np.int64]],
        settings: LocalSettings,
        mu: float,
    ) -> Vector:
        """See `Trainer`: a call of `train_epoch` for each epoch, on the first layer's A or C."""
        x, labels, orders = data.x, data.y.numpy(), list(orders)
        weight, bias, second_weight, second_bias = mlp_layers(self.model, start)
        (hidden, features), classes = weight.shape, len(second_bias)
        if labels.shape != (len(x),) or labels.min() < 0 or labels.max() >= classes:
            raise ModelError(
                f"labels of shape {labels.shape} for {len(x)} samples: expected one of 0..{classes - 1} each"
            )
        update = np.empty_like(start)
        changes = mlp_layers(self.model, update)
        with torch.inference_mode():
            in_sample_space = prefers_sample_space(len(x), features)
            once = in_sample_space and len(orders) == 1
            if once:
                x, labels, orders = x[torch.from_numpy(orders[0])], labels[orders[0]], [np.arange(len(x))]
            if in_sample_space:
                inputs = _products_before(x, settings.batch_size) if once else (x @ x.T).add_(1.0)
            else:
                inputs = torch.cat([x, torch.ones(len(x), 1)], dim=1)
            samples = Samples(_padded(inputs), torch.addmm(bias, x, weight.T).numpy(), labels)
            first = First(*np.zeros((2, padded(hidden, UNITS), samples.inputs.shape[1]), np.float32))
            anchor = _padded(torch.cat([second_weight, second_bias[:, None]], dim=1), UNITS)
            second = Second(anchor.copy(), anchor, np.zeros_like(anchor))
            rates = Rates(np.float32(settings.lr), np.float32(settings.momentum), np.float32(mu))
            for order in orders:
                train_epoch(samples, order, first, second, rates, settings.batch_size, classes, in_sample_space, once)
            change = torch.from_numpy(first.change[:hidden, : inputs.shape[1]])
            if in_sample_space:
                torch.mm(change, x, out=changes[0])
                torch.sum(change, dim=1, out=changes[1])
            else:
                changes[0].copy_(change[:, :-1])
                changes[1].copy_(change[:, -1])
            change = torch.from_numpy((second.weights - anchor)[:classes, : hidden + 1])
            changes[2].copy_(change[:, :-1])
            changes[3].copy_(change[:, -1])
        return update

    def mean_clipped_step(self, start: Vector, data: ClientData, *, lr: float, clip_norm: float, origin: str) -> Vector:
        """See `Trainer`."""
        return per_sample.mlp_step(self.model, start, data, lr=lr, clip_norm=clip_norm, origin=origin)


def _products_before(x: torch.Tensor, batch_size: int) -> torch.Tensor:
    """G (n, n) where it is looked at in a single epoch: between the samples of a batch and those of batches before."""
    inputs = torch.zeros(len(x), len(x))
    for batch in batch_slices(len(x), batch_size):
        inputs[batch, : batch.start] = (x[batch] @ x[: batch.start].T).add_(1.0)
    return inputs


def _padded(matrix: torch.Tensor, rows: int = 1) -> NDArray[np.float32]:
    """`matrix` with zeros after it, to a multiple of `rows` and of what products are summed over."""
    height, width = matrix.shape
    return torch.nn.functional.pad(matrix, (0, padded(width, LANES) - width, 0, padded(height, rows) - height)).numpy()
