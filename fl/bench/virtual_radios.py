"""How many samples per second virtual radios stream, through real clients of libiio on the same machine."""

import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from hardware.errors import HardwareError
from hardware.virtual_pluto.devices import RX, TX
from hardware.virtual_pluto.process import emulator_process

USB_RATE_HZ = 4e6
"""What a real Pluto sustains over USB 2."""


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
    radios: int = 4,
    samples: int = 8_000_000,
    block_samples: int = 32768,
    medium: dict[str, Any] | None = None,
) -> Throughput:
    """Stream through radios 0 … radios - 1, in lockstep: those in `senders` transmit, those in `receivers` receive.

    The server is a process, each stream a thread of this one, which spends its time in libiio. medium: of the lab file;
    Rayleigh fading and thermal noise by default.
    """
    blocks = -(-samples // block_samples)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lab.toml"
        path.write_text(tomli_w.dumps(_lab(radios, medium)))
        with emulator_process(str(path), seed=1) as server:
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


def _lab(radios: int, medium: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "lab": {
            "backend": "loopback",
            "sample_rate_hz": USB_RATE_HZ,
            "center_hz": 2.45e9,
            "tx_gain_db": 0.0,
            "rx_gain_db": 0.0,
        },
        "limits": {"band_hz": [2.44e9, 2.46e9], "max_tx_gain_db": 0.0},
        "radio": [{"name": "ps", "role": "ps"}, {"name": "client", "role": "client", "count": radios - 1}],
        "medium": {"fading": "rayleigh", "noise_var_complex": 1e-5} if medium is None else medium,
    }


def _libiio() -> Any:
    try:
        import iio
    except (ImportError, OSError, AttributeError) as error:
        # The binding's own way of saying that there is no library behind it.
        raise HardwareError(
            f"libiio cannot be used ({error}): apt-get install --no-install-recommends libiio0"
        ) from error
    return iio


class _Stream:
    """One buffer of one radio, in a context of its own."""

    def __init__(self, uri: str, block_samples: int, *, sends: bool) -> None:
        iio = _libiio()
        self._sends = sends
        self._context = iio.Context(uri)
        device = self._context.find_device(TX if sends else RX)
        for name in ("voltage0", "voltage1"):
            device.find_channel(name, sends).enabled = True
        self._buffer = iio.Buffer(device, block_samples)
        if sends:
            self._context.find_device("ad9361-phy").find_channel("voltage0", True).attrs["hardwaregain"].value = "0"
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
