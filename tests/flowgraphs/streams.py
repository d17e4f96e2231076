"""Both ends of a flowgraph's streams, and GNU Radio's tag header, written out: little-endian, PMTs big-endian."""

import socket
import struct
import time
import xmlrpc.client
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import scipy.stats
import zmq
from numpy.typing import ArrayLike, NDArray

from flowgraphs.build import build
from flowgraphs.runtime import FlowgraphProcess

TIMEOUT_S = 20.0
Tag = tuple[int, str, int]
"""Sample number, key, value."""

_SYMBOL, _UINT64, _FALSE = 2, 11, 1


def encode(samples: ArrayLike, offset: int, tags: Sequence[Tag] = ()) -> bytes:
    message = struct.pack("<HBQQ", 0x5FF0, 1, offset, len(tags))
    for position, key, value in tags:
        message += struct.pack("<Q", position) + struct.pack(">BH", _SYMBOL, len(key)) + key.encode()
        message += struct.pack(">BQB", _UINT64, value, _FALSE)
    return message + np.asarray(samples, np.complex64).tobytes()


def decode(message: bytes) -> tuple[int, list[Tag], NDArray[np.complex64]]:
    magic, version, offset, count = struct.unpack_from("<HBQQ", message)
    assert (magic, version) == (0x5FF0, 1)
    place, tags = 19, []
    for _ in range(count):
        position, kind, length = (
            *struct.unpack_from("<Q", message, place),
            *struct.unpack_from(">BH", message, place + 8),
        )
        assert kind == _SYMBOL
        key = message[place + 11 : place + 11 + length].decode()
        place += 11 + length
        kind, value, source = struct.unpack_from(">BQB", message, place)
        assert (kind, source) == (_UINT64, _FALSE)
        tags.append((position, key, value))
        place += 10
    return offset, tags, np.frombuffer(message, np.complex64, offset=place)


@dataclass
class Feed:
    """The host's end of a graph's source: what is sent is one stream."""

    socket: "zmq.Socket[bytes]"
    sent: int = 0

    def send(self, samples: ArrayLike, tags: Sequence[Tag] = ()) -> None:
        self.socket.send(encode(samples, self.sent, tags))
        self.sent += len(np.asarray(samples))


@dataclass
class Tap:
    """The other end of a graph's sink. Every take goes on where the last one ended, and nothing may be missing."""

    socket: "zmq.Socket[bytes]"
    taken: int = 0
    tags: list[Tag] = field(default_factory=list)
    rest: NDArray[np.complex64] = field(default_factory=lambda: np.zeros(0, np.complex64))

    def take(self, count: int) -> NDArray[np.complex64]:
        parts, have, deadline = [self.rest], len(self.rest), time.monotonic() + TIMEOUT_S
        while have < count:
            left_ms = 1000 * (deadline - time.monotonic())
            assert left_ms > 0, f"{have} of {count} samples came"
            if not self.socket.poll(left_ms):
                continue
            offset, tags, samples = decode(self.socket.recv())
            assert offset == self.taken + have, "samples are missing"
            parts.append(samples)
            self.tags += tags
            have += len(samples)
        stream = np.concatenate(parts)
        self.taken += count
        self.rest = stream[count:]
        return stream[:count]


class Streams:
    """Makes ends of streams, and closes them."""

    def __init__(self, folder: Path, context: "zmq.Context[Any]") -> None:
        self._folder, self._context = folder, context
        self._open = ExitStack()

    def address(self, name: str) -> str:
        return f"ipc://{self._folder / name}"

    def feed(self, name: str) -> Feed:
        end = self._socket(zmq.PUSH)
        end.sndtimeo = round(1000 * TIMEOUT_S)
        end.bind(self.address(name))
        return Feed(end)

    def tap(self, name: str) -> Tap:
        end = self._socket(zmq.PULL)
        end.connect(self.address(name))
        return Tap(end)

    def publisher(self, name: str) -> "zmq.Socket[bytes]":
        end = self._socket(zmq.PUB)
        end.bind(self.address(name))
        return end

    def subscriber(self, name: str) -> "zmq.Socket[bytes]":
        end = self._socket(zmq.SUB)
        end.subscribe(b"")
        end.connect(self.address(name))
        return end

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        end = self._open.enter_context(self._context.socket(kind))
        end.linger = 0
        return end

    def close(self) -> None:
        self._open.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Running:
    """A graph that is ready, with its parameters within reach: `graph.set(tx_gain_db=-6.0)`."""

    def __init__(
        self, name: str, *, choices: dict[str, str] | None = None, transmitters: int | None = None, **parameters: Any
    ) -> None:
        program = build(name, choices or {}, transmitters)
        self.process = FlowgraphProcess(program, {"control_port": free_port(), **parameters})
        self._control = xmlrpc.client.ServerProxy(self.process.control_url)

    def __enter__(self) -> Self:
        self.process.start()
        try:
            self.process.wait_until_ready(TIMEOUT_S)
        except BaseException:
            self.process.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._control("close")()
        self.process.stop()

    def set(self, **values: Any) -> None:
        for name, value in values.items():
            getattr(self._control, f"set_{name}")(value)

    def get(self, name: str) -> Any:
        return getattr(self._control, f"get_{name}")()


def has_variance(samples: NDArray[np.complex64], noise_var_complex: float) -> bool:
    """Could circular Gaussian noise of this variance have given these n samples?

    2 sum |z|^2 / variance is chi-square with 2 n degrees of freedom. Wrong by chance once in 10^9 times.
    """
    freedom = 2 * len(samples)
    power = np.sum(np.abs(samples.astype(np.complex128)) ** 2)
    low, high = scipy.stats.chi2.interval(1 - 1e-9, freedom)
    return bool(low <= 2 * power / noise_var_complex <= high)
