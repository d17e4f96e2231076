"""A round of local training: compiled kernels on all cores against PyTorch's plain loop."""

from dataclasses import dataclass

import numpy as np
import torch

from fl.bench.measure import Measurement, compare
from fl.errors import DataError
from fl.learning.autograd import AutogradTrainer
from fl.learning.batches import epoch_orders
from fl.learning.data.emnist import load_emnist
from fl.learning.data.partition import partition_by_class
from fl.learning.mlp import MLPTrainer
from fl.learning.model import MLP, Vector, build_mlp, flatten
from fl.learning.settings import LocalSettings
from fl.learning.trainer import ClientData, Trainer
from fl.learning.workforce import cores, in_order
from fl.random_streams import Stream, generator

PAPER_TRAINING = LocalSettings(epochs=20, batch_size=64, lr=0.05, momentum=0.5)


@dataclass(frozen=True)
class LocalRound:
    """One round: 50 clients with five classes each, 10,000 images, 20 epochs, batch 64, the 784-196-10 MLP."""

    clients: tuple[ClientData, ...]
    start: Vector
    model: MLP
    data: str
    settings: LocalSettings = PAPER_TRAINING
    mu: float = 0.0

    @classmethod
    def reference_workload(cls, mu: float = 0.0) -> "LocalRound":
        """EMNIST a-j where it is found, else images of the same shape and sparsity made up; training costs the same."""
        try:
            dataset = load_emnist(None, 10_000, 0.1, generator(1, Stream.DATA))
            x, y, data = dataset.train_x, dataset.train_y.astype(np.int64), "EMNIST a-j"
        except DataError:
            rng = generator(1, Stream.DATA)
            x = rng.random((10_000, 784), dtype=np.float32) * (rng.random((10_000, 784)) < 0.3)
            y, data = rng.integers(10, size=10_000), "made-up images (EMNIST not found: set AIRDP_DATA)"
        partition = partition_by_class(y, 50, 5, 0.5, generator(1, Stream.PARTITION))
        model = build_mlp(784, 196, 10, seed=1)
        clients = tuple(
            ClientData(torch.from_numpy(x[index].astype(np.float32)), torch.from_numpy(y[index]))
            for index in partition.clients
        )
        return cls(clients=clients, start=flatten(model), model=model, data=data, mu=mu)

    def _update(self, trainer: Trainer, client: int) -> Vector:
        data = self.clients[client]
        orders = epoch_orders(len(data.y), self.settings.epochs, generator(1, Stream.LOCAL, 1, client))
        return trainer.sgd_update(self.start, data, orders, self.settings, self.mu)

    def ours(self) -> list[Vector]:
        """Hand-written gradients on one thread per core."""
        trainer = MLPTrainer(self.model)
        return list(in_order(lambda client: self._update(trainer, client), range(len(self.clients)), cores()))

    def plain(self) -> list[Vector]:
        """Client after client with autograd, PyTorch's own threads."""
        trainer = AutogradTrainer(self.model)
        return [self._update(trainer, client) for client in range(len(self.clients))]


def local_round(repeats: int, mu: float = 0.0) -> Measurement:
    """Both trainers on the same data in the same order."""
    work = LocalRound.reference_workload(mu)
    pairs = list(zip(work.ours(), work.plain(), strict=True))
    difference = max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)
    return compare(
        work.ours,
        work.plain,
        repeats,
        workload=f"50 clients, 10,000 images, 20 epochs, batch 64, 784-196-10, mu {mu:g}, {work.data}",
        reference=f"plain PyTorch loop, {torch.get_num_threads()} threads",
        facts={"largest_relative_difference": difference, "cores": cores()},
    )
