"""The server's end of the link: who is there, and asking them.

An order is said again until it is answered or its time is up; its counter lets a node do it once. Nodes are known by
their keys. One that has started anew must be told of the run before it is asked anything else.
"""

import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import zmq
from zmq.auth.thread import ThreadAuthenticator

from fl.errors import ConfigError
from fl.nodes.apart.keys import KeyPair
from fl.nodes.apart.orders import (
    KINDS,
    Alive,
    Begin,
    Done,
    Enrol,
    Enrolled,
    Failed,
    Hello,
    Order,
    Refused,
    Train,
    Unknown,
    Welcome,
)
from fl.nodes.apart.sockets import DOMAIN, server_socket
from fl.nodes.apart.wire import PROTOCOL, WireError, pack, unpack
from fl.nodes.journal.recorded import raised
from fl.nodes.messages import Answer, Message
from hardware.radio.errors import HardwareError

Asked = TypeVar("Asked")
AGAIN_S = 1.0
"""After which an order that was not answered is said again."""
_LOG = logging.getLogger("airdp")


class NodeAbsentError(HardwareError):
    """A node does not answer, or has started anew and does not know of the run yet."""


@dataclass(frozen=True)
class Expected:
    """Who may join. roles: by name. keys: name of each public key. lab_sha256: of the lab that all must mean."""

    roles: Mapping[str, str]
    keys: Mapping[bytes, str]
    lab_sha256: str


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

    enrolled: as it was when it first said so. misunderstood: messages of it that were none. gone_at: since when there
    is no connection to it, infinite while there is.
    """

    name: str
    role: str
    route: bytes = b""
    session: str = ""
    boot: str = ""
    enrolled: Enrolled | None = None
    knows_config: bool = False
    begun: bool = False
    misunderstood: int = 0
    state: str = "absent"
    heard_at: float = 0.0
    gone_at: float = math.inf
    counter: int = 0


class Switchboard:
    """A context manager; its port is open within. It is used by one thread."""

    def __init__(self, endpoint: str, keys: KeyPair, expected: Expected, limits: TimeLimits | None = None) -> None:
        missing = sorted(set(expected.roles) - set(expected.keys.values()))
        if missing:
            raise ConfigError(f"there is no public key of '{missing[0]}': every node of the lab needs one")
        self._endpoint, self._keys, self._expected = endpoint, keys, expected
        self.limits = limits or TimeLimits()
        self.nodes = {name: NodeState(name, role) for name, role in expected.roles.items()}
        self.run, self._uplink, self._attempt, self._permit = "", 0, 0, ""
        self._enrol: Enrol | None = None
        self._begin: Begin | None = None
        self._answers: dict[tuple[str, int], Done | Failed] = {}

    def __enter__(self) -> Self:
        """Listen."""
        self._context: zmq.Context[Any] = zmq.Context()
        self._doorman = ThreadAuthenticator(self._context, log=_LOG)
        self._doorman.start()
        self._doorman.configure_curve_callback(DOMAIN, self)
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

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether a key is let in: called by the authenticator, in its thread."""
        known = self._expected.keys.get(key) in self._expected.roles
        if not known:
            _LOG.warning("a node with a key that is not listed (%s) was refused", key.decode("ascii", "replace"))
        return known

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
        answers = self.ask_all([(name, self._enrol) for name in self.nodes])
        for node, answer in zip(self.nodes.values(), answers, strict=True):
            self._take_enrolled(node, answer)
        return {name: node.enrolled for name, node in self.nodes.items() if node.enrolled is not None}

    def _take_enrolled(self, node: NodeState, answer: object) -> None:
        if not isinstance(answer, Enrolled) or (node.role == "client" and answer.samples < 1):
            raise ConfigError(f"'{node.name}' has no samples to take part with")
        if node.enrolled not in (None, answer):
            raise ConfigError(f"'{node.name}' came back with other data, or another model, than the run began with")
        node.enrolled, node.knows_config = answer, True

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
        unknown = [node for node in new if not node.knows_config]
        for node, answer in zip(unknown, self.ask_all([(node.name, enrol) for node in unknown]), strict=True):
            self._take_enrolled(node, answer)
        self.ask_all([(node.name, begin) for node in new])
        for node in new:
            node.begun = True

    def ask(self, node: str, message: Message[Answer]) -> Answer:
        """See `Link.ask`."""
        answer: Answer = self.ask_all([(node, message)])[0]
        return answer

    def ask_all(self, asked: Sequence[tuple[str, Message[Any]]]) -> list[Any]:
        """Ask several nodes, each something, at the same time; their answers in that order. The first failure is
        raised, when all have answered or their time is up."""
        waiting = {place: self._said(name, message) for place, (name, message) in enumerate(asked)}
        started = said_at = time.monotonic()
        answers: dict[int, Done | Failed | HardwareError] = {}
        while waiting:
            self._listen(0.05)
            now = time.monotonic()
            again = now > said_at + AGAIN_S
            said_at = now if again else said_at
            for place, order in list(waiting.items()):
                name, message = asked[place]
                node = self.nodes[name]
                found = self._answers.pop((order.session, order.counter), None)
                if found is not None:
                    answers[place] = found
                elif node.session != order.session:
                    answers[place] = NodeAbsentError(f"'{name}' has started anew and knows nothing of the order")
                elif now > started + self.limits.of(message):
                    node.state = "silent"
                    answers[place] = NodeAbsentError(
                        f"'{name}' has not answered {type(message).__name__} within {self.limits.of(message):g} s"
                    )
                elif now > node.gone_at + self.limits.answer_s:
                    answers[place] = NodeAbsentError(f"'{name}' is gone: there is no connection to it any more")
                elif again:
                    self._say(node, order)
                if place in answers:
                    del waiting[place]
        return [_result(answers[place]) for place in range(len(asked))]

    def _said(self, name: str, message: Message[Any]) -> Order:
        node = self.nodes.get(name)
        if node is None:
            raise ConfigError(f"there is no node '{name}': there are {', '.join(self.nodes)}")
        if not node.session or not (node.begun or isinstance(message, Enrol | Begin)):
            raise NodeAbsentError(f"'{name}' is not there, or has started anew and knows nothing of the run")
        node.counter += 1
        order = Order(self.run, node.session, self._uplink, self._attempt, node.counter, self._permit, message)
        self._say(node, order)
        return order

    def _say(self, node: NodeState, order: Order) -> None:
        """It will be said again where nobody is there: the node may be about to connect anew, under another route."""
        node.gone_at = math.inf if self._send(node.route, order) else min(node.gone_at, time.monotonic())

    def _send(self, route: bytes, message: Any) -> bool:
        """Whether there was anybody to send it to."""
        try:
            self._socket.send_multipart([route, pack(message)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            _LOG.debug("a message could not be sent: %s", error)
            return False
        return True

    def _listen(self, wait_s: float) -> None:
        """Take what has come, waiting for the first of it."""
        timeout = round(1e3 * wait_s)
        while self._socket.poll(timeout):
            timeout = 0
            frames = self._socket.recv_multipart(copy=False)
            # A route alone is what ZeroMQ says where a node has gone.
            if len(frames) == 2:
                self._take(frames[0].bytes, frames[1])

    def _take(self, route: bytes, frame: zmq.Frame) -> None:
        key = str(frame.get("User-Id")).encode()
        name = self._expected.keys.get(key, "")
        node = self.nodes.get(name)
        if node is None:
            return
        try:
            message = unpack(frame.bytes, KINDS)
        except WireError as error:
            node.misunderstood += 1
            # The first, and then ever more seldom: a node must not fill the disk of the server.
            if node.misunderstood & (node.misunderstood - 1) == 0:
                _LOG.warning("'%s' says what cannot be understood (%d times): %s", name, node.misunderstood, error)
            return
        if isinstance(message, Hello):
            self._welcome(node, route, message)
            return
        session = getattr(message, "session", None)
        if session != node.session or not node.session:
            if isinstance(message, Alive):
                self._send(route, Unknown(message.session))
            return
        node.route, node.heard_at, node.gone_at = route, time.monotonic(), math.inf
        if isinstance(message, Alive):
            node.state = message.state[:40]
        elif isinstance(message, Done | Failed) and message.counter == node.counter:
            self._answers[message.session, message.counter] = message

    def _welcome(self, node: NodeState, route: bytes, hello: Hello) -> None:
        reason = self._refusal(node, hello)
        if reason is not None:
            _LOG.warning("'%s' was refused: %s", node.name, reason)
            self._send(route, Refused(reason))
            return
        if hello.boot != node.boot:
            node.session, node.boot, node.counter = secrets.token_hex(16), hello.boot, 0
            node.begun, node.knows_config, node.state = False, False, "joined"
        node.route, node.heard_at, node.gone_at = route, time.monotonic(), math.inf
        self._send(route, Welcome(node.session, node.boot))

    def _refusal(self, node: NodeState, hello: Hello) -> str | None:
        if hello.protocol != PROTOCOL:
            return f"it speaks protocol {hello.protocol} (airdp {hello.version[:40]}), the server {PROTOCOL}"
        if hello.name != node.name:
            return f"its key is that of '{node.name}', and it calls itself '{hello.name[:64]}'"
        if hello.role != node.role:
            return f"it is a {hello.role[:20]}, and the lab's '{node.name}' a {node.role}"
        if hello.lab_sha256 != self._expected.lab_sha256:
            return "its lab file describes another lab; addresses may differ, nothing else"
        return None


def _result(answer: Done | Failed | HardwareError) -> Any:
    if isinstance(answer, HardwareError):
        raise answer
    if isinstance(answer, Failed):
        raise raised({"type": answer.kind, "text": answer.text})
    return answer.answer
