"""What a page that looks on costs a run, for `airdp bench`."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fl.bench.measure import Measurement, Seconds
from fl.dashboard.beside import page_beside
from fl.errors import ConfigError
from fl.learning.workforce import cores
from fl.run.config import RunConfig, load_config
from fl.run.runner import run_experiment
from hardware.foundation.scratch import scratch_folder

_UPLINKS = 12
# A browser's end of the socket, without its drawing: that takes the time of whoever looks.
_BROWSER = """
import asyncio, sys, time
from tornado.websocket import websocket_connect
async def read():
    socket, frames, started = await websocket_connect(sys.argv[1], max_message_size=1 << 28), 0, None
    while await socket.read_message() is not None:
        started, frames, last = started or time.monotonic(), frames + 1, time.monotonic()
    print((frames - 1) / (last - started))
asyncio.run(read())
"""


def live_page(repeats: int) -> Measurement:
    """Uplinks of the shipped config `loopback` with a page that gets 20 frames a second, against the same without."""
    config = load_config("loopback", [f"uplink.stop_after={_UPLINKS}"])
    pairs, processor, frames = [], [], []
    with scratch_folder("bench") as scratch:
        for number in range(repeats + 1):
            folder = scratch / f"{number}"
            with _watched(folder / "ours") as rates:
                ours = _timed(config, folder / "ours")
            without = _timed(config, folder / "reference")
            if number:
                pairs.append((ours.wall, without.wall))
                processor.append(ours.cpu / without.cpu)
                frames += rates
    measured = Measurement.of(
        pairs,
        workload=f"{_UPLINKS - 1} uplinks of `loopback` with a page beside the run",
        reference="the same uplinks without it",
    )
    median = sorted(processor)[len(processor) // 2]
    facts = {"processor_ratio": round(median, 3), "frames_per_s": round(sum(frames) / len(frames), 1), "cores": cores()}
    return replace(measured, facts=facts)


def _timed(config: RunConfig, folder: Path) -> Seconds:
    """From the end of the first uplink to the end of the last."""
    ends: list[Seconds] = []
    note: Callable[[object], None] = lambda metrics: ends.append(Seconds.now())  # noqa: E731
    run_experiment(config, folder, on_uplink=note)
    return ends[-1].since(ends[0])


@contextmanager
def _watched(folder: Path) -> Iterator[list[float]]:
    """A page beside the run and somebody who reads it; afterwards the frames per second that came."""
    rates: list[float] = []
    with page_beside(folder, "127.0.0.1:0") as url:
        address = url.replace("http", "ws") + "socket"
        reader = subprocess.Popen([sys.executable, "-c", _BROWSER, address], stdout=subprocess.PIPE, text=True)
        yield rates
    said, _ = reader.communicate(timeout=30)
    if reader.returncode:
        raise ConfigError("the page has sent no frames: see above")
    rates.append(float(said))
