"""FLOPs against PyTorch's own count of the plain loop, and a rate that follows its clock."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fl.errors import ModelError
from fl.learning.autograd import AutogradTrainer
from fl.learning.batches import epoch_orders
from fl.learning.model import build_mlp, flatten
from fl.learning.settings import LocalSettings
from fl.learning.trainer import ClientData
from fl.run import arithmetic
from fl.run.arithmetic import flops_per_uplink, flops_per_uplink_of, multiply, plain_flops
from fl.run.assemble import assemble
from fl.run.config import parse_config
from fl.run.folder import RunFolder
from fl.run.runner import run_experiment


def counted(work: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def test_the_plain_loop_has_these_flops() -> None:
    model = build_mlp(30, 12, 5, seed=1)
    rng = np.random.default_rng(1)

    def train() -> None:
        data = ClientData(torch.rand(21, 30), torch.from_numpy(rng.integers(5, size=21)))
        orders = epoch_orders(21, 3, rng)
        AutogradTrainer(model).sgd_update(flatten(model), data, orders, LocalSettings(batch_size=8), 0.1)

    assert plain_flops(samples=21, epochs=3, features=30, hidden=12, classes=5) == counted(train)


def test_the_papers_uplink_has_125_gflop() -> None:
    flops = plain_flops(samples=10_000, epochs=20, features=784, hidden=196, classes=10)
    assert flops == pytest.approx(125e9, rel=0.005)


@pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")
@pytest.mark.parametrize("mode", ["sgd", "record"])
def test_a_run_and_its_folder_agree(tiny: Callable[..., dict[str, Any]], tmp_path: Path, mode: str) -> None:
    """Digits: 64-16-10, 300 samples, 2 epochs, or one step in the mode record."""
    config = parse_config(tiny(local={"mode": mode}, uplink={"stop_after": 1}))
    epochs = 2 if mode == "sgd" else 1
    expected = plain_flops(samples=300, epochs=epochs, features=64, hidden=16, classes=10)
    assert flops_per_uplink(assemble(config)) == expected
    run_experiment(config, tmp_path / "run")
    assert flops_per_uplink_of(RunFolder(tmp_path / "run")) == expected


def test_other_models_are_refused(tiny: Callable[..., dict[str, Any]]) -> None:
    model = {"module": "torch.nn:Linear", "arguments": {"in_features": 64, "out_features": 10}}
    with pytest.raises(ModelError, match="built-in MLP"):
        flops_per_uplink(assemble(parse_config(tiny(model=model))))


@pytest.mark.parametrize("flops", [2 * 1024**2, 2 * 1024**3, 5.3 * 1024**3])
def test_as_much_is_multiplied_as_is_asked_for(flops: float) -> None:
    assert counted(lambda: multiply(flops)) == pytest.approx(flops, abs=2 * 1024**2)


def test_the_rate_is_flops_by_the_clock_and_the_median_of_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[float] = []
    monkeypatch.setattr(arithmetic, "multiply", spent.append)
    # Five bursts of 1, 2, 4, 8 and 16 seconds: the median one takes 4.
    ticks = itertools.chain.from_iterable((0.0, float(2**power)) for power in range(5))
    assert arithmetic.sgemm_flops_per_second(lambda: next(ticks)) == spent[0] / 4.0
    assert len(spent) == 6
    assert len(set(spent)) == 1
