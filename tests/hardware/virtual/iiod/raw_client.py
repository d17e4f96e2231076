"""A client of the text protocol on a bare socket, and labs to try it on."""

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hardware.lab.file import parse_lab
from hardware.lab.model import Lab
from hardware.virtual.iiod.emulator import Emulator

PHY, TX, RX = "ad9361-phy", "cf-ad9361-dds-core-lpc", "cf-ad9361-lpc"
RX_LO, TX_LO = "OUTPUT altvoltage0", "OUTPUT altvoltage1"
STATUS = "0x80000088"
UNDERFLOW, OVERFLOW = 1, 4
RATE_HZ = 4e6
CENTER_HZ = 2.45e9

Words = NDArray[np.int16]
Samples = NDArray[np.complex64]


def make_lab(clients: int = 2, *, rate_hz: float = RATE_HZ, clock: str = "shared", **medium: Any) -> Lab:
    """A lab with one ps and some clients on an air that is ideal but for `medium`."""
    return parse_lab(
        {
            "lab": {
                "backend": "loopback",
                "sample_rate_hz": rate_hz,
                "center_hz": CENTER_HZ,
                "tx_gain_db": 0.0,
                "rx_gain_db": 0.0,
                "clock": clock,
            },
            "limits": {"band_hz": [2.4e9, 2.5e9], "max_tx_gain_db": 0.0},
            "radio": [{"name": "ps", "role": "ps"}, {"name": "client", "role": "client", "count": clients}],
            "medium": medium,
        }
    )


def address(uri: str) -> tuple[str, int]:
    host, _, port = uri.removeprefix("ip:").partition(":")
    return host, int(port or 30431)


class RawClient:
    """One connection. Replies that are negative come back as they are; `done` wants success."""

    def __init__(self, uri: str, timeout_s: float = 20.0) -> None:
        self.socket = socket.create_connection(address(uri), timeout_s)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def line(self) -> bytes:
        return self._file.readline()

    def number(self) -> int:
        line = self.line()
        if not line:
            raise ConnectionError("the server has hung up")
        return int(line)

    def take(self, count: int) -> bytes:
        if count < 0:
            raise OSError(-count, errno.errorcode[-count])
        data = self._file.read(count)
        assert len(data) == count
        return data

    def command(self, line: str) -> int:
        self.send(line.encode() + b"\r\n")
        return self.number()

    def done(self, line: str) -> None:
        assert self.command(line) >= 0, line

    def read(self, path: str) -> str:
        """Value of an attribute such as "ad9361-phy INPUT voltage0 rssi"."""
        length = self.command(f"READ {path}")
        assert length >= 0, f"{path}: {errno.errorcode[-length]}"
        return self.take(length + 1)[:-1].rstrip(b"\0").decode()

    def write(self, path: str, value: str) -> int:
        self.send(f"WRITE {path} {len(value)}\r\n{value}".encode())
        return self.number()

    def set(self, path: str, value: object) -> None:
        assert self.write(path, str(value)) == len(str(value)), path

    def debug(self, name: str) -> str:
        return self.read(f"{PHY} DEBUG {name}")

    def status(self, device: str) -> int:
        """Status bits of a data device."""
        self.set(f"{device} DEBUG direct_reg_access", STATUS)
        return int(self.read(f"{device} DEBUG direct_reg_access"), 0)

    def read_words(self, samples: int, *, channels: int = 2, device: str = RX) -> Words:
        """READBUF of so many samples, shape (samples, channels)."""
        wanted = samples * channels * 2
        parts = []
        got = self.command(f"READBUF {device} {wanted}")
        if got < 0:
            raise OSError(-got, errno.errorcode[-got])
        assert len(self.line()) == 9
        while True:
            parts.append(self.take(got))
            wanted -= got
            if wanted <= 0:
                return np.frombuffer(b"".join(parts), np.int16).reshape(-1, channels)
            got = self.number()

    def read_samples(self, samples: int) -> Samples:
        words = self.read_words(samples).astype(np.float32) / 2048
        return words.view(np.complex64).reshape(-1)

    def write_words(self, words: Words, device: str = TX) -> int:
        """WRITEBUF; what the server answers to it."""
        data = words.tobytes()
        answer = self.command(f"WRITEBUF {device} {len(data)}")
        if answer:
            return answer
        self.send(data)
        return self.number()

    def write_samples(self, samples: Samples | NDArray[np.complex128]) -> None:
        words = as_words(samples)
        assert self.write_words(words) == words.nbytes

    def open_rx(self, samples: int, mask: int = 3) -> None:
        self.done(f"OPEN {RX} {samples} {mask:08x}")

    def open_tx(self, samples: int, mask: int = 3, *, cyclic: bool = False) -> None:
        self.done(f"OPEN {TX} {samples} {mask:08x}{' CYCLIC' if cyclic else ''}")


