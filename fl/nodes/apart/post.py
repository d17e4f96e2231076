"""A node's end of the link: says that it is there, does each order once, and notices when the server is gone."""

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import zmq
from zmq.utils.monitor import recv_monitor_message

from fl.errors import ConfigError, PrivacyError
from fl.nodes.apart.admission import SeldomLog
from fl.nodes.apart.keys import KeyPair
from fl.nodes.apart.orders import (
    KINDS,
    Again,
    Alive,
    Begin,
    Done,
    Enrol,
    Enrolled,
    Failed,
    Hello,
    Leave,
    Missing,
    Order,
    Refused,
    Unknown,
    Welcome,
)
from fl.nodes.apart.sockets import connect, node_socket
from fl.nodes.apart.wire import WireError, pack, unpack
from fl.nodes.messages import Message, Transmit, answer_type
from phy.errors import AirdpError

_ALIVE_S = 1.0
_MOST_WORDS = 8000
"""Letters of a reason: a server takes no long messages from a node."""
_LOG = logging.getLogger("airdp")
_DOUBT = "is the server's public key here its own?"
_NOBODY = (
    "nobody listens there, or nothing gets through to it: is `airdp run` started with --listen, is the address that of "
    "its machine, and does a firewall let the port through?"
)
_EVENTS = {
    int(zmq.EVENT_DISCONNECTED): "lost",
    int(zmq.EVENT_HANDSHAKE_FAILED_AUTH): "refused",
    int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL): "refused",
    int(zmq.EVENT_HANDSHAKE_SUCCEEDED): "connected",
    int(zmq.EVENT_CONNECTED): "reached",
}


class RefusedError(ConfigError):
    """The server does not let this node in."""


@dataclass(frozen=True)
class Doing:
    """What a node is doing, for whoever looks after it. heard_s: since the server last said something.

    uplink, order: of what it was last told.
    """

    state: str
    heard_s: float
    uplink: int
    order: str


@dataclass(frozen=True)
class Handlers:
    """What a node does. enrol: for a run. begin: it begins, or goes on. carry_out: one order; its answer.

    lost: the server is gone. told: what the node is doing, whenever that changes and once a second while it waits.
    """

    enrol: Callable[[Enrol], Enrolled]
    begin: Callable[[str, Begin], None]
    carry_out: Callable[[Order], Any]
    lost: Callable[[], None]
    told: Callable[[Doing], None] = lambda doing: None


