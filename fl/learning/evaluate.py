"""Accuracy and loss of a global model."""

from dataclasses import dataclass

import torch
from torch import nn

from fl.learning.batches import batch_slices
from fl.learning.model import Vector, unflatten_into

_CHUNK_SAMPLES = 4096


@dataclass(frozen=True)
class Scores:
    """Mean cross-entropy in nats and fraction of right answers."""

    loss: float
    accuracy: float


def evaluate(model: nn.Module, vector: Vector, x: torch.Tensor, y: torch.Tensor) -> Scores:
    """Scores of parameters `vector` (d,) on samples x (n, features), y (n,). `model` is used as a scratchpad."""
    unflatten_into(model, vector)
    loss, right = 0.0, 0
    with torch.inference_mode():
        for part in batch_slices(len(y), _CHUNK_SAMPLES):
            logits = model(x[part])
            loss += float(nn.functional.cross_entropy(logits, y[part], reduction="sum"))
            right += int((logits.argmax(dim=1) == y[part]).sum())
    return Scores(loss=loss / len(y), accuracy=right / len(y))
