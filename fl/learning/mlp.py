"""Local SGD of the MLP with hand-written gradients: the same updates as autograd, several times faster.

The first layer holds almost all parameters, and its gradient on a batch is dZ^T X_b: a combination of the client's own
samples. So is every momentum buffer and the proximal term, because they start at zero. The layer therefore stays

    [W1 b1] = [W1_0 b1_0] + A^T [X 1],      A of shape (n_i, hidden)

and SGD can run on A. With G = [X 1][X 1]^T and Z0 = X W1_0^T + b1_0 computed once, a batch needs Z = Z0[b] + G[b] A
instead of a product with 784 columns, and its gradient with respect to A is dZ itself: no product at all. Exact, with
fewer operations while a client has fewer than about twice as many samples as there are features; above that
`_WeightSpace` does the products.

The gradient with respect to the images is never needed, and the bias is a column of ones, in both layers.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fl.learning.batches import batch_slices
from fl.learning.model import MLP, mlp_layers


class _FirstLayer(Protocol):
    """The first layer under SGD, in whatever coordinates."""

    def reorder(self, order: torch.Tensor) -> None:
        """Begin an epoch: batches are slices of the samples in this order."""
        ...

    def forward(self, batch: slice) -> torch.Tensor:
        """Z (b, hidden) before the activation."""
        ...

    def step(self, batch: slice, gradient: torch.Tensor, *, lr: float, momentum: float, mu: float) -> None:
        """One SGD step from dL/dZ (b, hidden)."""
        ...

    def update(self) -> torch.Tensor:
        """[W1 b1] minus its start, flat: weights row by row, then biases."""
        ...


class _SampleSpace:
    """A and its velocity as rows per sample, kept in the epoch's order so that a batch is a contiguous slice."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, x: torch.Tensor) -> None:
        samples, hidden = len(x), len(bias)
        self._x = x
        self._start = torch.addmm(bias, x, weight.T)
        self._gram = (x @ x.T).add_(1.0)
        self._order = torch.arange(samples)
        self._rank = torch.empty_like(self._order)
        self._a = torch.zeros(samples, hidden)
        self._velocity = torch.zeros(samples, hidden)

    def reorder(self, order: torch.Tensor) -> None:
        self._rank[self._order] = torch.arange(len(order))
        moved = self._rank[order]
        self._a, self._velocity, self._order = self._a[moved], self._velocity[moved], order
        self._epoch_gram = self._gram[order][:, order]
        self._epoch_start = self._start[order]

    def forward(self, batch: slice) -> torch.Tensor:
        return torch.addmm(self._epoch_start[batch], self._epoch_gram[batch], self._a)

    def step(self, batch: slice, gradient: torch.Tensor, *, lr: float, momentum: float, mu: float) -> None:
        self._velocity.mul_(momentum)
        if mu > 0:
            self._velocity.add_(self._a, alpha=mu)
        self._velocity[batch].add_(gradient)
        self._a.sub_(self._velocity, alpha=lr)

    def update(self) -> torch.Tensor:
        return torch.cat([(self._a.T @ self._x[self._order]).flatten(), self._a.sum(dim=0)])


class _WeightSpace:
    """[W1 b1] and its velocity as they are; samples carry a column of ones."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, x: torch.Tensor) -> None:
        self._x = torch.cat([x, torch.ones(len(x), 1)], dim=1)
        self._start = torch.cat([weight, bias[:, None]], dim=1)
        self._weight = self._start.clone()
        self._velocity = torch.zeros_like(self._weight)
        self._gradient = torch.empty_like(self._weight)

    def reorder(self, order: torch.Tensor) -> None:
        self._epoch_x = self._x[order]

    def forward(self, batch: slice) -> torch.Tensor:
        return self._epoch_x[batch] @ self._weight.T

    def step(self, batch: slice, gradient: torch.Tensor, *, lr: float, momentum: float, mu: float) -> None:
        self._velocity.mul_(momentum)
        if mu > 0:
            self._velocity.add_(self._weight, alpha=mu).sub_(self._start, alpha=mu)
        torch.mm(gradient.T, self._epoch_x[batch], out=self._gradient)
        self._velocity.add_(self._gradient)
        self._weight.sub_(self._velocity, alpha=lr)

    def update(self) -> torch.Tensor:
        change = self._weight - self._start
        return torch.cat([change[:, :-1].flatten(), change[:, -1]])


def prefers_sample_space(samples: int, features: int) -> bool:
    """Whether A is the cheaper place: G A costs n columns against twice `features` for the two products it replaces."""
    return samples < 2 * features


def sgd_update(
    model: MLP,
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
    """w - w_global (d,) after momentum SGD on cross-entropy plus mu/2 ||w - w_global||^2. `model` gives the sizes."""
    weight, bias, second_weight, second_bias = mlp_layers(model, start)
    (hidden, features), classes = weight.shape, len(second_bias)
    with torch.inference_mode():
        space = _SampleSpace if prefers_sample_space(len(x), features) else _WeightSpace
        first: _FirstLayer = space(weight, bias, x)
        anchor = torch.cat([second_weight, second_bias[:, None]], dim=1)
        second, velocity = anchor.clone(), torch.zeros_like(anchor)
        one_hot = torch.nn.functional.one_hot(y, classes).to(torch.float32)
        activations = torch.ones(min(batch_size, len(x)), hidden + 1)
        slices = batch_slices(len(x), batch_size)
        for order in orders:
            permuted = torch.from_numpy(order)
            first.reorder(permuted)
            targets = one_hot[permuted]
            for batch in slices:
                z = first.forward(batch)
                active = activations[: len(z)]
                torch.clamp_min(z, 0.0, out=active[:, :hidden])
                error = torch.softmax(active @ second.T, dim=1).sub_(targets[batch]).div_(len(z))
                gradient = (error @ second[:, :hidden]).mul_(z > 0)
                velocity.mul_(momentum).addmm_(error.T, active)
                if mu > 0:
                    velocity.add_(second, alpha=mu).sub_(anchor, alpha=mu)
                second.sub_(velocity, alpha=lr)
                first.step(batch, gradient, lr=lr, momentum=momentum, mu=mu)
        change = second - anchor
        return torch.cat([first.update(), change[:, :-1].flatten(), change[:, -1]]).numpy()
