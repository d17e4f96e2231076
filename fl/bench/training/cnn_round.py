"""A round of local training of a convolutional network, as a run does it, against PyTorch's plain loop."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fl.bench.measure import Measurement, compare
from fl.learning.autograd import AutogradTrainer
from fl.learning.batches import batch_slices, epoch_orders
from fl.learning.model import Vector, flatten, unflatten_into
from fl.learning.nets import SmallCNN
from fl.learning.settings import LocalSettings
from fl.learning.trainer import ClientData
from fl.learning.workforce import cores, in_order, single_threaded_torch
from fl.random_streams import Stream, generator

TRAINING = LocalSettings(epochs=1, batch_size=64, lr=0.05, momentum=0.5)


@dataclass(frozen=True)
class CnnRound:
    """One round: clients with 200 images of 28 x 28 each, one epoch, batch 64, `SmallCNN`."""

    model: nn.Module
    clients: tuple[ClientData, ...]

    @classmethod
    def of(cls, clients: int, images: int = 200) -> "CnnRound":
        """Made-up images: what they show costs nothing."""
        rng = generator(1, Stream.DATA)
        with torch.random.fork_rng():
            torch.manual_seed(1)
            model = SmallCNN(1, 10)
        data = tuple(
            ClientData(
                torch.from_numpy(rng.random((images, 1, 28, 28), dtype=np.float32)),
                torch.from_numpy(rng.integers(10, size=images)),
            )
            for _ in range(clients)
        )
        return cls(model, data)

    def ours(self) -> list[Vector]:
        """By the trainer, on one thread per core."""
        return list(in_order(self._update, range(len(self.clients)), cores()))

    def one_by_one(self) -> list[Vector]:
        """The same, one client at a time."""
        return [self._update(client) for client in range(len(self.clients))]

    def _update(self, client: int) -> Vector:
        trainer, start = AutogradTrainer(self.model), flatten(self.model)
        return trainer.sgd_update(start, self.clients[client], self._orders(client), TRAINING, 0.0)

    def plain(self) -> list[Vector]:
        """Client after client as a tutorial writes it, with PyTorch's own threads."""
        return [self._plain_update(client) for client in range(len(self.clients))]

    def _plain_update(self, client: int) -> Vector:
        data, net, start = self.clients[client], SmallCNN(1, 10), flatten(self.model)
        unflatten_into(net, start)
        optimiser = torch.optim.SGD(net.parameters(), lr=TRAINING.lr, momentum=TRAINING.momentum)
        for order in self._orders(client):
            permuted = torch.from_numpy(order)
            for batch in batch_slices(len(data.y), TRAINING.batch_size):
                optimiser.zero_grad()
                nn.functional.cross_entropy(net(data.x[permuted[batch]]), data.y[permuted[batch]]).backward()
                optimiser.step()
        return flatten(net) - start

    def _orders(self, client: int) -> list[NDArray[np.int64]]:
        rng = generator(1, Stream.LOCAL, 1, client)
        return list(epoch_orders(len(self.clients[client].y), TRAINING.epochs, rng))


def cnn_round(repeats: int) -> Measurement:
    """Both on the same data in the same order."""
    work = CnnRound.of(50)
    pairs = list(zip(work.ours(), work.plain(), strict=True))
    difference = max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)
    with single_threaded_torch():
        few = CnnRound.of(4)
        alone = compare(few.one_by_one, few.plain, 2 * repeats, one_thread=True, workload="", reference="")
    return compare(
        work.ours,
        work.plain,
        repeats,
        workload="50 clients of 200 images 28 x 28, one epoch, batch 64, SmallCNN by autograd",
        reference=f"plain PyTorch loop, {torch.get_num_threads()} threads",
        facts={
            "largest_relative_difference": difference,
            "ratio_on_one_thread": alone.ratio,
            "cores": cores(),
        },
    )