class Post:
    """A context manager. hello: what it says of itself; its boot is made here."""

    def __init__(self, endpoint: str, keys: KeyPair, server_key: bytes, hello: Hello) -> None:
        self._endpoint, self._keys, self._server_key = endpoint, keys, server_key
        self._hello = replace(hello, boot=secrets.token_hex(16))
        self._session, self._run = "", ""
        self._counter, self._answer = 0, b""
        self._uplink, self._last = 0, ""
        self._reached, self._connected, self._doubted = False, False, False
        self._log = SeldomLog()
        self.state = "waiting"

    def __enter__(self) -> Self:
        """Connect."""
        self._context: zmq.Context[Any] = zmq.Context()
        try:
            self._socket = node_socket(self._context, self._keys, self._server_key)
            self._monitor = self._socket.get_monitor_socket(sum(_EVENTS))
            connect(self._socket, self._endpoint)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up."""
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()
        self._context.destroy(linger=0)

    def serve(self, handlers: Handlers, give_up_s: float) -> None:
        """Take orders until the server says that the run is over. `AirdpError` where none is heard for `give_up_s`."""
        heard_at = said_at = time.monotonic() - _ALIVE_S
        heard_at += _ALIVE_S
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        shown = ""
        while True:
            ready = dict(poller.poll(round(1e3 * _ALIVE_S)))
            if self._monitor in ready:
                self._noticed(handlers)
            now = time.monotonic()
            if self._socket in ready:
                heard_at = now
                if self._take(handlers):
                    return
            if now >= said_at + _ALIVE_S or self.state != shown:
                shown = self.state
                handlers.told(Doing(self.state, now - heard_at, self._uplink, self._last))
            if now >= said_at + _ALIVE_S:
                said_at = now
                self._say(Alive(self._session, self.state) if self._session else self._hello)
            if now > heard_at + give_up_s and not self._session:
                raise ConfigError(f"no server at {self._endpoint} has answered for {give_up_s:g} s{self._guess()}")

    def _guess(self) -> str:
        """Why there is no server."""
        if not self._reached:
            return f": {_NOBODY}"
        return f": {_DOUBT}" if self._doubted and not self._connected else ""

    def _noticed(self, handlers: Handlers) -> None:
        event = _EVENTS.get(int(recv_monitor_message(self._monitor)["event"]))
        if event == "refused":
            raise RefusedError(
                f"the server at {self._endpoint} refuses this node's key: is {self._keys.name}'s public key in its "
                "folder, and the server's public key here its own?"
            )
        if event in ("reached", "connected"):
            self._reached = True
        if event == "connected":
            self._connected = True
        if event == "lost" and self._connected:
            self._connected = False
            _LOG.warning("the server at %s is gone", self._endpoint)
            self._forget(handlers)
        elif event == "lost" and not self._doubted:
            self._doubted = True
            _LOG.warning("whoever is at %s hangs up before it has proven who it is: %s", self._endpoint, _DOUBT)

    def _forget(self, handlers: Handlers) -> None:
        """What it was told of a run is void, as after a start: whoever comes back has to tell it again."""
        self.state, self._session, self._run = "waiting", "", ""
        self._hello = replace(self._hello, boot=secrets.token_hex(16))
        handlers.lost()

    def _say(self, message: Any) -> None:
        try:
            self._socket.send(pack(message), zmq.NOBLOCK)
        except zmq.Again:
            _LOG.debug("nobody is there to hear %s", type(message).__name__)

    def _take(self, handlers: Handlers) -> bool:
        """One message; whether it was the last."""
        content = self._socket.recv()
        try:
            message = unpack(content, KINDS)
        except WireError as error:
            self._log.say("frame", f"the server says what cannot be understood: {error}")
            return False
        if isinstance(message, Refused):
            raise RefusedError(f"the server at {self._endpoint} refuses this node: {message.reason}")
        if isinstance(message, Welcome):
            if message.boot == self._hello.boot and message.session != self._session:
                self._session, self.state = message.session, "joined"
                self._counter, self._answer = 0, b""
            return False
        if isinstance(message, Unknown):
            if message.session == self._session and self._session:
                _LOG.warning("the server at %s does not know of this session", self._endpoint)
                self._forget(handlers)
            return False
        if isinstance(message, Order | Again) and message.session == self._session and self._session:
            return self._obey(message, handlers) if isinstance(message, Order) else self._repeat(message)
        if isinstance(message, Order):
            self._note_stale(message)
        return False

    def _note_stale(self, order: Order) -> None:
        """Nothing is done twice; that somebody has tried with what once allowed a transmission is worth a line."""
        if isinstance(order.message, Transmit):
            self._log.say(
                "stale", f"an order to send in uplink {order.uplink} has come again, and is not carried out twice"
            )

    def _repeat(self, asked: Again) -> bool:
        """Say the last answer once more, or that the order never came."""
        if asked.counter > self._counter:
            self._say(Missing(asked.session, asked.counter))
        elif asked.counter == self._counter:
            self._give_answer()
        return False

    def _obey(self, order: Order, handlers: Handlers) -> bool:
        if order.counter < self._counter:
            self._note_stale(order)
            return False
        if order.counter > self._counter:
            self._counter, self._uplink, self._last = order.counter, order.uplink, type(order.message).__name__
            self._answer = pack(self._done(order, handlers))
        self._give_answer()
        return isinstance(order.message, Leave)

    def _give_answer(self) -> None:
        try:
            self._socket.send(self._answer, zmq.NOBLOCK)
        except zmq.Again:
            _LOG.debug("the answer to order %d waits until it is asked for again", self._counter)

    def _done(self, order: Order, handlers: Handlers) -> Done | Failed:
        try:
            answer: Any = None
            if isinstance(order.message, Enrol):
                answer = handlers.enrol(order.message)
            elif isinstance(order.message, Begin):
                handlers.begin(order.run, order.message)
                self._run, self.state = order.run, "ready"
            elif order.run != self._run:
                raise ConfigError(f"the order is of the run {order.run[:12]}, and this node takes part in another")
            else:
                answer = handlers.carry_out(order)
            _require_promised(order, answer)
        except AirdpError as error:
            _LOG.warning("%s of uplink %d: %s", type(order.message).__name__, order.uplink, error)
            return Failed(order.session, order.counter, type(error).__name__, str(error)[:_MOST_WORDS])
        return Done(order.session, order.counter, answer)


def _require_promised(order: Order, answer: Any) -> None:
    """What an order does not promise does not leave this machine: whoever has data here may have put it in."""
    if not isinstance(order.message, Message) or type(answer) is not answer_type(order.message):
        what = f"{type(order.message).__name__} with {type(answer).__name__}"
        raise PrivacyError(f"this node would have answered {what}, which nobody has asked for: it is not said")
