"""The benchmark of a whole uplink: what is timed against what."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fl.bench import paper_uplink as bench
from fl.bench.paper_uplink import paper_config, paper_uplink
from fl.run.arithmetic import plain_flops
from fl.run.assemble import assemble
from fl.run.config import load_config, parse_config


@pytest.mark.usefixtures("no_figures", "no_waiting")
def test_the_papers_uplink_is_timed_as_a_whole_against_sgemm(
    tiny: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 samples of digits instead of 10,000 images."""
    config = parse_config(tiny(uplink={"stop_after": 3}))
    spent: list[float] = []
    threads: list[int] = []

    def multiply(flops: float) -> None:
        spent.append(flops)
        threads.append(torch.get_num_threads())
        time.sleep(0.01)

    monkeypatch.setattr(bench, "paper_config", lambda scratch, uplinks: (config, f"{uplinks} uplinks of digits"))
    monkeypatch.setattr(bench, "multiply", multiply)
    said = paper_uplink(2).to_json()
    assert said["repeats"] == 2
    assert "3 uplinks of digits" in said["workload"]
    # Once per uplink of the first run, also for the one that warms up.
    assert spent == [plain_flops(samples=300, epochs=2, features=64, hidden=16, classes=10)] * 3
    assert set(threads) == {1}
    assert said["reference_s"] >= 0.01
    assert 0 < said["ours_cpu_s"] < math.inf
    assert said["ours_all_cores_s"] > 0


def test_the_papers_config_needs_no_emnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRDP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config, data = paper_config(tmp_path, 100)
    assert "made-up" in data
    assert (config.uplink.uplinks, config.last_uplink) == (100, 100)
    parts = assemble(config)
    assert (len(parts.clients), parts.sizes.sum(), parts.start.size) == (50, 10_000, 155_830)
    assert (parts.local.settings.epochs, parts.local.settings.batch_size, len(parts.dataset.test_y)) == (20, 16, 1_916)
    assert config.digest() != load_config("emnist").digest()
    monkeypatch.setenv("AIRDP_DATA", str(tmp_path / "images.npz"))
    config, data = paper_config(tmp_path, 6)
    assert (data, config.data.path, config.uplink.uplinks, config.last_uplink) == ("EMNIST a-j", "", 80, 6)
