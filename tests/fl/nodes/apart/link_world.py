"""Both ends of a link over real sockets on this machine, with nodes in threads."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fl.nodes.apart.admission import Expected
from fl.nodes.apart.keys import load_keys, load_public, make_keys, public_keys
from fl.nodes.apart.orders import Begin, Enrol, Enrolled, Hello, Order
from fl.nodes.apart.post import Handlers, Post
from fl.nodes.apart.switchboard import Switchboard, TimeLimits
from fl.nodes.apart.wire import PROTOCOL

LAB = "0" * 64
BEGIN = Begin((10, 10), 4, 1.0)


@dataclass
class ThreadNode:
    """What a node in a thread has seen. answer: what it does with an order. outcome: how it ended."""

    name: str
    answer: Callable[[Order], Any] = lambda order: None
    enrolled: Enrolled = field(default_factory=lambda: Enrolled(10, 4))
    obeyed: list[Order] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    lost: int = 0
    outcome: BaseException | None = None
    thread: threading.Thread | None = None

    def handlers(self) -> Handlers:
        return Handlers(self._enrol, self._begin, self._carry_out, self._lost)

    def _enrol(self, order: Enrol) -> Enrolled:
        return self.enrolled

    def _begin(self, run: str, order: Begin) -> None:
        self.runs.append(run)

    def _carry_out(self, order: Order) -> Any:
        self.obeyed.append(order)
        return self.answer(order)

    def _lost(self) -> None:
        self.lost += 1


@dataclass
class World:
    """keys: folder of all key pairs. endpoint: that nodes connect to, the switchboard's or a proxy's before it."""

    keys: Path
    switchboard: Switchboard
    endpoint: str

    def join(self, node: ThreadNode, **changes: Any) -> ThreadNode:
        """Start a node. changes: of what it says of itself; `key`: whose key it uses."""
        key = changes.pop("key", node.name)
        said = {
            "protocol": PROTOCOL,
            "version": "1",
            "name": node.name,
            "role": "client",
            "lab_sha256": LAB,
            "boot": "",
        }
        post = Post(
            changes.pop("endpoint", self.endpoint),
            load_keys(self.keys, key),
            load_public(self.keys, changes.pop("server", "ps")),
            Hello(**{**said, **changes}),
        )

        def serve() -> None:
            try:
                with post:
                    post.serve(node.handlers(), give_up_s=20.0)
            except BaseException as error:
                node.outcome = error

        node.thread = threading.Thread(target=serve, daemon=True)
        node.thread.start()
        return node

    def pump(self, until: Callable[[], bool], most_s: float = 100.0) -> None:
        """Let the switchboard listen until something is true."""
        deadline = time.monotonic() + most_s
        while not until():
            if time.monotonic() > deadline:
                raise TimeoutError("it has not become true")
            self.switchboard._listen(0.05)


@contextlib.contextmanager
def world(folder: Path, names: tuple[str, ...] = ("one", "two"), answer_s: float = 60.0) -> Iterator[World]:
    for name in ("ps", *names, "stranger"):
        make_keys(folder / "all", name)
    listed = folder / "listed"
    listed.mkdir()
    for name in ("ps", *names):
        (listed / f"{name}.key").write_text((folder / "all" / f"{name}.key").read_text())
    expected = Expected(dict.fromkeys(names, "client"), public_keys(listed), LAB)
    keys = load_keys(folder / "all", "ps")
    with Switchboard("tcp://127.0.0.1:*", keys, expected, TimeLimits(answer_s, 60.0, 60.0)) as switchboard:
        yield World(folder / "all", switchboard, switchboard.endpoint)


def begun(here: World, *nodes: ThreadNode) -> tuple[ThreadNode, ...]:
    """Nodes that have joined and know of a run."""
    for node in nodes:
        here.join(node)
    here.switchboard.gather(100.0)
    here.switchboard.enrol("")
    here.switchboard.begin("run", BEGIN)
    return nodes
