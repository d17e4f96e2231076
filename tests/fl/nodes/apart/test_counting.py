"""Radios without timestamps, in processes of their own: one count for all, by messages."""

import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fl.bench.control_link import orders_of
from fl.nodes.apart.orders import KINDS, BurstSent, Done, Order, TakeCount
from fl.nodes.apart.wire import unpack
from fl.nodes.messages import SoundedChannel
from fl.run import run
from fl.run.config import parse_config
from fl.run.course.metrics import UplinkMetrics
from fl.run.course.result import FINISHED
from fl.run.folder import RunFolder
from fl.run.learner import make_learner
from phy.numerology import Numerology
from tests.fl.nodes.apart.faults.meddler import Meddler, Wire
from tests.fl.nodes.apart.site import free_port, sections, site

pytestmark = [pytest.mark.usefixtures("no_figures", "one_thread"), pytest.mark.timeout(300)]

UPLINKS = 3
QUIET: dict[str, Any] = {
    "jammer": {"role": "none"},
    "power": {"alpha_u": "largest"},
    "privacy": {"clip_norm": 0.03},
}
"""As little noise as there can be, and updates of about the norm that noise is sized for: what is compared is whether
they arrive where they should."""


def moved(folder: Path, start: NDArray[np.float32]) -> NDArray[np.float64]:
    """By what a run has changed the model."""
    checkpoint = RunFolder(folder).load_checkpoint()
    assert checkpoint is not None
    return np.asarray(checkpoint.model.astype(np.float64) - start)


NOT_ALWAYS = {"Enrol", "Begin", "SendToBeFound", "TakeCount", "CountOffset"}
"""What a node is told where it is new, where it counts otherwise than the server, and where its frames come late."""


def kinds(wire: Wire, uplink: int) -> list[str]:
    """Of orders to a node in an uplink, in their order, until it is over; one that was said again counts once."""
    orders = {}
    for for_the_node, content in wire.history:
        message = unpack(content, KINDS)
        if for_the_node and isinstance(message, Order) and message.uplink == uplink:
            orders[message.session, message.counter] = type(message.message).__name__
    told = [kind for kind in orders.values() if kind not in NOT_ALWAYS]
    return told[: told.index("Settle") + 1]


def said(wire: Wire) -> tuple[int, list[int]]:
    """How often a node has sent a burst to be found, and by how much it was then told that it is behind."""
    sent, offsets = set(), {}
    for for_the_node, content in wire.history:
        message = unpack(content, KINDS)
        if isinstance(message, Done) and isinstance(message.answer, BurstSent):
            sent.add((message.session, message.counter))
        if for_the_node and isinstance(message, Order) and isinstance(message.message, TakeCount):
            offsets[message.session, message.counter] = message.message.offset_samples
    return len(sent), list(offsets.values())


def test_counts_are_aligned_by_messages_and_again_after_a_restart(tmp_path: Path) -> None:
    chosen = sections(uplinks=UPLINKS, **QUIET)
    start = make_learner(parse_config({**chosen, "uplink": {"kind": "ideal", "uplinks": UPLINKS}})).start
    run({**chosen, "uplink": {"kind": "ideal", "uplinks": UPLINKS}}, tmp_path / "ideal")
    with site(tmp_path, backend="pluto-virtual", source="pluto-virtual") as here:
        names = [radio.name for radio in here.lab.clients]
        ports = {name: free_port() for name in names}
        with Meddler(tmp_path / "keys", here.server, ports, random.Random(1), remembers=None) as between:
            here.changes = {name: {"server": between.endpoint(name)} for name in ports}
            for name in names:
                here.start(name)

            def restart(metrics: UplinkMetrics) -> None:
                if metrics.uplink == 1:
                    here.signal("client-2", signal.SIGKILL)
                    here.processes["client-2"].join()
                    here.start("client-2")

            result = here.run(chosen, on_uplink=restart)
            heard = {name: said(between.wires[name]) for name in names}
            told = {name: [kinds(between.wires[name], number + 1) for number in range(UPLINKS)] for name in names}
    assert (result.status, result.uplinks) == (FINISHED, UPLINKS)
    # Each at its start; more often where a radio has lost samples, or a burst was not found.
    for name, least in zip(names, (1, 2), strict=True):
        assert heard[name][0] >= len(heard[name][1]) >= least
    # Counts begin when radios are switched on: nobody's is the server's by chance.
    assert all(offset != 0 for name in names for offset in heard[name][1])
    # What `airdp bench control-link` measures is what an uplink says, where it takes one attempt.
    channel = SoundedChannel(np.ones(1, np.complex64), np.ones(1), Numerology(), 0.0, 0.0, 0, 0)
    said_in_bench = [pair for step in orders_of(names, None, channel, UPLINKS) for pair in step]
    for name in names:
        assert [type(message).__name__ for one, message in said_in_bench if one == name] in told[name]
    arrived, exact = moved(tmp_path / "run", start), moved(tmp_path / "ideal", start)
    # A client that came at another time would add noise in place of its part of the sum. In one process it is 0.998.
    alike = float(arrived @ exact / np.linalg.norm(arrived) / np.linalg.norm(exact))
    assert alike > 0.99