def as_words(samples: Samples | NDArray[np.complex128]) -> Words:
    values = np.ascontiguousarray(samples, np.complex64).view(np.float32)
    return np.rint(values * 16384).astype(np.int16).reshape(-1, 2)


def on_levels(samples: NDArray[np.complex128]) -> Samples:
    """Rounded to the levels of a converter that takes the twelve upper bits of a word."""
    values = np.ascontiguousarray(samples, np.complex64).view(np.float32)
    return (np.rint(values * 1024) / np.float32(1024)).view(np.complex64)


class Bench:
    """A running emulator and connections to it. Transmitters are at full power, receivers in manual gain mode."""

    def __init__(self, emulator: Emulator, stack: ExitStack) -> None:
        self.emulator = emulator
        self._stack = stack

    def tune(self, lab: Lab) -> None:
        """Set every radio to what the lab says, which none is after boot, and park it."""
        for radio in lab.radios:
            with RawClient(self.emulator.uris[radio.name]) as client:
                settings = radio.settings
                client.set(f"{PHY} INPUT voltage0 gain_control_mode", "manual")
                client.set(f"{PHY} {RX_LO} frequency", round(settings.rx_center_hz))
                client.set(f"{PHY} {TX_LO} frequency", round(settings.tx_center_hz))
                client.set(f"{PHY} INPUT out voltage_filter_fir_en", int(settings.sample_rate_hz < 2_083_333))
                client.set(f"{PHY} INPUT voltage0 sampling_frequency", round(settings.sample_rate_hz))
                client.set(f"{PHY} INPUT voltage0 rf_bandwidth", round(settings.bandwidth_hz))
                client.set(f"{PHY} OUTPUT voltage0 rf_bandwidth", round(settings.bandwidth_hz))
                client.set(f"{PHY} INPUT voltage0 hardwaregain", round(settings.rx_gain_db))
                client.set(f"{PHY} OUTPUT voltage0 hardwaregain", -89.75)

    def connect(self, radio: str) -> RawClient:
        return self._stack.enter_context(RawClient(self.emulator.uris[radio]))

    def receiver(self, samples: int, radio: str = "ps") -> RawClient:
        client = self.connect(radio)
        client.set(f"{PHY} INPUT voltage0 gain_control_mode", "manual")
        client.set(f"{PHY} INPUT voltage0 hardwaregain", 0)
        client.open_rx(samples)
        return client

    def sender(self, samples: int, radio: str = "client-1", *, cyclic: bool = False) -> RawClient:
        client = self.connect(radio)
        client.set(f"{PHY} OUTPUT voltage0 hardwaregain", 0)
        client.open_tx(samples, cyclic=cyclic)
        return client


@contextmanager
def bench(lab: Lab | None = None, *, seed: int = 1, paced: bool = False, tuned: bool = True) -> Iterator[Bench]:
    """An emulator of `lab`, its radios tuned as that says, or as they have booted."""
    with ExitStack() as stack:
        lab = lab or make_lab()
        running = Bench(stack.enter_context(Emulator(lab, seed=seed, paced=paced)), stack)
        if tuned:
            running.tune(lab)
        yield running


def tone(count: int, cycles_per_sample: float, amplitude: float = 0.5) -> Samples:
    """On the converter's levels, so that it arrives as it is."""
    return on_levels(amplitude * np.exp(2j * np.pi * cycles_per_sample * np.arange(count)))
