"""What the link between nodes costs: all messages of an uplink of ten nodes, over encrypted sockets of this machine.

Nine clients and a jammer, with radios that count samples by themselves: no other kind is told more. What a message does
in a run takes no time here, and the model that goes down is left out.
"""

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fl.bench.measure import Measurement
from fl.nodes.apart.admission import Expected
from fl.nodes.apart.keys import load_keys, load_public, make_keys, public_keys
from fl.nodes.apart.orders import (
    Begin,
    Clock,
    Enrol,
    Enrolled,
    Hello,
    Leave,
    LookAtCount,
    Order,
    ReadClock,
    Settle,
    Train,
)
from fl.nodes.apart.post import Handlers, Post
from fl.nodes.apart.switchboard import Switchboard
from fl.nodes.apart.wire import PROTOCOL
from fl.nodes.messages import (
    Announcement,
    Check,
    Circuits,
    Decision,
    DescribeCircuits,
    JammingDecision,
    JammingOrder,
    Message,
    Sent,
    Sound,
    SoundedChannel,
    Transmit,
)
from hardware.foundation.scratch import scratch_folder
from hardware.lab.one_count import CountStatus, ServerCount
from phy.inversion import band_numerology
from phy.numerology import Numerology

CLIENTS, JAMMER = tuple(f"client-{number + 1}" for number in range(9)), "jammer"
MOST_S = 0.020
"""For all messages of one uplink."""
_ROW = "x" * 1000
"""About what a row of the ledger, or a mechanism, takes."""
Step = Sequence[tuple[str, Message[Any]]]
"""What several nodes are asked at the same time."""


def orders_of(clients: Sequence[str], jammer: str | None, state: SoundedChannel, uplink: int) -> Iterator[Step]:
    """What a coordinator says in an uplink, in its order, where all goes well. A test holds it against a run."""
    everybody = [*clients, *([] if jammer is None else [jammer])]

    def to(names: Sequence[str], message: Message[Any]) -> Step:
        return [(name, message) for name in names]

    yield to(clients, Train(uplink, np.zeros(0, np.float32)))
    yield to(everybody, LookAtCount(ServerCount((1, 1), 1000)))
    yield to(everybody, ReadClock())
    yield to(everybody, ReadClock())
    yield to(everybody, Sound(1000))
    yield to(everybody, Check())
    yield to(everybody, ReadClock())
    yield to(everybody, DescribeCircuits())
    yield to(clients, Announcement(0.1, state, 1000, 100_000, 1e-3, uplink))
    if jammer is not None:
        yield to([jammer], JammingOrder(1e-3, state, uplink))
        yield to([jammer], Transmit(1000))
    yield to(clients, Transmit(1000))
    if jammer is not None:
        yield to([jammer], Check())
    yield to(clients, Check())
    yield to(clients, Settle("0" * 64, _ROW))


def _answer(order: Order) -> Any:
    match order.message:
        case Sound() | Transmit():
            return Sent(100_000)
        case DescribeCircuits():
            return Circuits(1e-4, 1e-3)
        case Announcement():
            return Decision(1.0, 1.01, 1e-6, 1e-3, 0.0)
        case JammingOrder():
            return JammingDecision(1e-3, 1.0)
        case ReadClock():
            return Clock(1000, 100)
        case LookAtCount():
            return CountStatus(False, 0, 1000)
    return None


def _enrol(order: Enrol) -> Enrolled:
    del order
    return Enrolled(100, 1000)


def _serve(endpoint: str, folder: str, name: str) -> None:
    """A node that answers as its kind does, without a radio."""
    keys = Path(folder)
    role = "jammer" if name == JAMMER else "client"
    hello = Hello(PROTOCOL, "", name, role, "", "")
    with Post(endpoint, load_keys(keys, name), load_public(keys, "ps"), hello) as post:
        post.serve(Handlers(_enrol, lambda run, order: None, _answer, lambda: None), give_up_s=60.0)


def _one_uplink(board: Switchboard, state: SoundedChannel, uplink: int) -> tuple[float, int]:
    """Seconds, and orders that were carried out in them."""
    steps = list(orders_of(CLIENTS, JAMMER, state, uplink))
    started = time.perf_counter()
    board.place(uplink, 0)
    board.ready()
    for step in steps:
        if any(isinstance(message, Transmit) for _, message in step):
            board.permit(_ROW)
        board.ask_all(step)
    return time.perf_counter() - started, sum(len(step) for step in steps)


def control_link(repeats: int) -> Measurement:
    """All messages of ten nodes in an uplink, the model's way down left out, against the time that they may take."""
    numerology = Numerology(sample_rate_hz=5e6)
    bins = band_numerology(numerology).data_subcarriers
    state = SoundedChannel(np.ones(bins, np.complex64), np.full(bins, 1e-6), numerology, 0.0, 0.0, 0, 0)
    names = [*CLIENTS, JAMMER]
    processes = multiprocessing.get_context("spawn")
    with scratch_folder("bench") as keys:
        for name in ("ps", *names):
            make_keys(keys, name)
        roles = {**dict.fromkeys(CLIENTS, "client"), JAMMER: "jammer"}
        expected = Expected(roles, public_keys(keys), "")
        with Switchboard("tcp://127.0.0.1:*", load_keys(keys, "ps"), expected) as board:
            nodes = [
                processes.Process(target=_serve, args=(board.endpoint, str(keys), name), daemon=True) for name in names
            ]
            for node in nodes:
                node.start()
            board.gather(120.0)
            board.enrol("")
            board.begin("run", Begin((100,) * len(CLIENTS), 1000, 1.0))
            taken = [_one_uplink(board, state, uplink) for uplink in range(20 * repeats + 5)][5:]
            board.ask_all([(name, Leave()) for name in names])
            for node in nodes:
                node.join(10.0)
    seconds = [one for one, _ in taken]
    return Measurement.of(
        [(one, MOST_S) for one in seconds],
        workload=f"all {taken[0][1]} orders of an uplink to {len(names)} node processes and their answers, CURVE, "
        "loopback, without the model",
        reference=f"the {1e3 * MOST_S:g} ms that they may take",
        facts={"orders": taken[0][1], "ms_99_percent": round(1e3 * float(np.quantile(seconds, 0.99)), 2)},
    )
