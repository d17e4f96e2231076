"""The compiled loop itself: what it promises beside its numbers, which test_trainers.py compares."""

import threading
import time

import numpy as np
import pytest

from fl.learning import mlp_epoch
from fl.learning.mlp_epoch import LANES, UNITS, First, Rates, Samples, Second, padded, train_epoch

HIDDEN, CLASSES = 20, 5


def state(samples: int, *, in_sample_space: bool) -> tuple[Samples, First, Second, Rates]:
    rng = np.random.default_rng(1)
    width = samples if in_sample_space else 30
    inputs = np.zeros((samples, padded(width, LANES)), np.float32)
    inputs[:, :width] = rng.random((samples, width))
    first = First(*np.zeros((2, padded(HIDDEN, UNITS), inputs.shape[1]), np.float32))
    start = np.zeros((padded(CLASSES, UNITS), padded(HIDDEN + 1, LANES)), np.float32)
    start[:CLASSES, : HIDDEN + 1] = rng.standard_normal((CLASSES, HIDDEN + 1))
    outputs = rng.standard_normal((samples, HIDDEN)).astype(np.float32)
    return (
        Samples(inputs, outputs, rng.integers(CLASSES, size=samples)),
        first,
        Second(start.copy(), start, np.zeros_like(start)),
        Rates(np.float32(0.05), np.float32(0.5), np.float32(0.1)),
    )


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (1, 3), (3, 3), (4, 6), (196, 198)])
def test_padding_is_up_to_the_next_multiple(count: int, expected: int) -> None:
    assert padded(count, 3) == expected


@pytest.mark.parametrize("in_sample_space", [True, False])
def test_padding_stays_zero(in_sample_space: bool) -> None:
    samples, first, second, rates = state(37, in_sample_space=in_sample_space)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(37)
        train_epoch(samples, order, first, second, rates, 7, CLASSES, in_sample_space, False)
    width = 37 if in_sample_space else 30
    for array in first:
        assert np.abs(array[:HIDDEN, :width]).max() > 0
        assert not array[HIDDEN:].any()
        assert not array[:, width:].any()
    for array in second:
        assert np.abs(array[:CLASSES, : HIDDEN + 1]).max() > 0
        assert not array[CLASSES:].any()
        assert not array[:, HIDDEN + 1 :].any()


def test_other_threads_run_meanwhile() -> None:
    samples, first, second, rates = state(600, in_sample_space=True)
    train_epoch(samples, np.arange(2), first, second, rates, 16, CLASSES, True, False)
    # Many epochs in one call, of the order of a second.
    order = np.tile(np.random.default_rng(1).permutation(600), 600)
    trainer = threading.Thread(
        target=train_epoch, args=(samples, order, first, second, rates, 16, CLASSES, True, False)
    )
    trainer.start()
    turns = 0
    while trainer.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 10


def test_what_cannot_be_kept_on_disk_is_compiled_all_the_same() -> None:
    made: dict[str, object] = {}
    exec("def twice(x):\n    return 2 * x", made)  # noqa: S102, because it has no file to keep the code beside
    assert mlp_epoch._compiled(made["twice"])(21) == 42  # type: ignore[type-var,operator]
