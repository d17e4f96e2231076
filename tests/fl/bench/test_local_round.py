"""The benchmark of local training: both sides do the same work. Times themselves are not tested."""

import math

import numpy as np
import pytest
import torch

from fl.bench.benchmarks import BENCHMARKS
from fl.bench.training.local_round import LocalRound
from fl.learning.data.partition import partition_by_class
from fl.learning.model import build_mlp, flatten
from fl.learning.settings import LocalSettings
from fl.learning.trainer import ClientData
from fl.learning.workforce import cores


def small_workload(mu: float = 0.0) -> LocalRound:
    rng = np.random.default_rng(1)
    x, y = rng.random((120, 30), dtype=np.float32), rng.integers(10, size=120)
    model = build_mlp(30, 12, 10, seed=1)
    parts = partition_by_class(y, 4, 5, 0.5, rng).clients
    clients = tuple(ClientData(torch.from_numpy(x[index]), torch.from_numpy(y[index])) for index in parts)
    return LocalRound(
        clients=clients, start=flatten(model), model=model, data="small", settings=LocalSettings(epochs=2), mu=mu
    )


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("mu", [0.0, 0.1])
def test_both_sides_do_the_same_work(mu: float) -> None:
    work = small_workload(mu)
    ours, plain = work.ours(), work.plain()
    assert len(ours) == len(plain) == 4
    for a, b in zip(ours, plain, strict=True):
        assert np.linalg.norm(a - b) <= 1e-4 * np.linalg.norm(b)
        assert np.linalg.norm(b) > 0


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", ["local-round", "local-round-proximal"])
def test_the_local_round_reports_its_keys(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    asked: list[float] = []

    def workload(mu: float = 0.0) -> LocalRound:
        asked.append(mu)
        return small_workload(mu)

    monkeypatch.setattr(LocalRound, "reference_workload", staticmethod(workload))
    said = BENCHMARKS[name].measure(2).to_json()
    assert {"ratio", "ours_s", "reference_s", "reference", "workload", "repeats", "ratio_min", "ratio_max"} <= set(said)
    assert said["repeats"] == 2
    assert said["cores"] == cores()
    assert 0 <= said["largest_relative_difference"] < 1e-3
    assert said["ratio"] > 0
    assert math.isfinite(said["ratio"])
    assert asked == [0.1 if name.endswith("proximal") else 0.0]


def test_the_shipped_workload_is_the_issues() -> None:
    """K = 50, 10,000 images, 20 epochs, the 784-196-10 MLP."""
    work = LocalRound.reference_workload()
    assert len(work.clients) == 50
    assert sum(len(client.y) for client in work.clients) == 10_000
    assert (work.settings.epochs, work.start.size) == (20, 155_830)
    assert {client.x.shape[1] for client in work.clients} == {784}
    assert all(len(torch.unique(client.y)) == 5 for client in work.clients)
