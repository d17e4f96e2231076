"""The ports of radios that are flowgraphs: ZeroMQ sockets, and how far simulated time may move.

Samples are never dropped on the way: a full queue holds the sender up. What can go wrong is that a flowgraph ends (its
process shows it), that it stands still (a time-out shows it), and that a device behind it loses samples: that shows
in the number of the next sample or in a tag.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import zmq
from numpy.typing import NDArray

from hardware.counted.rx import RxPort
from hardware.counted.stream import Port
from hardware.counted.tx import TxPort
from hardware.counted.watchdog import Watchdog
from hardware.gnuradio.wire import decode, encode
from hardware.radio.errors import HardwareError, RadioTimeoutError

BURST_TAG = "burst_start"
"""Of the first sample of a burst, with that sample's number as its value."""
_TIME_TAG = "rx_time"
# How often somebody who waits looks whether there is still something to wait for.
_LOOK_MS = 50


class Demand:
    """How far time may move where it is simulated: to what somebody waits for, and a margin.

    The margin is what flowgraphs hold back: filters look ahead, and queues are passed on in pieces.
    """

    def __init__(self, margin_samples: int) -> None:
        self._margin = margin_samples
        self._until = 0
        self._changed = threading.Condition()

    def ask_for(self, until_sample: int) -> None:
        """Somebody waits for all samples before this one."""
        with self._changed:
            self._until = max(self._until, until_sample)
            self._changed.notify_all()

    def wait(self, sample: int, timeout_s: float) -> bool:
        """Whether `sample` may be sent already, or may be before the time-out."""
        with self._changed:
            return self._changed.wait_for(lambda: sample < self._until + self._margin, timeout_s)


class _SocketPort(Port):
    """ended: why the flowgraphs have ended; nothing while they run. demand: of simulated time, None with a device.

    watched: the device's time is that of the wall clock, so that a count which falls behind it has lost samples.
    """

    def __init__(
        self,
        name: str,
        socket: "zmq.Socket[bytes]",
        *,
        block_samples: int,
        rate_hz: float,
        timeout_s: float,
        demand: Demand | None,
        queue_samples: int,
        watched: bool,
        ended: Callable[[], str],
    ) -> None:
        super().__init__(name, block_samples, lockstep=demand is not None, warm_up_blocks=0)
        self._socket, self._timeout_s, self._demand, self._ended = socket, timeout_s, demand, ended
        self._watchdog = Watchdog(rate_hz, queue_samples) if watched else None
        self._moved_samples = 0

    @property
    def usable(self) -> bool:
        """See `Port.usable`."""
        return not self._ended()

    def watch(self) -> str:
        """See `Port.watch`."""
        missing = 0 if self._watchdog is None else self._watchdog.missing(self._moved_samples, time.monotonic())
        return f"its count is {missing} samples behind the clock" if missing else ""

    def cancel(self) -> None:
        """See `Port.cancel`."""
        self.interrupted.set()

    def release(self, *, abandoned: bool) -> None:
        """See `Port.release`. Nobody waits in it for longer than a moment."""
        if not abandoned:
            self._socket.close(linger=0)

    def _wait_for(self, event: int, what: str) -> bool:
        """Whether the socket is ready; raises where that does not come."""
        deadline_s = time.monotonic() + self._timeout_s
        while not self.interrupted.is_set():
            try:
                if self._socket.poll(_LOOK_MS, event):
                    return True
            except zmq.ZMQError as error:
                raise HardwareError(f"{self.name}: its connection was closed: {error}") from error
            reason = self._ended()
            if reason:
                raise HardwareError(f"{self.name}: {reason}")
            if time.monotonic() > deadline_s:
                raise RadioTimeoutError(f"{self.name}: its flowgraph {what} for {self._timeout_s:g} s: it stands still")
        return False


class FlowgraphTxPort(_SocketPort, TxPort):
    """Samples to a flowgraph, each burst marked by a tag."""

    def __init__(self, name: str, socket: "zmq.Socket[bytes]", **common: Any) -> None:
        super().__init__(name, socket, **common)
        self.zeros = np.zeros(self.block_samples, np.complex64)

    @property
    def patient(self) -> bool:
        """While nobody receives, simulated time stands still."""
        return self.lockstep

    def push(self, block: NDArray[Any], first_sample: int, burst_starts: list[int]) -> None:
        """See `TxPort.push`."""
        while self._demand is not None and not self._demand.wait(self._moved_samples, _LOOK_MS / 1e3):
            if self.interrupted.is_set():
                return
        tags = [(start - first_sample + self._moved_samples, BURST_TAG, start) for start in burst_starts]
        message = encode(self._moved_samples, block, tags)
        while self._wait_for(zmq.POLLOUT, "took no samples"):
            try:
                self._socket.send(message, zmq.NOBLOCK)
            except zmq.Again:
                # The other side has gone since: to wait for it in the call itself would have no end.
                continue
            self._moved_samples += self.block_samples
            return


class FlowgraphRxPort(_SocketPort, RxPort):
    """Samples from a flowgraph. first_sample: the stream's number of the first one."""

    def __init__(self, name: str, socket: "zmq.Socket[bytes]", first_sample: int, **common: Any) -> None:
        super().__init__(name, socket, **common)
        self._first = first_sample
        self._next_offset: int | None = None
        self._lost_how = ""

    def ask_for(self, until_sample: int) -> None:
        """See `RxPort.ask_for`."""
        if self._demand is not None:
            self._demand.ask_for(until_sample - self._first)

    def pull(self) -> NDArray[Any] | None:
        """See `RxPort.pull`."""
        if not self._wait_for(zmq.POLLIN, "gave no samples"):
            return None
        message = decode(self._socket.recv())
        if self._next_offset is not None and message.offset != self._next_offset:
            self._lost_how = f"{message.offset - self._next_offset} samples are missing before number {message.offset}"
        elif any(tag.key == _TIME_TAG and tag.offset > 0 for tag in message.tags):
            # A device gives its time at the start and after an overflow.
            self._lost_how = "the device says so"
        self._next_offset = message.offset + message.samples.size
        self._moved_samples += message.samples.size
        return message.samples

    def watch(self) -> str:
        """See `Port.watch`."""
        how, self._lost_how = self._lost_how, ""
        return how or super().watch()
