"""Gradients and extreme Hessian eigenvalues of a client's loss: F_i is the mean loss over its samples."""

import copy
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fl.errors import ModelError
from fl.learning.losses import Loss, cross_entropy
from fl.learning.model import Vector, unflatten_into
from fl.learning.trainer import ClientData

Direction = NDArray[np.float64]
"""(d,), in double precision."""
_SMALLEST_RESIDUAL = 1e-6
"""Relative to the eigenvalues found; below it a float32 product is rounding, and the directions are used up."""


def loss_and_gradient(
    model: nn.Module, vector: Vector, data: ClientData, loss_function: Loss = cross_entropy
) -> tuple[float, Direction]:
    """F_i and grad F_i (d,) at `vector` (d,). `model` gives the architecture only."""
    parameters, loss = _placed(model, vector, data, loss_function)
    parts = torch.autograd.grad(loss, parameters, allow_unused=True)
    return float(loss.detach()), _flat(parameters, parts).numpy().astype(np.float64)


def hessian_extremes(
    model: nn.Module,
    vector: Vector,
    data: ClientData,
    rng: np.random.Generator,
    steps: int,
    loss_function: Loss = cross_entropy,
) -> tuple[float, float]:
    """Smallest and largest eigenvalue of the Hessian of F_i at `vector` (d,), by `lanczos_extremes`.

    Exact products with the Hessian: the graph of the gradient is built once and differentiated for each direction.
    """
    parameters, loss = _placed(model, vector, data, loss_function)
    first: Sequence[torch.Tensor | None] = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
    gradient = _flat(parameters, first)
    used = [parameter for parameter, part in zip(parameters, first, strict=True) if part is not None]

    def product(direction: Direction) -> Direction:
        weights = torch.from_numpy(direction.astype(np.float32))
        try:
            # Not `allow_unused`: a gradient that hides what it depends on would pass for a loss without curvature.
            found = iter(torch.autograd.grad(gradient, used, weights, retain_graph=True))
        except RuntimeError as error:
            raise ModelError(
                f"the model's gradient cannot be differentiated: {error}; give the constants that need its Hessian"
            ) from error
        second = [None if part is None else next(found) for part in first]
        return _flat(parameters, second).numpy().astype(np.float64)

    return lanczos_extremes(product, vector.size, rng, steps)


def _placed(
    model: nn.Module, vector: Vector, data: ClientData, loss_function: Loss
) -> tuple[list[nn.Parameter], torch.Tensor]:
    """Parameters at `vector` and the loss that can be differentiated by them."""
    net = copy.deepcopy(model)
    unflatten_into(net, vector)
    # Noise reaches parameters that are not trained as well.
    parameters = list(net.requires_grad_(True).parameters())
    return parameters, loss_function(net(data.x), data.y)


def _flat(parameters: Sequence[torch.Tensor], parts: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """`parts` as one vector (d,), with zeros for parameters on which the loss does not depend."""
    return torch.cat(
        [
            torch.zeros(parameter.numel()) if part is None else part.flatten()
            for parameter, part in zip(parameters, parts, strict=True)
        ]
    )


def lanczos_extremes(
    product: Callable[[Direction], Direction], dimension: int, rng: np.random.Generator, steps: int
) -> tuple[float, float]:
    """Smallest and largest Ritz value of a symmetric operator after `steps` products, from a random start.

    Ritz values lie within the spectrum, so the smallest eigenvalue is at most the first and the largest at least the
    second; with as many steps as dimensions both are exact. Written here because ARPACK (`scipy.sparse.linalg.eigsh`)
    puts no limit on the products, each a pass over a client's data, and takes no operator of few dimensions.
    """
    basis = np.zeros((min(steps, dimension), dimension))
    direction = rng.standard_normal(dimension)
    residual = float(np.linalg.norm(direction))
    diagonal: list[float] = []
    beside: list[float] = []
    for step, row in enumerate(basis):
        row[:] = direction / residual
        direction = product(row)
        diagonal.append(float(direction @ row))
        # Against all directions so far: against the last two alone rounding would bring found eigenvalues back.
        held = basis[: step + 1]
        direction = direction - (held @ direction) @ held
        residual = float(np.linalg.norm(direction))
        if not math.isfinite(residual):
            raise ModelError("a product with the Hessian is not finite: the model's parameters are too large")
        if residual <= _SMALLEST_RESIDUAL * max(map(abs, (*diagonal, *beside))):
            break
        beside.append(residual)
    # Of a symmetric matrix `eigvalsh` reads the lower triangle.
    values = np.linalg.eigvalsh(np.diag(diagonal) + np.diag(beside[: len(diagonal) - 1], -1))
    return float(values[0]), float(values[-1])
