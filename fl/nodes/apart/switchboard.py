"""The server's end of the link: who is there, and asking them.

An order is said once, and its answer asked for until it comes or its time is up; where the order itself was lost it is
said again, and its counter lets a node do it once. What goes to many, a model, is made into bytes once. Nodes are known
by their keys. One that has started anew must be told of the run before it is asked anything else.
"""

import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import zmq
from zmq.auth.thread import ThreadAuthenticator

from fl.errors import ConfigError
from fl.nodes.apart.admission import Admission, Expected
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
    Missing,
    Order,
    Refused,
    Train,
    Unknown,
    Welcome,
)
from fl.nodes.apart.sockets import DOMAIN, server_socket
from fl.nodes.apart.wire import Prepacked, WireError, pack, pack_around, unpack
from fl.nodes.journal.recorded import raised
from fl.nodes.messages import Answer, Message, answer_type
from hardware.radio.errors import HardwareError
from phy.errors import AirdpError

AGAIN_S = 1.0
"""After which an answer that has not come is asked for; then after twice as long each time, up to this:"""
_LONGEST_AGAIN_S = 30.0
_AT_ONCE = 1000
"""Messages that are taken before anything else is seen to, however many more there are."""
_LOG = logging.getLogger("airdp")


class NodeAbsentError(HardwareError):
    """A node does not answer, or has started anew and does not know of the run yet."""


@dataclass(frozen=True)
class TimeLimits:
    """Seconds for which an answer is waited for: to most orders, to a model that is to be trained, to a new run."""

    answer_s: float = 30.0
    train_s: float = 3600.0
    begin_s: float = 120.0

    def of(self, message: Message[Any]) -> float:
        """For one message."""
        if isinstance(message, Train):
            return self.train_s
        return self.begin_s if isinstance(message, Enrol | Begin) else self.answer_s


@dataclass
class NodeState:
    """What the server knows of a node. route: where ZeroMQ finds it now. begun: whether it knows of the run.

    enrolled: as it was when it first said so. gone_at: since when there is no connection to it, else infinite.
    """

    name: str
    role: str
    route: bytes = b""
    session: str = ""
    boot: str = ""
    enrolled: Enrolled | None = None
    knows_config: bool = False
    begun: bool = False
    state: str = "absent"
    heard_at: float = 0.0
    gone_at: float = math.inf
    counter: int = 0


@dataclass
class _Asked:
    """An order that is being waited for. packed: its message. again_at: when its answer is asked for. may_be_lost: it
    was, and the node has not said yet that the order never came."""

    name: str
    message: Message[Any]
    order: Order
    packed: Prepacked
    again_at: float
    pause_s: float = AGAIN_S
    may_be_lost: bool = False
    answer: Done | Failed | None = None

    @property
    def whole(self) -> bytes:
        """The order with its message."""
        return pack_around(self.order, "message", self.packed)


