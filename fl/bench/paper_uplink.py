"""Whole uplinks of the paper's set-up, timed from checkpoint to checkpoint, for `airdp bench`."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fl.errors import DataError
from fl.experiment.config import RunConfig, load_config
from fl.experiment.runner import run_experiment
from fl.learning.data.emnist import resolve_emnist
from fl.streams import Stream, generator


@dataclass(frozen=True)
class Seconds:
    """By the clock on the wall and by the processor's, all threads together."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> "Seconds":
        """Both clocks."""
        return cls(time.perf_counter(), time.process_time())

    def since(self, before: "Seconds") -> "Seconds":
        """What has passed."""
        return Seconds(self.wall - before.wall, self.cpu - before.cpu)


def paper_config(scratch: Path, uplinks: int) -> tuple[RunConfig, str]:
    """The shipped config `emnist` for so many uplinks, and what it runs on: made-up images where there is no EMNIST."""
    overrides = [f"uplink.stop_after={uplinks}", f"uplink.uplinks={max(80, uplinks)}"]
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
