"""A run into which others want to get, all at once: they are refused and written down, and the run does not notice."""

import logging
import random
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from fl.nodes.apart.keys import KeyPair, load_keys, load_public, make_keys
from fl.nodes.apart.orders import KINDS, Hello, Order
from fl.nodes.apart.post import Post, RefusedError
from fl.nodes.apart.switchboard import Switchboard
from fl.nodes.apart.wire import PROTOCOL, unpack
from fl.nodes.messages import Transmit
from fl.run import run
from fl.run.apart.attendance import lab_digest
from fl.run.course.metrics import UplinkMetrics
from fl.run.course.result import FINISHED
from tests.fl.nodes.apart.faults.books import Books
from tests.fl.nodes.apart.faults.meddler import Meddler, Wire
from tests.fl.nodes.apart.link_world import ThreadNode
from tests.fl.nodes.apart.site import PATIENT, Site, free_port, lab_of, sections, site
from tests.fl.nodes.apart.test_wire import malformed

pytestmark = [pytest.mark.usefixtures("no_figures", "one_thread"), pytest.mark.timeout(300)]

FRAMES = 400
PROBES = 20


def intrude(here: Site, keys: KeyPair, hello: Hello) -> ThreadNode:
    """A node that wants to be let in, in a thread."""
    node = ThreadNode(hello.name)

    def serve() -> None:
        try:
            with Post(here.server, keys, load_public(here.folder / "keys", "ps"), hello) as post:
                post.serve(node.handlers(), give_up_s=200.0)
        except BaseException as error:
            node.outcome = error

    node.thread = threading.Thread(target=serve, daemon=True)
    node.thread.start()
    return node


def intruders(here: Site) -> dict[str, ThreadNode]:
    """By what the server should say of each. The jammer's own node goes on beside those that have its key."""
    make_keys(here.folder / "stranger", "client-1")
    jammers = load_keys(here.folder / "keys", "jammer")
    client = Hello(PROTOCOL, "1", "client-1", "client", lab_digest(here.lab), "")
    old = Hello(PROTOCOL - 1, "0.1", "jammer", "jammer", lab_digest(here.lab), "")
    return {
        "a key that is not listed": intrude(here, load_keys(here.folder / "stranger", "client-1"), client),
        "its key is that of 'jammer', and it calls itself 'client-1'": intrude(here, jammers, client),
        f"it speaks protocol {PROTOCOL - 1}": intrude(here, jammers, old),
    }


def probe(port: int) -> None:
    """Bytes at the server's port that are no ZeroMQ."""
    rng = np.random.default_rng(3)
    for _ in range(PROBES):
        with socket.create_connection(("127.0.0.1", port), 5) as stranger:
            stranger.sendall(rng.bytes(500))


def put_in(wire: Wire) -> int:
    """Everything once more that the node was told, and what is no message, both ways; how much of it was to send."""
    told = [content for for_the_node, content in list(wire.history) if for_the_node]
    wire.extra += [(True, content) for content in told]
    for content in malformed(np.random.default_rng(4), FRAMES):
        wire.extra += [(True, content), (False, content)]
    orders = [unpack(content, KINDS) for content in told]
    return sum(isinstance(one, Order) and isinstance(one.message, Transmit) for one in orders)


def test_the_run_is_undisturbed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = sections(uplinks=3)
    lab_of(2, tmp_path, changes=PATIENT)
    one_process = {"lab": str(tmp_path / "plain.toml"), "backend": "loopback"}
    alone = run({**chosen, "radio": {**chosen["radio"], **one_process}}, tmp_path / "alone")
    boards: list[Switchboard] = []
    enter = Switchboard.__enter__
    monkeypatch.setattr(Switchboard, "__enter__", lambda self: boards.append(self) or enter(self))
    tried: dict[str, ThreadNode] = {}
    repeated: list[int] = []
    with site(tmp_path, changes=PATIENT) as here:
        here.watched = True
        ports = {name: free_port() for name in ("client-1", "client-2", "jammer")}
        with Meddler(tmp_path / "keys", here.server, ports, random.Random(1), remembers=None) as between:
            here.changes = {name: {"server": between.endpoint(name)} for name in ports}

            def disturb(metrics: UplinkMetrics) -> None:
                if metrics.uplink != 1:
                    return
                tried.update(intruders(here))
                threading.Thread(target=probe, args=(here.port,), daemon=True).start()
                repeated.extend(put_in(wire) for wire in between.wires.values())
                deadline = time.monotonic() + 200.0
                while any(node.outcome is None for node in tried.values()) and time.monotonic() < deadline:
                    boards[-1]._listen(0.05)

            here.start_all()
            with caplog.at_level(logging.WARNING, "airdp"):
                result = here.run(chosen, on_uplink=disturb)
        assert (result.status, result.transmissions_charged) == (FINISHED, 3)
        assert result.model_sha256 == alone.model_sha256
        Books(tmp_path, "run").check()
        for name in ports:
            said = (tmp_path / f"{name}.log").read_text()
            assert "cannot be understood" in said
            assert "an order to send in uplink 1 has come again" in said
    assert repeated == [1, 1, 1]
    for reason, node in tried.items():
        assert isinstance(node.outcome, RefusedError), reason
        assert not node.obeyed
        assert reason in caplog.text
    assert "says what cannot be understood" in caplog.text
