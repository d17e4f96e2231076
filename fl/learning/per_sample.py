"""The local mode for which record-level privacy is earned: one full-batch step on per-sample-clipped gradients.

The step is the mean over the client's samples j of the terms t_j = clip(-lr grad F(w_global, sample j), tau). Changing
one sample moves it by at most tau/n_i (zero-out) or 2 tau/n_i (replace-one). At w = w_global the proximal term has no
gradient, so all algorithms share this step.
"""

import copy

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from fl.errors import ModelError
from fl.learning.batches import batch_slices
from fl.learning.losses import Loss, cross_entropy
from fl.learning.model import MLP, Vector, mlp_layers
from fl.learning.trainer import ClientData
from fl.privacy.clipping import per_sample_scales

_CHUNK_FLOATS = 32_000_000
"""Per-sample gradients held at once by autograd: 128 MB."""


def mlp_step(model: MLP, start: Vector, data: ClientData, *, lr: float, clip_norm: float, origin: str) -> Vector:
    """`Trainer.mean_clipped_step` of the MLP.

    Norms without gradients: in a linear layer g_j is an outer product, so ||g_j|| = ||error|| ||input||.
    """
    x, y = data.x, data.y
    weight, bias, second, second_bias = mlp_layers(model, start)
    with torch.inference_mode():
        z = torch.addmm(bias, x, weight.T)
        active = torch.relu(z)
        error = torch.softmax(torch.addmm(second_bias, active, second.T), dim=1)
        error -= torch.nn.functional.one_hot(y, len(second_bias))
        hidden_error = (error @ second).mul_(z > 0)
        squared = hidden_error.double().square().sum(1) * (x.double().square().sum(1) + 1)
        squared += error.double().square().sum(1) * (active.double().square().sum(1) + 1)
        scales = torch.from_numpy(
            per_sample_scales(lr * squared.sqrt().numpy(), clip_norm, terms=len(y), origin=f"gradients of {origin}")
        )
        factor = scales.double().mul_(-lr / len(y))[:, None]
        # Summed in float64: in float32 the rounding of the others' terms could move the mean by more than a term.
        hidden_error, error = hidden_error * factor, error * factor
        parts = [
            (hidden_error.T @ x.double()).flatten(),
            hidden_error.sum(0),
            (error.T @ active.double()).flatten(),
            error.sum(0),
        ]
        return torch.cat(parts).float().numpy()


def autograd_step(
    model: nn.Module,
    start: Vector,
    data: ClientData,
    *,
    lr: float,
    clip_norm: float,
    origin: str,
    loss_function: Loss = cross_entropy,
) -> Vector:
    """`Trainer.mean_clipped_step` of any module and loss: per-sample gradients by `torch.func`, in chunks of samples.

    Model and loss are called with one sample, and `vmap` keeps samples apart: a term cannot depend on another sample,
    whatever they compute. What they must not do is keep something from one call to the next.
    """
    x, y = data.x, data.y
    # `functional_call` puts its values into the module while it runs, so threads must not share one.
    net = copy.deepcopy(model)
    names = [name for name, _ in model.named_parameters()]
    shapes = [parameter.shape for parameter in model.parameters()]
    cuts = np.cumsum([shape.numel() for shape in shapes])[:-1]
    pieces = np.split(start, cuts)
    parameters = {
        name: torch.from_numpy(piece).view(shape) for name, piece, shape in zip(names, pieces, shapes, strict=True)
    }

    def loss(values: dict[str, torch.Tensor], sample: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        outputs = functional_call(net, values, (sample[None],))
        return loss_function(outputs, target[None])

    per_sample = vmap(grad(loss), in_dims=(None, 0, 0))
    total = torch.zeros(len(start), dtype=torch.float64)
    for batch in batch_slices(len(y), max(1, _CHUNK_FLOATS // len(start))):
        try:
            gradients = per_sample(parameters, x[batch], y[batch])
        except Exception as error:  # user code may raise anything
            raise ModelError(
                f"the model has no per-sample gradients, which local.mode = 'record' needs: {error}"
            ) from error
        flat = torch.cat([gradients[name].flatten(1) for name in names], dim=1)
        norms = lr * torch.linalg.vector_norm(flat.double(), dim=1)
        scales = torch.from_numpy(
            per_sample_scales(norms.numpy(), clip_norm, terms=len(y), origin=f"gradients of {origin}")
        )
        total += scales.double().mul_(-lr / len(y)) @ flat.double()
    return total.float().numpy()
