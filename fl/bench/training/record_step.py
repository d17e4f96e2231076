"""A step of a client in record mode (per-sample clipping) against Opacus, on the same model and batch."""

import copy
import importlib.util
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from fl.bench.measure import Measurement, compare
from fl.learning.local import trainer_for
from fl.learning.losses import cross_entropy
from fl.learning.model import Vector, build_mlp, flatten
from fl.learning.nets import SmallCNN
from fl.learning.trainer import ClientData
from fl.learning.workforce import single_threaded_torch

SAMPLES, LR, CLIP_NORM = 200, 0.05, 0.02
"""A client of the paper's size; about half of its gradients are longer than the bound."""


def missing_opacus() -> str | None:
    """What to install, None where it is there."""
    if importlib.util.find_spec("opacus") is not None:
        return None
    return "Opacus: pip install opacus==1.6.0"


@dataclass(frozen=True)
class RecordStep:
    """1/n sum_j clip(-lr g_j, tau) of one client."""

    model: nn.Module
    data: ClientData

    @classmethod
    def of_mlp(cls) -> "RecordStep":
        """The paper's 784-196-10."""
        return cls(build_mlp(784, 196, 10, seed=1), _data((784,)))

    @classmethod
    def of_cnn(cls) -> "RecordStep":
        """A small convolutional network on images of 28 x 28."""
        with torch.random.fork_rng():
            torch.manual_seed(1)
            return cls(SmallCNN(1, 10), _data((1, 28, 28)))

    def ours(self) -> Vector:
        """As a run does it."""
        return trainer_for(self.model).mean_clipped_step(
            flatten(self.model), self.data, lr=LR, clip_norm=CLIP_NORM, origin="the benchmark"
        )

    def opacus(self, *, ghost: bool = False) -> "OpacusStep":
        """The same by Opacus, without noise. ghost: norms without gradients, and a second pass for their sum."""
        return OpacusStep(self, ghost)


class OpacusStep:
    """Opacus' model and optimiser, made once; a call is a step, from the same model each time."""

    def __init__(self, work: RecordStep, ghost: bool) -> None:
        from opacus import GradSampleModule
        from opacus.grad_sample import GradSampleModuleFastGradientClipping
        from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
        from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

        self._work, net = work, copy.deepcopy(work.model)
        # Terms are clipped to tau after the learning rate here, before it there.
        bound, batch = CLIP_NORM / LR, len(work.data.y)
        about: dict[str, Any] = {"noise_multiplier": 0.0, "max_grad_norm": bound, "expected_batch_size": batch}
        self._loss: Any = cross_entropy
        if ghost:
            self._net: Any = GradSampleModuleFastGradientClipping(net, max_grad_norm=bound, use_ghost_clipping=True)
            sgd = torch.optim.SGD(self._net.parameters(), lr=LR)
            self._optimiser: Any = DPOptimizerFastGradientClipping(sgd, **about)
            criterion = nn.CrossEntropyLoss(reduction="mean")
            self._loss = DPLossFastGradientClipping(self._net, self._optimiser, criterion)
        else:
            self._net = GradSampleModule(net)
            self._optimiser = DPOptimizer(torch.optim.SGD(self._net.parameters(), lr=LR), **about)
        self._start = [parameter.detach().clone() for parameter in self._net.parameters()]

    def __call__(self) -> Vector:
        """The update (d,)."""
        with warnings.catch_warnings():
            # Its hooks are older than PyTorch's present ones, and say so at every step.
            warnings.simplefilter("ignore")
            self._optimiser.zero_grad()
            self._loss(self._net(self._work.data.x), self._work.data.y).backward()
            self._optimiser.step()
        with torch.no_grad():
            parts = [(p - s).flatten() for p, s in zip(self._net.parameters(), self._start, strict=True)]
            for parameter, begun in zip(self._net.parameters(), self._start, strict=True):
                parameter.copy_(begun)
        return torch.cat(parts).numpy()


def record_step(repeats: int) -> Measurement:
    """The MLP against Opacus' per-sample gradients; ghost clipping and the small CNN among the facts."""
    with single_threaded_torch():
        work = RecordStep.of_mlp()
        other = work.opacus()
        facts = {"largest_relative_difference": _difference(work.ours(), other())}
        ghost = compare(work.ours, work.opacus(ghost=True), 8 * repeats, one_thread=True, workload="", reference="")
        cnn = RecordStep.of_cnn()
        third = compare(cnn.ours, cnn.opacus(), repeats, one_thread=True, workload="", reference="")
        facts |= {"ratio_ghost_clipping": ghost.ratio, "ratio_cnn": third.ratio}
        facts["largest_relative_difference_cnn"] = _difference(cnn.ours(), cnn.opacus()())
        return compare(
            work.ours,
            other,
            8 * repeats,
            one_thread=True,
            workload=f"{SAMPLES} samples, 784-196-10, clipped one by one, one thread; processor time",
            reference="Opacus' GradSampleModule and DPOptimizer without noise",
            facts=facts,
        )


def _difference(ours: Vector, theirs: Vector) -> float:
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


def _data(shape: tuple[int, ...]) -> ClientData:
    rng = np.random.default_rng(1)
    x = rng.random((SAMPLES, *shape), dtype=np.float32) * (rng.random((SAMPLES, *shape)) < 0.3)
    return ClientData(torch.from_numpy(x.astype(np.float32)), torch.from_numpy(rng.integers(10, size=SAMPLES)))
