"""Many clients on a few threads: order, bounds, errors, and nothing left behind."""

import gc
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController

from fl.learning.autograd import AutogradTrainer
from fl.learning.batches import epoch_orders
from fl.learning.mlp import MLPTrainer
from fl.learning.model import MLP, build_mlp, flatten
from fl.learning.settings import LocalSettings
from fl.learning.trainer import ClientData, Trainer
from fl.learning.workforce import Workforce, cores, in_order, single_threaded_torch


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    """Every test leaves PyTorch's threads and the process's threads as they were."""
    torch_threads, threads = torch.get_num_threads(), threading.active_count()
    torch.set_num_threads(2)
    yield
    gc.collect()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(torch_threads)
    deadline = time.monotonic() + 5
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= threads


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 17])
def test_results_come_in_the_order_of_the_items(workers: int, count: int) -> None:
    items = list(range(count))[::-1]

    def work(item: int) -> int:
        time.sleep(0.002 * (item % 3))
        return item * item

    assert list(in_order(work, items, workers)) == [item * item for item in items]


@pytest.mark.parametrize("workers", [1, 3])
def test_nothing_starts_before_it_is_asked_for_and_few_results_wait(workers: int) -> None:
    started: list[int] = []
    results = in_order(lambda item: started.append(item) or item, range(50), workers)
    time.sleep(0.02)
    assert started == []
    assert next(results) == 0
    time.sleep(0.05)
    # One was handed out; at most three times as many as workers are made in advance.
    assert len(started) <= 3 * workers
    assert list(results) == list(range(1, 50))
    assert sorted(started) == list(range(50))


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_comes_out_at_its_place_and_stops_the_rest(workers: int) -> None:
    started: list[int] = []

    def work(item: int) -> int:
        started.append(item)
        if item == 4:
            raise ZeroDivisionError("item 4")
        return item

    results = in_order(work, range(1000), workers)
    assert [next(results) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ZeroDivisionError, match="item 4"):
        next(results)
    assert len(started) <= 5 + 3 * workers
    assert list(results) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_an_abandoned_generator_leaves_nothing(workers: int) -> None:
    results = in_order(lambda item: item, range(1000), workers)
    next(results)
    assert torch.get_num_threads() == 1
    del results
    gc.collect()
    assert torch.get_num_threads() == 2


def test_a_closed_generator_does_not_run_what_waits() -> None:
    started: list[int] = []
    gate = threading.Event()

    def work(item: int) -> int:
        started.append(item)
        if item:
            gate.wait(5)
        return item

    results = in_order(work, range(1000), 2)
    assert next(results) == 0
    threading.Timer(0.05, gate.set).start()
    results.close()
    assert len(started) <= 6


def test_threads_of_pytorch_inside_and_after() -> None:
    seen = set(in_order(lambda item: torch.get_num_threads(), range(10), 2))
    assert seen == {1}
    assert torch.get_num_threads() == 2


def test_threads_of_pytorch_come_back_after_an_error() -> None:
    def work() -> None:
        with single_threaded_torch():
            assert torch.get_num_threads() == 1
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("workers", [1, 3])
def test_blas_has_one_thread_inside_and_as_many_as_before_afterwards(workers: int) -> None:
    blas = ThreadpoolController().select(user_api="blas")

    def threads() -> set[int]:
        return {library["num_threads"] for library in blas.info()}

    with blas.limit(limits=2):
        assert threads() == {2}
        with Workforce(workers) as workforce:
            assert list(workforce.in_order(lambda item: threads(), range(3))) == [{1}] * 3
        assert threads() == {2}
        with pytest.raises(KeyError), Workforce(workers):
            raise KeyError
        assert threads() == {2}


def test_cores_is_at_least_one() -> None:
    assert cores() >= 1


@pytest.mark.parametrize("kind", [MLPTrainer, AutogradTrainer])
def test_updates_do_not_depend_on_the_number_of_workers_bit_for_bit(kind: Callable[[MLP], Trainer]) -> None:
    model = build_mlp(64, 32, 10, seed=1)
    start, trainer = flatten(model), kind(model)
    rng = np.random.default_rng(1)
    clients = [
        ClientData(
            torch.from_numpy(rng.random((size, 64), dtype=np.float32)), torch.from_numpy(rng.integers(10, size=size))
        )
        for size in rng.integers(1, 200, size=12)
    ]

    def work(client: int) -> bytes:
        data = clients[client]
        orders = epoch_orders(len(data.y), 2, np.random.default_rng(client))
        return trainer.sgd_update(start, data, orders, LocalSettings(batch_size=16), 0.1).tobytes()

    one = list(in_order(work, range(12), 1))
    assert list(in_order(work, range(12), 2)) == one
    assert list(in_order(work, range(12), 5)) == one
    assert len(set(one)) == 12
