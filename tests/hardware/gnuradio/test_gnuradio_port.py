"""The ports of flowgraphs on real sockets: late, lost and stalled streams, and simulated time."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import zmq

from hardware.counted.rx import RxStream
from hardware.counted.tx import TxStream
from hardware.gnuradio.port import Demand, FlowgraphRxPort, FlowgraphTxPort
from hardware.gnuradio.wire import decode, encode
from hardware.radio.errors import HardwareError, RadioTimeoutError, RxOverflowError

BLOCK = 100
TIMEOUT_S = 0.5


@dataclass
class Wire:
    """Both ends of a ZeroMQ connection: `near` is the port's."""

    context: "zmq.Context[zmq.Socket[bytes]]"
    address: str
    reason: str = ""
    made: "list[zmq.Socket[bytes]]" = field(default_factory=list)

    def far(self, kind: int) -> "zmq.Socket[bytes]":
        socket = self.context.socket(kind)
        socket.set_hwm(4)
        socket.bind(self.address)
        socket.setsockopt(zmq.RCVTIMEO, 10_000)
        self.made.append(socket)
        return socket

    def near(self, kind: int) -> "zmq.Socket[bytes]":
        socket = self.context.socket(kind)
        socket.set_hwm(4)
        socket.connect(self.address)
        return socket

    def common(self, demand: Demand | None) -> dict[str, Any]:
        return {
            "block_samples": BLOCK,
            "rate_hz": 1e6,
            "timeout_s": TIMEOUT_S,
            "demand": demand,
            "queue_samples": 10**9,
            "watched": False,
            "ended": lambda: self.reason,
        }


@pytest.fixture
def wire() -> Iterator[Wire]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made = Wire(context, f"inproc://{id(context)}")
    yield made
    context.destroy(linger=0)


@pytest.fixture
def receiver(wire: Wire) -> "Iterator[tuple[RxStream, zmq.Socket[bytes]]]":
    far = wire.far(zmq.PUSH)
    port = FlowgraphRxPort("ps", wire.near(zmq.PULL), 1000, **wire.common(Demand(0)))
    stream = RxStream(port, 10_000, 1000)
    stream.start()
    yield stream, far
    stream.stop()


def ramp(first: int, count: int) -> bytes:
    return encode(first, np.arange(first, first + count, dtype=np.complex64))


def test_samples_keep_their_numbers_however_messages_are_cut(receiver: "tuple[RxStream, zmq.Socket[bytes]]") -> None:
    stream, far = receiver
    for first, count in ((0, 7), (7, 150), (157, 43)):
        far.send(ramp(first, count))
    assert np.array_equal(stream.take(120, 1030, 1.0), np.arange(30, 150))
    assert stream.now() == 1157


def test_missing_samples_are_found_and_the_stream_goes_on(receiver: "tuple[RxStream, zmq.Socket[bytes]]") -> None:
    stream, far = receiver
    far.send(ramp(0, 50))
    far.send(ramp(60, 50))
    with pytest.raises(RxOverflowError, match="10 samples are missing before number 60"):
        stream.take(100, 1000, 1.0)
    assert stream.losses == 1
    far.send(ramp(110, 50))
    start = stream.now()
    assert np.array_equal(stream.take(50, start, 1.0), np.arange(110, 160))


def test_a_device_that_tells_its_time_in_the_middle_has_lost_samples(
    receiver: "tuple[RxStream, zmq.Socket[bytes]]",
) -> None:
    stream, far = receiver
    far.send(encode(0, np.zeros(50, np.complex64), [(0, "rx_time", 1)]))
    stream.take(50, 1000, 1.0)
    far.send(encode(50, np.zeros(50, np.complex64), [(70, "rx_time", 2)]))
    with pytest.raises(RxOverflowError, match="the device says so"):
        stream.take(50, 1050, 1.0)


def test_a_flowgraph_that_gives_nothing_stands_still(receiver: "tuple[RxStream, zmq.Socket[bytes]]") -> None:
    stream, _ = receiver
    with pytest.raises(RadioTimeoutError, match=r"ps: its flowgraph gave no samples for 0.5 s: it stands still"):
        stream.take(10, 1000, 5.0)
    assert stream.failed


def test_a_flowgraph_that_has_ended_is_known_at_once(
    receiver: "tuple[RxStream, zmq.Socket[bytes]]", wire: Wire
) -> None:
    stream, _ = receiver
    wire.reason = "the flowgraph of 'air' has ended: out of memory"
    with pytest.raises(HardwareError, match="ps: the flowgraph of 'air' has ended: out of memory"):
        stream.take(10, 1000, 5.0)


def test_what_is_no_message_ends_the_stream(receiver: "tuple[RxStream, zmq.Socket[bytes]]") -> None:
    stream, far = receiver
    far.send(b"hello")
    with pytest.raises(HardwareError, match="cut short"):
        stream.take(10, 1000, 5.0)


def test_a_burst_carries_its_start_sample(wire: Wire) -> None:
    far = wire.far(zmq.PULL)
    demand = Demand(0)
    stream = TxStream(FlowgraphTxPort("client", wire.near(zmq.PUSH), **wire.common(demand)), 5000)
    stream.place(np.ones(30, np.complex64), 5250)
    stream.start()
    demand.ask_for(3 * BLOCK)
    messages = [decode(far.recv()) for _ in range(3)]
    stream.stop()
    assert [message.offset for message in messages] == [0, BLOCK, 2 * BLOCK]
    assert [(tag.offset, tag.key, tag.value) for tag in messages[2].tags] == [(250, "burst_start", 5250)]
    assert not messages[0].tags
    sent = np.concatenate([message.samples for message in messages])
    assert np.array_equal(np.flatnonzero(sent), np.arange(250, 280))


def test_simulated_time_moves_as_far_as_somebody_waits_for(wire: Wire) -> None:
    far = wire.far(zmq.PULL)
    demand = Demand(margin_samples=50)
    stream = TxStream(FlowgraphTxPort("client", wire.near(zmq.PUSH), **wire.common(demand)), 0)
    stream.start()
    far.recv()
    # It waits for as long as it takes: no time-out applies.
    assert not far.poll(int(2e3 * TIMEOUT_S))
    demand.ask_for(2 * BLOCK)
    far.recv()
    far.recv()
    assert not far.poll(200)
    assert not stream.failed
    stream.stop()


def test_a_flowgraph_that_takes_nothing_stands_still(wire: Wire) -> None:
    wire.far(zmq.PULL)
    demand = Demand(0)
    demand.ask_for(10**9)
    stream = TxStream(FlowgraphTxPort("client", wire.near(zmq.PUSH), **wire.common(demand)), 0)
    stream.start()
    stream._thread.join(10.0)
    with pytest.raises(RadioTimeoutError, match="client: its flowgraph took no samples"):
        stream.check()
    stream.stop()


def test_stopping_ends_those_who_wait(wire: Wire) -> None:
    wire.far(zmq.PULL)
    before = threading.active_count()
    stream = TxStream(FlowgraphTxPort("client", wire.near(zmq.PUSH), **wire.common(Demand(0))), 0)
    stream.start()
    assert threading.active_count() == before + 1
    stream.stop()
    assert threading.active_count() == before
