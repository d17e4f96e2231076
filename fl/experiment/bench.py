"""Benchmarks: ours and a reference, alternating in one process, so that a busy machine slows both."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fl.errors import DataError
from fl.learning import autograd, mlp
from fl.learning.batches import epoch_orders
from fl.learning.data.emnist import load_emnist
from fl.learning.data.partition import partition_by_class
from fl.learning.model import MLP, build_mlp, flatten
from fl.learning.workforce import cores, in_order
from fl.streams import Stream, generator

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Measurement:
    """Seconds are medians; the ratio is the median of the pairs' ratios, below 1 where ours is faster."""

    workload: str
    reference: str
    ours_s: float
    reference_s: float
    ratio: float
    ratio_min: float
    ratio_max: float
    repeats: int
    facts: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Flat and JSON-ready."""
        data = asdict(self)
        return {**data.pop("facts"), **data}


def compare(ours: Callable[[], object], other: Callable[[], object], repeats: int, **about: Any) -> Measurement:
    """Time both once to warm up, then in alternation."""
    pairs: list[tuple[float, float]] = []
    for number in range(repeats + 1):
        pair = (_seconds(ours), _seconds(other))
        if number:
            pairs.append(pair)
    ratios = [own / theirs for own, theirs in pairs]
    return Measurement(
        ours_s=statistics.median(own for own, _ in pairs),
        reference_s=statistics.median(theirs for _, theirs in pairs),
        ratio=statistics.median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
        repeats=repeats,
        **about,
    )


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@dataclass(frozen=True)
class LocalRound:
    """One round: 50 clients with five classes each, 10,000 images, 20 epochs, batch 64, the 784-196-10 MLP."""

    clients: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    start: Vector
    model: MLP
    data: str
    epochs: int = 20
    mu: float = 0.0

    @classmethod
    def reference_workload(cls, mu: float = 0.0) -> "LocalRound":
        """EMNIST a-j where it is found, else images of the same shape and sparsity made up; training costs the same."""
        try:
            dataset = load_emnist(None, 10_000, 0.1, generator(1, Stream.DATA))
            x, y, data = dataset.train_x, dataset.train_y, "EMNIST a-j"
        except DataError:
            rng = generator(1, Stream.DATA)
            x = rng.random((10_000, 784), dtype=np.float32) * (rng.random((10_000, 784)) < 0.3)
            y, data = rng.integers(10, size=10_000), "made-up images (EMNIST not found: set AIRDP_DATA)"
        partition = partition_by_class(y, 50, 5, 0.5, generator(1, Stream.PARTITION))
        model = build_mlp(784, 196, 10, seed=1)
        clients = tuple(
            (torch.from_numpy(x[index].astype(np.float32)), torch.from_numpy(y[index])) for index in partition.clients
        )
        return cls(clients=clients, start=flatten(model), model=model, data=data, mu=mu)

    def _update(self, trainer: Callable[..., Vector], client: int) -> Vector:
        x, y = self.clients[client]
        orders = epoch_orders(len(y), self.epochs, generator(1, Stream.LOCAL, 1, client))
        return trainer(self.model, self.start, x, y, orders, batch_size=64, lr=0.05, momentum=0.5, mu=self.mu)

    def ours(self) -> list[Vector]:
        """Hand-written gradients on one thread per core."""
        return list(in_order(lambda client: self._update(mlp.sgd_update, client), range(len(self.clients)), cores()))

    def plain(self) -> list[Vector]:
        """Client after client with autograd, PyTorch's own threads."""
        return [self._update(autograd.sgd_update, client) for client in range(len(self.clients))]


def _local_round(repeats: int, mu: float = 0.0) -> Measurement:
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


BENCHMARKS: dict[str, Callable[[int], Measurement]] = {
    "local-round": _local_round,
    "local-round-proximal": lambda repeats: _local_round(repeats, mu=0.1),
}
