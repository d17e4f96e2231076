"""A round of local training of a convolutional network, as a run does it, against PyTorch's plain loop."""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fl.bench.measure import Measurement, Seconds
from fl.learning.autograd import AutogradTrainer
from fl.learning.batches import batch_slices, epoch_orders
from fl.learning.model import Vector, flatten, unflatten_into
from fl.learning.nets import SmallCNN
from fl.learning.settings import LocalSettings
from fl.learning.trainer import ClientData
from fl.learning.workforce import cores, in_order, single_threaded_torch
from fl.random_streams import Stream, generator
from phy.errors import AirdpError

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


class PlainLoop:
    """`CnnRound.plain` in a process of its own, with the allocator that PyTorch comes with: ours keeps its memory."""

    def __init__(self, clients: int, threads: int) -> None:
        script = f"from fl.bench.training.cnn_round import serve_plain; serve_plain({clients}, {threads})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        """Once, to warm up."""
        self.round()
        return self

    def __exit__(self, *reason: object) -> None:
        """End the process."""
        self._process.communicate()

    def round(self) -> Seconds:
        """What a round took."""
        if self._process.stdin is None or self._process.stdout is None:
            raise AirdpError("the process of the plain loop has no pipes")
        print(file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise AirdpError("the process of the plain loop has ended")
        return Seconds(**json.loads(answer))


def serve_plain(clients: int, threads: int) -> None:
    """A round for every line that comes in; its seconds go out."""
    torch.set_num_threads(threads)
    work = CnnRound.of(clients)
    for _ in sys.stdin:
        begun = Seconds.now()
        work.plain()
        sys.stdout.write(json.dumps(asdict(Seconds.now().since(begun))) + "\n")
        sys.stdout.flush()


def cnn_round(repeats: int) -> Measurement:
    """Both on the same data in the same order, by the clock on the wall; one thread's processor time is a fact."""
    work, few, threads = CnnRound.of(50), CnnRound.of(4), torch.get_num_threads()
    pairs = list(zip(work.ours(), work.plain(), strict=True))
    difference = max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)
    with PlainLoop(len(few.clients), 1) as plain, single_threaded_torch():
        alone = [(_seconds(few.one_by_one).cpu, plain.round().cpu) for _ in range(2 * repeats)]
    with PlainLoop(len(work.clients), threads) as plain:
        walls = [(_seconds(work.ours).wall, plain.round().wall) for _ in range(repeats)]
    return Measurement.of(
        walls,
        workload="50 clients of 200 images 28 x 28, one epoch, batch 64, SmallCNN by autograd",
        reference=f"plain PyTorch loop, {threads} threads, in a process of its own",
        facts={
            "largest_relative_difference": difference,
            "ratio_on_one_thread": statistics.median(own / theirs for own, theirs in alone),
            "cores": cores(),
        },
    )


def _seconds(work: Callable[[], object]) -> Seconds:
    begun = Seconds.now()
    work()
    return Seconds.now().since(begun)
