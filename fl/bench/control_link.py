"""What the link between nodes costs: all messages of an uplink of ten nodes, over encrypted sockets of this machine."""

import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np

from fl.bench.measure import Measurement
from fl.nodes.apart.admission import Expected
from fl.nodes.apart.keys import load_keys, load_public, make_keys, public_keys
from fl.nodes.apart.orders import Begin, Enrol, Enrolled, Hello, Leave, Order, Settle
from fl.nodes.apart.post import Handlers, Post
from fl.nodes.apart.switchboard import Switchboard
from fl.nodes.apart.wire import PROTOCOL
from fl.nodes.messages import (
    Announcement,
    Check,
    Circuits,
    Decision,
    DescribeCircuits,
    Sent,
    Sound,
    SoundedChannel,
    Transmit,
)
from hardware.foundation.scratch import scratch_folder
from phy.inversion import band_numerology
from phy.numerology import Numerology

NODES = 10
MOST_S = 0.020
"""For all messages of one uplink."""
_ROW = "x" * 1000
"""About what a row of the ledger, or a mechanism, takes."""


def _answer(order: Order) -> Any:
    match order.message:
        case Sound() | Transmit():
            return Sent(100_000)
        case DescribeCircuits():
            return Circuits(1e-4, 1e-3)
        case Announcement():
            return Decision(1.0, 1.01, 1e-6, 1e-3, 0.0)
    return None


def _enrol(order: Enrol) -> Enrolled:
    del order
    return Enrolled(100, 1000)


def _serve(endpoint: str, folder: str, name: str) -> None:
    """A node that answers as a client does, without a radio."""
    keys = Path(folder)
    hello = Hello(PROTOCOL, "", name, "client", "", "")
    with Post(endpoint, load_keys(keys, name), load_public(keys, "ps"), hello) as post:
        post.serve(Handlers(_enrol, lambda run, order: None, _answer, lambda: None), give_up_s=60.0)


def _one_uplink(board: Switchboard, names: list[str], state: SoundedChannel, uplink: int) -> float:
    """Seconds for what a coordinator says in an uplink, in its order; sending as in simulated air, in turn."""
    started = time.perf_counter()
    board.place(uplink, 0)
    board.ask_all([(name, Sound(1000)) for name in names])
    board.ask_all([(name, Check()) for name in names])
    board.ask_all([(name, DescribeCircuits()) for name in names])
    board.ask_all([(name, Announcement(0.1, state, 1000, 100_000, 1e-3, uplink)) for name in names])
    board.permit(_ROW)
    for name in names:
        board.ask(name, Transmit(1000))
    board.ask_all([(name, Check()) for name in names])
    board.ask_all([(name, Settle("0" * 64, _ROW)) for name in names])
    return time.perf_counter() - started


def control_link(repeats: int) -> Measurement:
    """All messages of ten nodes in an uplink, the model's way down left out, against the time that they may take."""
    numerology = Numerology(sample_rate_hz=5e6)
    bins = band_numerology(numerology).data_subcarriers
    state = SoundedChannel(np.ones(bins, np.complex64), np.full(bins, 1e-6), numerology, 0.0, 0.0, 0, 0)
    names = [f"client-{number + 1}" for number in range(NODES)]
    processes = multiprocessing.get_context("spawn")
    with scratch_folder("bench") as keys:
        for name in ("ps", *names):
            make_keys(keys, name)
        expected = Expected(dict.fromkeys(names, "client"), public_keys(keys), "")
        with Switchboard("tcp://127.0.0.1:*", load_keys(keys, "ps"), expected) as board:
            nodes = [
                processes.Process(target=_serve, args=(board.endpoint, str(keys), name), daemon=True) for name in names
            ]
            for node in nodes:
                node.start()
            board.gather(120.0)
            board.enrol("")
            board.begin("run", Begin((100,) * NODES, 1000, 1.0))
            seconds = [_one_uplink(board, names, state, uplink) for uplink in range(20 * repeats + 5)][5:]
            board.ask_all([(name, Leave()) for name in names])
            for node in nodes:
                node.join(10.0)
    return Measurement.of(
        [(one, MOST_S) for one in seconds],
        workload=f"60 orders to {NODES} node processes and their answers, CURVE, loopback: an uplink without the model",
        reference=f"the {1e3 * MOST_S:g} ms that they may take",
        facts={"ms_99_percent": round(1e3 * float(np.quantile(seconds, 0.99)), 2)},
    )
