"""Models: the paper's MLP, or any `nn.Module` by import path, as flat parameter vectors."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fl.errors import ModelError
from fl.import_path import build
from fl.learning.settings import InputShape

Vector = NDArray[np.float32]
"""All parameters of a model, or an update of them: (d,), in the order of `nn.Module.parameters()`."""


class MLP(nn.Module):
    """features - hidden - classes with ReLU. The paper's 784-196-10 (14 x 14 hidden units) has d = 155,830."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        """PyTorch's default initialisation: uniform in +-1/sqrt(inputs)."""
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (n, classes) of samples (n, features)."""
        logits: torch.Tensor = self.second(torch.relu(self.first(x)))
        return logits


def build_mlp(features: int, hidden: int, classes: int, seed: int) -> MLP:
    """An MLP whose initial weights depend on `seed` alone; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return MLP(features, hidden, classes)
        except (RuntimeError, MemoryError) as error:
            raise ModelError(
                f"an MLP of {features}-{hidden}-{classes} units does not fit into memory "
                f"({4e-9 * hidden * (features + classes):,.3g} GB): lower model.hidden"
            ) from error


def import_module(path: str, arguments: Mapping[str, Any], seed: int) -> nn.Module:
    """Build `package.module:Name` with `arguments`; raises `ModelError` that says what failed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: nn.Module = build("model.module", path, arguments, nn.Module)
    if any(nn.parameter.is_lazy(parameter) for parameter in model.parameters()):
        raise ModelError(
            f"model.module '{path}' has lazy layers, whose start would not depend on the seed alone; give their sizes"
        )
    mixing = [layer for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    if mixing:
        raise ModelError(
            f"model.module '{path}' has {type(mixing[0]).__name__}: its output for a sample depends on the others of "
            "the batch, so that no record's share could be bounded, and its buffers do not travel; use nn.GroupNorm("
            f"groups, {mixing[0].num_features}) instead"
        )
    if any(True for _ in model.buffers()):
        raise ModelError(f"model.module '{path}' has buffers: only parameters travel; use layers without them")
    if any(isinstance(layer, nn.modules.dropout._DropoutNd) for layer in model.modules()):
        raise ModelError(
            f"model.module '{path}' has dropout: its random choices could not be repeated on resume; remove it"
        )
    return model


def shaped(x: torch.Tensor, sample_shape: tuple[int, ...], kind: InputShape) -> torch.Tensor:
    """Flat samples x (n, features) as the model takes them; an image without channels gets one."""
    if kind is InputShape.FLAT:
        return x
    images = x.reshape(len(x), *sample_shape)
    if kind is InputShape.AS_IS:
        return images
    if len(sample_shape) not in (2, 3):
        raise ModelError(f"model.input = 'channels-first' is for images, not for samples of shape {sample_shape}")
    return images[:, None] if len(sample_shape) == 2 else images.movedim(-1, 1).contiguous()


def check_model(model: nn.Module, sample_shape: tuple[int, ...], classes: int) -> None:
    """Raise `ModelError` unless `model` is float32, trainable and maps samples of this shape to `classes` outputs."""
    parameters = list(model.parameters())
    if not any(p.requires_grad for p in parameters) or any(p.dtype != torch.float32 for p in parameters):
        raise ModelError("the model must have float32 parameters that can be trained")
    try:
        with torch.no_grad():
            shape = tuple(model(torch.zeros(2, *sample_shape)).shape)
    except Exception as error:  # user code may raise anything
        sizes = ", ".join(str(size) for size in ("n", *sample_shape))
        raise ModelError(
            f"the model does not take samples of shape ({sizes}): {error}; model.input chooses flat, as-is or "
            "channels-first"
        ) from error
    if shape != (2, classes):
        raise ModelError(f"the model maps 2 samples to shape {shape}: expected (2, {classes}) outputs")


def mlp_layers(model: MLP, vector: Vector) -> tuple[torch.Tensor, ...]:
    """`vector` (d,) as W1 (hidden, features), b1 (hidden,), W2 (classes, hidden), b2 (classes,): views."""
    shapes = [parameter.shape for parameter in model.parameters()]
    pieces = np.split(vector, np.cumsum([shape.numel() for shape in shapes])[:-1])
    return tuple(torch.from_numpy(piece).view(shape) for piece, shape in zip(pieces, shapes, strict=True))


def flatten(model: nn.Module) -> Vector:
    """Parameters as one float32 vector (d,), a copy."""
    return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])


def model_at(model: nn.Module, vector: Vector) -> nn.Module:
    """A copy of `model` with the parameters `vector` (d,)."""
    made = copy.deepcopy(model)
    unflatten_into(made, vector)
    return made


def unflatten_into(model: nn.Module, vector: Vector) -> None:
    """Write `vector` (d,) into the parameters of `model`; one that does not fit changes nothing."""
    parameters = list(model.parameters())
    count = sum(parameter.numel() for parameter in parameters)
    if np.shape(vector) != (count,):
        raise ModelError(f"a vector of shape {np.shape(vector)} does not fit a model of {count} parameters")
    pieces = np.split(np.asarray(vector), np.cumsum([parameter.numel() for parameter in parameters])[:-1])
    with torch.no_grad():
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.copy_(torch.from_numpy(piece).view_as(parameter))
