"""Samples that travel through a flowgraph of GNU Radio by ZeroMQ, against ZeroMQ alone."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import numpy as np
import zmq

from fl.bench.gnuradio_side import worker
from fl.bench.measure import Measurement, compare
from fl.learning.workforce import cores
from flowgraphs.errors import FlowgraphError
from hardware.foundation.scratch import scratch_folder
from hardware.gnuradio.wire import encode

_HIGH_WATER_MARK = 4
_TIMEOUT_MS = 20_000
_LOOK_UP_MS = 200
_SAMPLE_BYTES = np.dtype(np.complex64).itemsize


@dataclass(frozen=True)
class ZeromqWork:
    """Samples to be sent, in messages as large as pays: 512 KiB."""

    samples: int = 80_000_000
    message_samples: int = 65_536

    @property
    def messages(self) -> int:
        """How many that are."""
        return -(-self.samples // self.message_samples)


class SampleRoute:
    """A PUSH socket that a thread fills and a PULL socket that this thread empties, with a context each.

    bound: where PUSH waits for whoever pulls. connected: where PULL finds whoever pushes. The same address twice makes
    the route a direct one.
    """

    def __init__(self, work: ZeromqWork, bound: str, connected: str) -> None:
        self.work = work
        self._stack = ExitStack()
        self._push, self._pull = self._socket(zmq.PUSH), self._socket(zmq.PULL)
        self._push.bind(bound)
        self._pull.connect(connected)
        rng = np.random.default_rng(1)
        samples = rng.standard_normal(2 * work.message_samples, dtype=np.float32).view(np.complex64)
        self._message = encode(0, samples)
        self._header_bytes = len(encode(0, samples[:0]))

    def __enter__(self) -> Self:
        """Ready."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closed, and what was not received is dropped."""
        self._stack.close()

    def transfer(self) -> None:
        """Send all messages and receive all their samples; `FlowgraphError` where they stop coming."""
        enough = threading.Event()
        sender = threading.Thread(target=self._send, args=(enough,), name="bench-zeromq-sender")
        sender.start()
        missing = self.work.messages * self.work.message_samples
        try:
            while missing > 0:
                missing -= (len(self._pull.recv(copy=False)) - self._header_bytes) // _SAMPLE_BYTES
        except zmq.Again as error:
            raise FlowgraphError(f"no samples came for {_TIMEOUT_MS / 1000:g} s, {missing} are missing") from error
        finally:
            enough.set()
            sender.join()

    def _send(self, enough: threading.Event) -> None:
        left = self.work.messages
        while left and not enough.is_set():
            # Queues that stay full are no error here: whoever waits for the samples says what is wrong.
            with suppress(zmq.Again):
                self._push.send(self._message, copy=False)
                left -= 1

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        context = self._stack.enter_context(zmq.Context())
        made = self._stack.enter_context(context.socket(kind))
        made.set_hwm(_HIGH_WATER_MARK)
        made.linger, made.sndtimeo, made.rcvtimeo = 0, _LOOK_UP_MS, _TIMEOUT_MS
        return made


@contextmanager
def zeromq_routes(work: ZeromqWork) -> Iterator[tuple[str, SampleRoute, SampleRoute]]:
    """GNU Radio's version, the route through a flowgraph of it, and one without."""
    with scratch_folder("bench", sockets=True) as folder, ExitStack() as stack:
        addresses = {end: f"ipc://{folder / end}" for end in ("in", "out", "direct")}
        settings = {
            "samples_in": addresses["in"],
            "samples_out": addresses["out"],
            "message_samples": work.message_samples,
            "high_water_mark": _HIGH_WATER_MARK,
        }
        relayed = stack.enter_context(SampleRoute(work, addresses["in"], addresses["out"]))
        direct = stack.enter_context(SampleRoute(work, addresses["direct"], addresses["direct"]))
        version, _ = stack.enter_context(worker("relay", settings))
        yield version, relayed, direct


WORK = ZeromqWork()


def zeromq(repeats: int) -> Measurement:
    """Through a flowgraph and back, against pyzmq alone."""
    work = WORK
    with zeromq_routes(work) as (version, relayed, direct):
        measured = compare(
            relayed.transfer,
            direct.transfer,
            repeats,
            workload=f"pyzmq, PULL source and PUSH sink of GNU Radio {version} with tags, pyzmq: "
            f"{work.messages} messages of {work.message_samples} samples",
            reference="the same messages from PUSH to PULL, pyzmq alone",
            facts={"cores": cores()},
        )
    samples = work.messages * work.message_samples / 1e6
    rates = {"msps": samples / measured.ours_s, "pyzmq_alone_msps": samples / measured.reference_s}
    return replace(measured, facts={**{key: round(rate, 1) for key, rate in rates.items()}, **measured.facts})