class Switchboard:
    """A context manager; its port is open within. It is used by one thread."""

    def __init__(self, endpoint: str, keys: KeyPair, expected: Expected, limits: TimeLimits | None = None) -> None:
        missing = sorted(set(expected.roles) - set(expected.keys.values()))
        if missing:
            raise ConfigError(f"there is no public key of '{missing[0]}': every node of the lab needs one")
        self._endpoint, self._keys, self._admission = endpoint, keys, Admission(expected)
        self.limits = limits or TimeLimits()
        self.nodes = {name: NodeState(name, role) for name, role in expected.roles.items()}
        self.run, self._uplink, self._attempt, self._permit = "", 0, 0, ""
        self._enrol: Enrol | None = None
        self._begin: Begin | None = None
        self._open: dict[tuple[str, int], _Asked] = {}

    def __enter__(self) -> Self:
        """Listen."""
        self._context: zmq.Context[Any] = zmq.Context()
        self._doorman = ThreadAuthenticator(self._context, log=_LOG)
        self._doorman.start()
        self._doorman.configure_curve_callback(DOMAIN, self._admission)
        try:
            self._socket = server_socket(self._context, self._endpoint, self._keys)
        except BaseException:
            self._doorman.stop()
            self._context.destroy(linger=0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up."""
        self._socket.close()
        self._doorman.stop()
        self._context.destroy(linger=0)

    @property
    def endpoint(self) -> str:
        """As it is bound: with the port that the system chose, where it was to."""
        return str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))

    def place(self, uplink: int, attempt: int) -> None:
        """What orders are about from now on. No permit is left from before."""
        self._uplink, self._attempt, self._permit = uplink, attempt, ""

    def permit(self, row: str) -> None:
        """Orders from now on have this row of the ledger with them."""
        self._permit = row

    def gather(self, wait_s: float, said: Callable[[Sequence[NodeState]], None] = lambda nodes: None) -> None:
        """Wait until every node is there."""
        deadline = time.monotonic() + wait_s
        while any(not node.session for node in self.nodes.values()):
            said(list(self.nodes.values()))
            if time.monotonic() > deadline:
                missing = ", ".join(f"'{node.name}'" for node in self.nodes.values() if not node.session)
                raise NodeAbsentError(
                    f"{missing} did not join within {wait_s:g} s: start `airdp node` there, with --server naming this "
                    "machine, and see its log"
                )
            self._listen(0.2)
        said(list(self.nodes.values()))

    def enrol(self, config: str) -> Mapping[str, Enrolled]:
        """Tell every node of a run's config; what each has to take part with, by name."""
        self._enrol = Enrol(config)
        self._tell_config(self._enrol, list(self.nodes.values()))
        return {name: node.enrolled for name, node in self.nodes.items() if node.enrolled is not None}

    def _tell_config(self, enrol: Enrol, nodes: Sequence[NodeState]) -> None:
        sessions = [node.session for node in nodes]
        answers = self.ask_all([(node.name, enrol) for node in nodes])
        for node, answer, session in zip(nodes, answers, sessions, strict=True):
            self._take_enrolled(node, answer)
            # One that has started anew since it answered has to be told again.
            node.knows_config = node.session == session

    def _take_enrolled(self, node: NodeState, answer: Enrolled) -> None:
        if node.role == "client" and answer.samples < 1:
            raise ConfigError(f"'{node.name}' has no samples to take part with")
        if node.enrolled not in (None, answer):
            raise ConfigError(f"'{node.name}' came back with other data, or another model, than the run began with")
        node.enrolled = answer

    def begin(self, run: str, order: Begin) -> None:
        """The run begins; nodes that start anew later are told by `ready`."""
        self.run, self._begin = run, order
        self.ready()

    def ready(self) -> None:
        """Make sure that every node knows of the run. `NodeAbsentError` where one is not there in time."""
        begin, enrol = self._begin, self._enrol
        if begin is None or enrol is None:
            raise ConfigError("nodes are asked before they were told of a run")
        self._listen(0.0)
        if all(node.begun for node in self.nodes.values()):
            return
        self.gather(self.limits.answer_s)
        new = [node for node in self.nodes.values() if not node.begun]
        self._tell_config(enrol, [node for node in new if not node.knows_config])
        sessions = [node.session for node in new]
        self.ask_all([(node.name, begin) for node in new])
        for node, session in zip(new, sessions, strict=True):
            node.begun = node.session == session
            if not node.begun:
                raise NodeAbsentError(f"'{node.name}' has started anew while others were told of the run")

    def ask(self, node: str, message: Message[Answer]) -> Answer:
        """See `Link.ask`."""
        answer: Answer = self.ask_all([(node, message)])[0]
        return answer

    def ask_all(self, asked: Sequence[tuple[str, Message[Any]]]) -> list[Any]:
        """Ask several nodes, each something, at the same time; their answers in that order. The first failure is
        raised, when all have answered or their time is up. Where one is not there none is asked."""
        for name, message in asked:
            self._require_there(name, message)
        try:
            different = {id(message): message for _, message in asked}
            packed = {key: Prepacked(message) for key, message in different.items()}
            orders = [self._said(self.nodes[name], message, packed[id(message)]) for name, message in asked]
            started = time.monotonic()
            answers: dict[int, Any] = {}
            while len(answers) < len(orders):
                self._listen(0.05)
                now = time.monotonic()
                for place, one in enumerate(orders):
                    if place not in answers:
                        found = self._progress(one, started, now)
                        if found is not None:
                            answers[place] = found[0]
        finally:
            self._open.clear()
        for place in range(len(asked)):
            if isinstance(answers[place], AirdpError):
                raise answers[place]
        return [answers[place] for place in range(len(asked))]

    def _progress(self, one: _Asked, started: float, now: float) -> tuple[Any] | None:
        """The answer or the failure of an order that is waited for; None while there is neither."""
        node, limit_s = self.nodes[one.name], self.limits.of(one.message)
        if one.answer is not None:
            return (_result(one.name, one.message, one.answer),)
        if node.session != one.order.session:
            return (NodeAbsentError(f"'{one.name}' has started anew and knows nothing of the order"),)
        if now > started + limit_s:
            node.state = "silent"
            what = type(one.message).__name__
            return (NodeAbsentError(f"'{one.name}' has not answered {what} within {limit_s:g} s"),)
        if now > node.gone_at + self.limits.answer_s:
            return (NodeAbsentError(f"'{one.name}' is gone: there is no connection to it any more"),)
        if now > one.again_at:
            one.pause_s = min(2.0 * one.pause_s, _LONGEST_AGAIN_S)
            one.again_at = now + one.pause_s
            self._say_again(node, one)
        return None

    def _require_there(self, name: str, message: Message[Any]) -> None:
        node = self.nodes.get(name)
        if node is None:
            raise ConfigError(f"there is no node '{name}': there are {', '.join(self.nodes)}")
        if not node.session or not (node.begun or isinstance(message, Enrol | Begin)):
            raise NodeAbsentError(f"'{name}' is not there, or has started anew and knows nothing of the run")

    def _said(self, node: NodeState, message: Message[Any], packed: Prepacked) -> _Asked:
        node.counter += 1
        order = Order(self.run, node.session, self._uplink, self._attempt, node.counter, self._permit, None)
        one = _Asked(node.name, message, order, packed, time.monotonic() + AGAIN_S)
        self._open[order.session, order.counter] = one
        self._reach(node, one.whole)
        return one

    def _say_again(self, node: NodeState, one: _Asked) -> None:
        """Ask for the answer; say the order itself again where it could not be sent."""
        one.may_be_lost = node.gone_at == math.inf
        asked = pack(Again(one.order.session, one.order.counter)) if one.may_be_lost else one.whole
        self._reach(node, asked)

    def _reach(self, node: NodeState, content: bytes) -> None:
        """Where nobody is there it will be said again: the node may be about to connect anew, under another route."""
        node.gone_at = math.inf if self._send(node.route, content) else min(node.gone_at, time.monotonic())

    def _send(self, route: bytes, content: bytes) -> bool:
        """Whether there was anybody to send it to."""
        try:
            self._socket.send_multipart([route, content], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            _LOG.debug("a message could not be sent: %s", error)
            return False
        return True

    def _listen(self, wait_s: float) -> None:
        """Take what has come, waiting for the first of it."""
        if not self._socket.poll(round(1e3 * wait_s)):
            return
        for _ in range(_AT_ONCE):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            # A route alone is what ZeroMQ says where a node has gone.
            if len(frames) == 2:
                self._take(frames[0].bytes, frames[1])

    def _take(self, route: bytes, frame: zmq.Frame) -> None:
        name = self._admission.name_of(str(frame.get("User-Id")).encode())
        node = self.nodes.get(name)
        if node is None:
            return
        try:
            message = unpack(frame.bytes, KINDS)
        except WireError as error:
            self._admission.log.say(f"frame {name}", f"'{name}' says what cannot be understood: {error}")
            return
        if isinstance(message, Hello):
            self._welcome(node, route, message)
            return
        session = getattr(message, "session", None)
        if session != node.session or not node.session:
            if isinstance(message, Alive):
                self._send(route, pack(Unknown(message.session)))
            return
        node.route, node.heard_at, node.gone_at = route, time.monotonic(), math.inf
        if isinstance(message, Alive):
            node.state = message.state[:40]
        elif isinstance(message, Done | Failed | Missing):
            # Of an order that nobody waits for any more nothing is kept.
            one = self._open.get((message.session, message.counter))
            if one is not None:
                self._take_answer(node, one, message)

    def _take_answer(self, node: NodeState, one: _Asked, message: Done | Failed | Missing) -> None:
        if not isinstance(message, Missing):
            one.answer = message
        elif one.may_be_lost:
            # Once for each time that it was asked: a node cannot have a model sent as often as it likes.
            one.may_be_lost = False
            self._reach(node, one.whole)

    def _welcome(self, node: NodeState, route: bytes, hello: Hello) -> None:
        reason = self._admission.refusal(node.name, hello)
        if reason is not None:
            self._send(route, pack(Refused(reason)))
            return
        if hello.boot != node.boot:
            node.session, node.boot, node.counter = secrets.token_hex(16), hello.boot, 0
            node.begun, node.knows_config, node.state = False, False, "joined"
        node.route, node.heard_at, node.gone_at = route, time.monotonic(), math.inf
        self._send(route, pack(Welcome(node.session, node.boot)))


def _result(name: str, message: Message[Any], answer: Done | Failed) -> Any:
    """What a node has answered, if that is an answer to what it was asked; else the error to raise."""
    if isinstance(answer, Failed):
        return raised({"type": answer.kind, "text": answer.text})
    expected = answer_type(message)
    if not isinstance(answer.answer, expected):
        return HardwareError(
            f"'{name}' has answered {type(message).__name__} with {type(answer.answer).__name__}, and not with "
            f"{expected.__name__}: update its airdp, or leave it out"
        )
    return answer.answer
