"""Somebody between nodes and server who has all keys: holds messages back, drops, doubles, shuffles and repeats them.

CURVE lets nobody else do that. For each node there is a port that it takes for the server's, and a connection to the
server that the server takes for the node's. When one side is gone the other is hung up on, as without a meddler.
"""

import heapq
import random
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import zmq
from zmq.utils.monitor import recv_monitor_message

from fl.errors import ConfigError
from fl.nodes.apart.keys import load_keys, load_public
from fl.nodes.apart.sockets import connect, node_socket, server_socket

PASS, LATE, DOUBLE, SHUFFLE, DROP, CUT = "pass", "late", "double", "shuffle", "drop", "cut"
_LOST = int(zmq.EVENT_DISCONNECTED)


@dataclass
class Wire:
    """Between one node and the server. way: what is done with its messages. late_s: at most. history: the last
    messages, each with whether it was for the node. extra: such messages that are put in."""

    name: str
    port: int
    way: str = PASS
    late_s: float = 0.4
    repeats: int = 0
    passed: int = 0
    front: Any = None
    back: Any = None
    monitors: tuple[Any, ...] = ()
    route: bytes = b""
    history: deque[tuple[bool, bytes]] = field(default_factory=lambda: deque(maxlen=300))
    extra: deque[tuple[bool, bytes]] = field(default_factory=deque)

    @property
    def up(self) -> bool:
        return self.front is not None


class Meddler:
    """A context manager with a thread of its own; `wires` are told what to do from any other. remembers: how many of
    the last messages of each wire, None for all."""

    def __init__(
        self,
        keys: Path,
        server: str,
        ports: dict[str, int],
        rng: random.Random,
        ps: str = "ps",
        remembers: int | None = 300,
    ) -> None:
        self.wires = {name: Wire(name, port, history=deque(maxlen=remembers)) for name, port in ports.items()}
        self._server, self._rng = server, rng
        self._ps, self._ps_public = load_keys(keys, ps), load_public(keys, ps)
        self._keys = {name: load_keys(keys, name) for name in ports}
        self._held: list[tuple[float, int, Wire, bool, bytes]] = []
        self._number, self._ending = count(), threading.Event()

    def __enter__(self) -> Self:
        self._context: zmq.Context[Any] = zmq.Context()
        self._thread = threading.Thread(target=self._meddle, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join(10)
        self._context.destroy(linger=0)

    def endpoint(self, name: str) -> str:
        return f"tcp://127.0.0.1:{self.wires[name].port}"

    def _meddle(self) -> None:
        while not self._ending.is_set():
            self._keep_up()
            poller = zmq.Poller()
            for wire in self.wires.values():
                for socket in (wire.front, wire.back, *wire.monitors) if wire.up else ():
                    poller.register(socket, zmq.POLLIN)
            wait_s = min(0.05, max(0.0, self._held[0][0] - time.monotonic())) if self._held else 0.05
            ready = dict(poller.poll(round(1e3 * wait_s)))
            for wire in self.wires.values():
                if wire.up:
                    self._attend(wire, ready)
                while wire.up and wire.extra:
                    self._hold(time.monotonic(), wire, *wire.extra.popleft())
            self._deliver()
        for wire in self.wires.values():
            self._hang_up(wire)

    def _keep_up(self) -> None:
        for wire in self.wires.values():
            if wire.way == CUT and wire.up:
                self._hang_up(wire)
            elif wire.way != CUT and not wire.up:
                try:
                    wire.front = server_socket(self._context, self.endpoint(wire.name), self._ps)
                except ConfigError:
                    # The port is that of the socket which was closed a moment ago.
                    continue
                wire.back = node_socket(self._context, self._keys[wire.name], self._ps_public)
                connect(wire.back, self._server)
                wire.monitors = (wire.front.get_monitor_socket(_LOST), wire.back.get_monitor_socket(_LOST))

    def _attend(self, wire: Wire, ready: dict[Any, int]) -> None:
        for socket, down in ((wire.front, False), (wire.back, True)):
            if socket in ready:
                frames = socket.recv_multipart()
                if not down:
                    wire.route = frames[0]
                self._pass_on(wire, down, frames[-1])
        if any(monitor in ready for monitor in wire.monitors):
            for monitor in wire.monitors:
                while monitor.poll(0):
                    recv_monitor_message(monitor)
            self._hang_up(wire)

    def _pass_on(self, wire: Wire, down: bool, content: bytes) -> None:
        wire.history.append((down, content))
        wire.passed += 1
        now = time.monotonic()
        match wire.way:
            case "drop":
                return
            case "late":
                # In order: each waits at least as long as those before it.
                ahead = [due for due, _, other, way, _ in self._held if other is wire and way == down]
                self._hold(max([*ahead, now + self._rng.uniform(0.0, wire.late_s)]), wire, down, content)
            case "shuffle":
                self._hold(now + self._rng.uniform(0.0, wire.late_s), wire, down, content)
            case "double":
                self._hold(now, wire, down, content)
                self._hold(now + self._rng.choice([0.0, 0.01, wire.late_s]), wire, down, content)
            case _:
                self._hold(now, wire, down, content)
        while wire.repeats > 0:
            wire.repeats -= 1
            down, content = self._rng.choice(wire.history)
            self._hold(now + self._rng.uniform(0.0, 0.2), wire, down, content)

    def _hold(self, due: float, wire: Wire, down: bool, content: bytes) -> None:
        heapq.heappush(self._held, (due, next(self._number), wire, down, content))

    def _deliver(self) -> None:
        while self._held and self._held[0][0] <= time.monotonic():
            _, _, wire, down, content = heapq.heappop(self._held)
            if not wire.up:
                continue
            try:
                if down:
                    wire.front.send_multipart([wire.route, content], zmq.NOBLOCK)
                else:
                    wire.back.send(content, zmq.NOBLOCK)
            except zmq.ZMQError:  # nobody is there: as on any wire, it is lost
                continue

    def _hang_up(self, wire: Wire) -> None:
        if not wire.up:
            return
        for socket, monitor in zip((wire.front, wire.back), wire.monitors, strict=True):
            socket.disable_monitor()
            monitor.close(linger=0)
            socket.close(linger=0)
        wire.front = wire.back = None
        wire.monitors = ()
