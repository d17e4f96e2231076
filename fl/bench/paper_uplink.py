"""Whole uplinks of the paper's set-up, timed from checkpoint to checkpoint, for `airdp bench`."""

import statistics
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fl.bench.measure import Measurement, Seconds
from fl.errors import DataError
from fl.learning.data.emnist import resolve_emnist
from fl.learning.workforce import cores, single_threaded_torch
from fl.random_streams import Stream, generator
from fl.run.arithmetic import flops_per_uplink, multiply
from fl.run.assemble import assemble
from fl.run.config import RunConfig, load_config
from fl.run.runner import run_experiment


def paper_config(scratch: Path, uplinks: int, *changes: str) -> tuple[RunConfig, str]:
    """The shipped config `emnist` for so many uplinks, and what it runs on: made-up images where there is no EMNIST.

    changes: further keys, as in `a.b=c`.
    """
    overrides = [f"uplink.stop_after={uplinks}", f"uplink.uplinks={max(80, uplinks)}", *changes]
    try:
        resolve_emnist(None)
    except DataError:
        rng = generator(1, Stream.DATA)
        x = rng.integers(256, size=(11_916, 28, 28), dtype=np.uint8) * (rng.random((11_916, 28, 28)) < 0.3)
        np.savez(scratch / "images.npz", x=x, y=np.arange(11_916) % 10)
        overrides.append(f"data.path={scratch / 'images.npz'}")
        return load_config("emnist", overrides), "made-up images (EMNIST not found: set AIRDP_DATA)"
    return load_config("emnist", overrides), "EMNIST a-j"


def timed_uplinks(
    config: RunConfig, folder: Path, workers: int, between: Callable[[], object] = lambda: None
) -> list[tuple[Seconds, Seconds]]:
    """Run `config`; for each uplink but the first, which warms up, its time and that of `between`, called after it."""
    laps: list[tuple[Seconds, Seconds]] = []
    begun = Seconds.now()

    def lap() -> Seconds:
        nonlocal begun
        before, begun = begun, Seconds.now()
        return begun.since(before)

    def after_uplink(_: object) -> None:
        uplink = lap()
        between()
        laps.append((uplink, lap()))

    local = config.local.model_copy(update={"workers": workers})
    run_experiment(config.model_copy(update={"local": local}), folder, on_uplink=after_uplink)
    return laps[1:]


def paper_uplink(repeats: int) -> Measurement:
    """A whole uplink on one core against the matrix products in it."""
    with TemporaryDirectory() as name:
        scratch = Path(name)
        config, data = paper_config(scratch, repeats + 1)
        flops = flops_per_uplink(assemble(config))
        with single_threaded_torch():
            pairs = timed_uplinks(config, scratch / "one", 1, between=lambda: multiply(flops))
        together = timed_uplinks(config, scratch / "all", cores())
    own_cpu, bound_cpu = ([pair[side].cpu for pair in pairs] for side in (0, 1))
    return Measurement.of(
        [(own.wall, bound.wall) for own, bound in pairs],
        workload=f"config emnist: training, air, ledger, scores and checkpoint of one uplink on one core, {data}",
        reference=f"large sgemm on one core of the plain algorithm's {flops / 1e9:.4g} GFLOP",
        facts={
            "ratio_cpu": statistics.median(own / bound for own, bound in zip(own_cpu, bound_cpu, strict=True)),
            "ours_cpu_s": statistics.median(own_cpu),
            "sgemm_gflop_per_cpu_s": flops / 1e9 / statistics.median(bound_cpu),
            "cores": cores(),
            "ours_all_cores_s": statistics.median(own.wall for own, _ in together),
        },
    )
