"""How many samples per second virtual USRPs stream, through libuhd on the same machine, and whether they keep time."""

import math
import shutil
import statistics
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fl.bench.measure import Measurement
from fl.learning.workforce import cores
from hardware.lab.file import load_lab
from hardware.radio.errors import HardwareError
from hardware.usrp.library import INSTALL, library
from hardware.virtual.process import emulator_process

WANTED_RATE_HZ = 10e6
"""Samples per second of all streams together that the comparison is with."""
_LAB = Path(__file__).with_suffix(".toml")
_FRAME_BYTES = 8000
_BLOCK = 65536
_PACED_RATE_HZ = 1e6
_FAST_RATE_HZ = 10e6
_LEAD_S = 0.5
_WAIT_S = 10.0


@dataclass(frozen=True)
class Streaming:
    """samples: of each of `streams`, after the first block. elapsed_s: from when that had come. errors: what libuhd
    reported, by name."""

    streams: int
    samples: int
    elapsed_s: float
    errors: Mapping[str, int]

    @property
    def total_rate_hz(self) -> float:
        """Samples per second of all streams together."""
        return self.streams * self.samples / self.elapsed_s


def stream(rate_hz: float, samples: int, *, paced: bool) -> Streaming:
    """Four boxes that send and receive `samples` each, a thread of this process for each stream, from one tick on."""
    uhd = library()
    lab = load_lab(_LAB)
    errors: dict[str, int] = {}
    with emulator_process(lab.backend.name, lab, seed=1, paced=paced) as server:
        boxes = [_open(uhd, uri, rate_hz) for uri in server.uris.values()]
        try:
            start = boxes[0].get_time_now() + uhd.types.TimeSpec(_LEAD_S)
            jobs = [job(uhd, box, start, samples, errors) for box in boxes for job in (_Receiver, _Sender)]
            threads = [threading.Thread(target=job.run, daemon=True) for job in jobs]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            ended_s = time.perf_counter()
            elapsed_s = ended_s - min((job.began_s for job in jobs if isinstance(job, _Receiver)), default=ended_s)
        finally:
            # libuhd must be done with the boxes before they are gone.
            jobs, boxes = [], []
    return Streaming(2 * len(server.uris), samples - _BLOCK, elapsed_s, errors)


def _open(uhd: Any, uri: str, rate_hz: float) -> Any:
    box = uhd.usrp.MultiUSRP(f"{uri},recv_frame_size={_FRAME_BYTES},send_frame_size={_FRAME_BYTES}")
    box.set_rx_rate(rate_hz)
    box.set_tx_rate(rate_hz)
    box.set_tx_gain(31.5)
    for tune in (box.set_rx_freq, box.set_tx_freq):
        tune(uhd.types.TuneRequest(2.45e9))
    # One after the other: they need not agree closer than their streams last.
    box.set_time_now(uhd.types.TimeSpec(time.monotonic()))
    return box


class _Receiver:
    """began_s: when its first block had come; never, where none did."""

    def __init__(self, uhd: Any, box: Any, start: Any, samples: int, errors: dict[str, int]) -> None:
        self._uhd, self._start, self._samples, self._errors = uhd, start, samples, errors
        self._stream = box.get_rx_stream(uhd.usrp.StreamArgs("sc16", "sc16"))
        self.began_s = math.inf

    def run(self) -> None:
        """Receive from the tick on."""
        command = self._uhd.types.StreamCMD(self._uhd.types.StreamMode.start_cont)
        command.stream_now, command.time_spec = False, self._start
        self._stream.issue_stream_cmd(command)
        block, metadata, got = np.empty((1, _BLOCK), np.int32), self._uhd.types.RXMetadata(), 0
        while got < self._samples:
            came = self._stream.recv(block, metadata, _WAIT_S)
            _note(self._errors, metadata.error_code, "none")
            if not came:
                break
            got += came
            self.began_s = min(self.began_s, time.perf_counter())
        self._stream.issue_stream_cmd(self._uhd.types.StreamCMD(self._uhd.types.StreamMode.stop_cont))


class _Sender:
    def __init__(self, uhd: Any, box: Any, start: Any, samples: int, errors: dict[str, int]) -> None:
        self._uhd, self._start, self._samples, self._errors = uhd, start, samples, errors
        self._stream = box.get_tx_stream(uhd.usrp.StreamArgs("sc16", "sc16"))
        rng = np.random.default_rng(1)
        self._block = rng.integers(-(2**30), 2**30, (1, _BLOCK), dtype=np.int32)

    def run(self) -> None:
        """Send one burst from the tick on, and wait for what becomes of it."""
        metadata, sent = self._uhd.types.TXMetadata(), 0
        metadata.has_time_spec, metadata.time_spec, metadata.start_of_burst = True, self._start, True
        while sent < self._samples:
            count = min(_BLOCK, self._samples - sent)
            metadata.end_of_burst = sent + count == self._samples
            taken = self._stream.send(self._block[:, :count], metadata, _WAIT_S)
            if not taken:
                _note(self._errors, "x.not_taken", "")
                return
            sent += taken
            metadata.has_time_spec = metadata.start_of_burst = False
        message = self._uhd.types.TXAsyncMetadata()
        while self._stream.recv_async_msg(message, _WAIT_S):
            _note(self._errors, message.event_code, "burst_ack")
            if str(message.event_code).endswith("burst_ack"):
                return


def _note(errors: dict[str, int], code: object, fine: str) -> None:
    name = str(code).rpartition(".")[2]
    if name != fine:
        errors[name] = errors.get(name, 0) + 1


def missing_uhd() -> str | None:
    """What to do before virtual USRPs can be measured; None where they can."""
    there = find_spec("uhd") is not None and shutil.which("uhd_find_devices") is not None
    return None if there else f"UHD is not installed: {INSTALL}"


def virtual_usrps(repeats: int, paced_s: float = 30.0) -> Measurement:
    """Four virtual N210s that send and receive through libuhd: in lockstep as fast as they can, and paced at 1 MS/s."""
    samples = 2_000_000
    runs = [stream(_FAST_RATE_HZ, samples, paced=False) for _ in range(repeats)]
    lost = {name: count for run in runs for name, count in run.errors.items()}
    if lost:
        raise HardwareError(f"a stream in lockstep lost something: {lost}")
    paced = stream(_PACED_RATE_HZ, round(paced_s * _PACED_RATE_HZ), paced=True)
    reference_s = runs[0].streams * runs[0].samples / WANTED_RATE_HZ
    return Measurement.of(
        [(run.elapsed_s, reference_s) for run in runs],
        workload="4 virtual N210s that send and receive, frames of 8000 bytes, Rayleigh, noise, server and clients",
        reference=f"{WANTED_RATE_HZ / 1e6:g} MS/s of all streams together",
        facts={
            "msps_total_lockstep": round(statistics.median(run.total_rate_hz for run in runs) / 1e6, 2),
            "paced_s": paced_s,
            "paced_took_s": round(paced.elapsed_s + _BLOCK / _PACED_RATE_HZ, 2),
            "paced_errors": sum(paced.errors.values()),
            "paced_errors_by_name": ", ".join(f"{name} {count}" for name, count in paced.errors.items()) or "none",
            "cores": cores(),
        },
    )
