"""Score and loss of a global model."""

from dataclasses import dataclass

import torch
from torch import nn

from fl.learning.batches import batch_slices
from fl.learning.data.dataset import Target
from fl.learning.losses import Loss, cross_entropy
from fl.learning.model import Vector, unflatten_into

_CHUNK_SAMPLES = 4096


@dataclass(frozen=True)
class Scores:
    """Mean loss over the samples, and the score that belongs to the targets (`Target.score`), at best 1."""

    loss: float
    accuracy: float


def evaluate(
    model: nn.Module,
    vector: Vector,
    x: torch.Tensor,
    y: torch.Tensor,
    loss_function: Loss = cross_entropy,
    target: Target = Target.LABEL,
) -> Scores:
    """Scores of parameters `vector` (d,) on samples x (n, ...) with targets y. `model` is used as a scratchpad."""
    unflatten_into(model, vector)
    loss, right = 0.0, 0.0
    with torch.inference_mode():
        for part in batch_slices(len(y), _CHUNK_SAMPLES):
            outputs = model(x[part])
            loss += float(loss_function(outputs, y[part])) * len(y[part])
            right += _right(outputs, y[part], target)
    return Scores(loss=loss / len(y), accuracy=_score(right, y, target))


def _right(outputs: torch.Tensor, y: torch.Tensor, target: Target) -> float:
    """Right labels, right bits (an output above 0 says 1), or the sum of squared errors."""
    if target is Target.LABEL:
        return float((outputs.argmax(dim=1) == y).sum())
    if target is Target.BITS:
        return float(((outputs > 0) == (y > 0.5)).sum())
    return float((outputs.double() - y.double()).square().sum())


def _score(right: float, y: torch.Tensor, target: Target) -> float:
    if target is not Target.NUMBERS:
        return right / y.numel()
    total = float((y.double() - y.double().mean(dim=0)).square().sum())
    # Where all targets are alike there is nothing to explain: only an exact answer is right.
    return 1.0 - right / total if total > 0 else float(right == 0)
