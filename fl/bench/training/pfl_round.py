"""A round of local training in pfl's simulation, and the same here: what a framework costs.

Rounds of both alternate: pfl calls back after each of its own, and ours is done then.
"""

import contextlib
import importlib.util
import statistics
import sys
from typing import Any

import torch
from torch import nn

from fl.bench.measure import Measurement, Seconds
from fl.bench.training.flower_round import one_epoch
from fl.learning.model import model_at
from fl.learning.workforce import cores, single_threaded_torch

# pfl measures the model in the first of its rounds.
_WARM_UP = 2


def missing_pfl() -> str | None:
    """What to install, None where it is there."""
    if importlib.util.find_spec("pfl") is not None:
        return None
    return "pfl: pip install pfl==0.6.0, best in an environment of its own"


class _Model(nn.Module):
    """The MLP as pfl wants it."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def loss(self, x: torch.Tensor, y: torch.Tensor, **rest: Any) -> torch.Tensor:
        """Mean over a batch."""
        del rest
        self.train()
        return nn.functional.cross_entropy(self.net(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor, **rest: Any) -> dict[str, Any]:
        """None."""
        del x, y, rest
        return {}


def pfl_round(repeats: int) -> Measurement:
    """Pairs of rounds, by the processor's time: pfl's simulation is this one process, as ours is."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    work, begun = one_epoch(), [Seconds.now()]
    pairs: list[tuple[Seconds, Seconds]] = []

    class Ours(TrainingProcessCallback):
        def after_central_iteration(
            self, aggregate_metrics: Any, model: Any, *, central_iteration: int
        ) -> tuple[bool, Metrics]:
            del aggregate_metrics, model
            theirs, started = Seconds.now().since(begun[0]), Seconds.now()
            work.ours()
            if central_iteration >= _WARM_UP:
                pairs.append((Seconds.now().since(started), theirs))
            begun[0] = Seconds.now()
            return False, Metrics()

    data = [(client.x, client.y) for client in work.clients]
    users = FederatedDataset(
        lambda user: Dataset(raw_data=data[user]), get_user_sampler("minimize_reuse", list(range(len(data))))
    )
    settings, model = work.settings, _Model(model_at(work.model, work.start))

    def optimiser(parameters: Any, lr: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=lr, momentum=settings.momentum)

    # One thread each, whose time is compared: two would wait for each other by spinning. pfl prints as it goes.
    with single_threaded_torch(), contextlib.redirect_stdout(sys.stderr):
        FederatedAveraging().run(
            algorithm_params=NNAlgorithmParams(
                central_num_iterations=repeats + _WARM_UP,
                evaluation_frequency=repeats + _WARM_UP + 1,
                train_cohort_size=len(data),
                val_cohort_size=0,
            ),
            backend=SimulatedBackend(training_data=users, val_data=users),
            model=PyTorchModel(model, optimiser, torch.optim.SGD(model.parameters(), lr=1.0)),
            model_train_params=NNTrainHyperParams(
                local_batch_size=settings.batch_size, local_num_epochs=1, local_learning_rate=settings.lr
            ),
            model_eval_params=NNEvalHyperParams(local_batch_size=None),
            callbacks=[Ours()],
        )
    walls = [(ours.wall, theirs.wall) for ours, theirs in pairs]
    return Measurement.of(
        [(ours.cpu, theirs.cpu) for ours, theirs in pairs],
        workload="50 clients, 10,000 images, 1 epoch, batch 64, 784-196-10: local training; processor time",
        reference="pfl's simulation with one thread of PyTorch: its round, clients and mean included",
        facts={
            "ratio_wall": statistics.median(ours / theirs for ours, theirs in walls),
            "shortest_wall_s": min(ours for ours, _ in walls),
            "shortest_wall_s_pfl": min(theirs for _, theirs in walls),
            "cores": cores(),
        },
    )
