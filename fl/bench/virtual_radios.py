"""How many samples per second virtual radios stream, through real clients of libiio on the same machine."""

import statistics
import threading
import time
from collections.abc import Sequence
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fl.bench.measure import Measurement
from fl.learning.workforce import cores
from hardware.lab.file import load_lab
from hardware.pluto.context import INSTALL, PHY, libraries
from hardware.radio.errors import HardwareError
from hardware.virtual.iiod.devices.pluto import RX, TX
from hardware.virtual.process import emulator_process

USB_RATE_HZ = 4e6
"""What a real Pluto sustains over USB 2."""
_LAB = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Throughput:
    """samples: of each stream. elapsed_s: from the first to the last. cpu_s: of the server and of the clients, then."""

    senders: int
    receivers: int
    samples: int
    elapsed_s: float
    cpu_s: float

    @property
    def rate_hz(self) -> float:
        """Samples per second of each stream; all streams advance together."""
        return self.samples / self.elapsed_s

    @property
    def cpu_s_per_sample(self) -> float:
        """Processor time that one sample of every stream takes; a busy machine changes it little."""
        return self.cpu_s / self.samples


def measure_throughput(
    senders: Sequence[int],
    receivers: Sequence[int],
    *,
    samples: int = 8_000_000,
    block_samples: int = 32768,
) -> Throughput:
    """Stream through the radios of the lab file in lockstep: those in `senders` transmit, those in `receivers` receive.

    The server is a process, each stream a thread of this one, which spends its time in libiio.
    """
    blocks = -(-samples // block_samples)
    lab = load_lab(_LAB)
    with emulator_process(lab.backend.name, lab, seed=1) as server:
        addresses = list(server.uris.values())
        streams = [_Stream(addresses[number], block_samples, sends=True) for number in senders]
        streams += [_Stream(addresses[number], block_samples, sends=False) for number in receivers]
        try:
            started, started_cpu = time.perf_counter(), server.cpu_s() + time.process_time()
            threads = [threading.Thread(target=stream.run, args=(blocks,), daemon=True) for stream in streams]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            elapsed_s = time.perf_counter() - started
            cpu_s = server.cpu_s() + time.process_time() - started_cpu
            for stream in streams:
                if stream.failure is not None:
                    raise HardwareError(f"a stream failed: {stream.failure}") from stream.failure
        finally:
            for stream in streams:
                stream.close()
    return Throughput(len(senders), len(receivers), blocks * block_samples, elapsed_s, cpu_s)


def missing_libiio() -> str | None:
    """What to do before virtual radios can be measured; None where they can."""
    return None if find_library("iio") else f"libiio is not installed: {INSTALL}"


class _Stream:
    """One buffer of one radio, in a context of its own."""

    def __init__(self, uri: str, block_samples: int, *, sends: bool) -> None:
        iio, _ = libraries()
        self._sends = sends
        self._context = iio.Context(uri)
        device = self._context.find_device(TX if sends else RX)
        for name in ("voltage0", "voltage1"):
            device.find_channel(name, sends).enabled = True
        self._buffer = iio.Buffer(device, block_samples)
        if sends:
            self._context.find_device(PHY).find_channel("voltage0", True).attrs["hardwaregain"].value = "0"
            rng = np.random.default_rng(1)
            words = rng.integers(-8192, 8192, 2 * block_samples, dtype=np.int16)
            self._buffer.write(bytearray(words.tobytes()))
        self.failure: OSError | None = None

    def run(self, blocks: int) -> None:
        """Move `blocks` blocks."""
        try:
            for _ in range(blocks):
                if self._sends:
                    self._buffer.push()
                else:
                    self._buffer.refill()
        except OSError as error:
            self.failure = error

    def close(self) -> None:
        """Close the buffer: libiio crashes where one is left over at the end."""
        del self._buffer
        del self._context


def virtual_radios(repeats: int) -> Measurement:
    """Four virtual Plutos that stream through libiio, against what a real one sustains over USB 2."""
    setups = {"uplink": ((1, 2, 3), (0,)), "duplex": (range(4), range(4))}
    runs: dict[str, list[Throughput]] = {name: [] for name in setups}
    for _ in range(repeats):
        for name, (senders, receivers) in setups.items():
            runs[name].append(measure_throughput(senders, receivers))
    reference_s = runs["duplex"][0].samples / USB_RATE_HZ
    rates = {name: statistics.median(run.rate_hz for run in runs[name]) / 1e6 for name in setups}
    return Measurement.of(
        [(run.elapsed_s, reference_s) for run in runs["duplex"]],
        workload="4 virtual Plutos that send and receive, blocks of 32768, Rayleigh, noise, server and clients here",
        reference=f"a real Pluto over USB 2: {USB_RATE_HZ / 1e6:g} MS/s",
        facts={
            "msps_4_send_and_receive": round(rates["duplex"], 2),
            "msps_3_send_1_receives": round(rates["uplink"], 2),
            "cores_at_4_msps_4_send_and_receive": round(
                statistics.median(run.cpu_s_per_sample for run in runs["duplex"]) * USB_RATE_HZ, 2
            ),
            "cores": cores(),
        },
    )
