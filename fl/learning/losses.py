"""What clients minimise: cross-entropy, or any function of outputs and targets by import path.

A loss takes a model's outputs (n, k) and the targets, int64 labels (n,) or float32 (n, k), and gives the mean over the
n samples, as those of torch.nn.functional do.
"""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from fl.errors import ModelError
from fl.import_path import build, import_object

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_TOLERANCE = 1e-4
"""Relative; two samples' mean loss against the mean of their losses, in float32."""


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean over the samples, in nats."""
    return nn.functional.cross_entropy(outputs, targets)


def import_loss(path: str, arguments: Mapping[str, Any]) -> Loss:
    """The loss `package.module:name`: a function, which `arguments` are passed on to, or a class, built with them."""
    made = import_object("local.loss", path)
    if isinstance(made, type):
        made = build("local.loss", path, arguments)
        if isinstance(made, nn.Module) and any(True for _ in made.parameters()):
            raise ModelError(f"local.loss '{path}' has parameters of its own: only the model's are trained")
    elif arguments:
        made = partial(made, **arguments)
    if not callable(made):
        raise ModelError(f"local.loss '{path}' is a {type(made).__name__}: expected a function or a class")
    loss: Loss = made
    return loss


def check_loss(loss: Loss, name: str, outputs: torch.Tensor, targets: torch.Tensor, *, by_sample: bool) -> None:
    """Raise `ModelError` unless `loss` gives one finite number that can be differentiated.

    by_sample: it must also be the mean of the losses of single samples. A record's term is made from its own loss
    alone, so a loss that looks at several samples at once would train something else than what it says.
    """
    outputs = outputs.detach().requires_grad_(True)
    one_number = "one finite number, a mean over the samples that depends on the outputs"
    try:
        with warnings.catch_warnings():
            # torch warns of shapes that broadcast, and the error below says it all.
            warnings.simplefilter("ignore")
            value: object = loss(outputs, targets)
        if not isinstance(value, torch.Tensor) or value.shape != ():
            made = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise ModelError(f"local.loss '{name}' gave {made}: expected {one_number}")
        value.backward()
        single = torch.stack([loss(outputs[j : j + 1], targets[j : j + 1]).detach() for j in range(len(targets))])
    except ModelError:
        raise
    except Exception as error:  # user code may raise anything
        raise ModelError(
            f"local.loss '{name}' does not take outputs {tuple(outputs.shape)} and targets {targets.dtype} "
            f"{tuple(targets.shape)}: {error}"
        ) from error
    if outputs.grad is None or not bool(torch.isfinite(value)):
        raise ModelError(f"local.loss '{name}' gave {float(value.detach()):g} on two samples: expected {one_number}")
    value = value.detach()
    if by_sample and not torch.allclose(single.mean(), value, rtol=_TOLERANCE, atol=1e-6):
        raise ModelError(
            f"local.loss '{name}' of two samples ({float(value):g}) is not the mean of their losses "
            f"({float(single.mean()):g}): local.mode = 'record' needs a loss that looks at one sample at a time"
        )
