"""The link over real sockets: who is let in, what is done how often, and what happens when somebody is gone."""

import contextlib
import dataclasses
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from fl.errors import ConfigError, PrivacyError
from fl.nodes.apart.admission import Admission, Expected
from fl.nodes.apart.keys import load_keys, load_public
from fl.nodes.apart.orders import Again, Begin, Clock, Done, Enrolled, Failed, Leave, Order, ReadClock, Train
from fl.nodes.apart.post import RefusedError
from fl.nodes.apart.sockets import connect, node_socket
from fl.nodes.apart.switchboard import AGAIN_S, NodeAbsentError, Switchboard, TimeLimits
from fl.nodes.apart.wire import Prepacked, pack
from fl.nodes.messages import Check, Sent, Sound
from hardware.radio.errors import HardwareError, LateError
from tests.fl.nodes.apart.link_world import BEGIN, ThreadNode, World, begun, world
from tests.fl.nodes.apart.test_wire import malformed


def clock(order: Order) -> Clock | None:
    return None if isinstance(order.message, Leave | Check) else Clock(order.counter, 0)


def test_nodes_are_asked_and_answer_in_the_order_of_the_question(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        one, two = begun(here, ThreadNode("one", clock), ThreadNode("two", clock))
        here.switchboard.place(3, 1)
        here.switchboard.permit("row")
        assert here.switchboard.ask_all([("two", ReadClock()), ("one", ReadClock())]) == [Clock(3, 0), Clock(3, 0)]
        assert (one.runs, two.runs) == (["run"], ["run"])
        order = one.obeyed[-1]
        assert (order.run, order.uplink, order.attempt, order.permit) == ("run", 3, 1, "row")
        here.switchboard.place(4, 0)
        here.switchboard.ask("one", ReadClock())
        assert one.obeyed[-1].permit == ""


def test_what_a_node_raises_is_raised_as_its_own_class(tmp_path: Path) -> None:
    def late(order: Order) -> None:
        raise LateError("it is already sample 7")

    with world(tmp_path, ("one",)) as here:
        begun(here, ThreadNode("one", late))
        with pytest.raises(LateError, match="already sample 7"):
            here.switchboard.ask("one", Sound(5))


def test_an_order_that_is_said_again_is_done_once(tmp_path: Path) -> None:
    """The node takes longer than the server's patience: the order comes several times, and is carried out one time."""

    def slow(order: Order) -> Clock:
        time.sleep(2.5 * AGAIN_S)
        return Clock(1, 0)

    with world(tmp_path, ("one",)) as here:
        (one,) = begun(here, ThreadNode("one", slow))
        assert here.switchboard.ask("one", ReadClock()) == Clock(1, 0)
        one.answer = clock
        here.switchboard.ask("one", ReadClock())
        assert len(one.obeyed) == 2


def heard_by(here: World, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the switchboard says from now on."""
    said: list[bytes] = []
    send = Switchboard._send

    def sent(self: Switchboard, route: bytes, content: bytes) -> bool:
        said.append(content)
        return send(self, route, content)

    monkeypatch.setattr(Switchboard, "_send", sent)
    return said


def test_a_model_is_packed_once_and_said_once_to_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both nodes train for longer than the server's patience: it asks for their answers, in a few bytes."""
    packed: list[object] = []

    class Counted(Prepacked):
        def __init__(self, value: object) -> None:
            packed.append(value)
            super().__init__(value)

    def train(order: Order) -> None:
        if isinstance(order.message, Train):
            time.sleep(1.5 * AGAIN_S)

    monkeypatch.setattr("fl.nodes.apart.switchboard.Prepacked", Counted)
    with world(tmp_path) as here:
        begun(here, ThreadNode("one", train), ThreadNode("two", train))
        packed.clear()
        said = heard_by(here, monkeypatch)
        model = Train(1, np.zeros(100_000, np.float32))
        here.switchboard.ask_all([("one", model), ("two", model)])
        assert packed == [model]
        assert sorted(len(content) > 400_000 for content in said) == [False] * (len(said) - 2) + [True] * 2
        assert len(said) > 2
        assert max(len(content) for content in said if len(content) < 400_000) < 200


def test_an_order_that_was_lost_is_said_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(tmp_path, ("one",)) as here:
        (one,) = begun(here, ThreadNode("one", clock))
        send, lost = Switchboard._send, [0]

        def losing(self: Switchboard, route: bytes, content: bytes) -> bool:
            lost[0] += 1
            return True if lost[0] == 1 else send(self, route, content)

        monkeypatch.setattr(Switchboard, "_send", losing)
        assert here.switchboard.ask("one", ReadClock()) == Clock(3, 0)
        assert len(one.obeyed) == 1
        # Lost, asked for, said again; and asked for once more where this machine is busy.
        assert lost[0] >= 3


@pytest.mark.parametrize("answer", [None, 7, "Decision", Sent(1), (1.0, 2.0)], ids=str)
def test_an_answer_to_something_else_is_refused_by_name(
    tmp_path: Path, answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a message, and well formed: a server that took it for what it asked for would fall over it."""
    monkeypatch.setattr("fl.nodes.apart.post._require_promised", lambda order, answer: None)
    with world(tmp_path) as here:
        begun(here, ThreadNode("one", lambda order: answer), ThreadNode("two", clock))
        with pytest.raises(HardwareError, match="'one' has answered ReadClock with"):
            here.switchboard.ask_all([("one", ReadClock()), ("two", ReadClock())])
        assert here.switchboard.ask("two", ReadClock()) == Clock(4, 0)


@dataclasses.dataclass(frozen=True)
class MoreThanSent(Sent):
    """As a change of the code might make it: with something of the client's own."""

    clipped_samples: int = 3


@pytest.mark.parametrize("answer", [MoreThanSent(7), np.ones(3, np.float32), "a word", 7.0, None], ids=str)
def test_a_node_says_nothing_that_its_order_does_not_promise(
    tmp_path: Path, answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not get as far as the wire, where the server would refuse it: by then it has left."""
    said: list[object] = []

    def packed(message: object) -> bytes:
        said.append(message)
        return pack(message)

    monkeypatch.setattr("fl.nodes.apart.post.pack", packed)
    with world(tmp_path, ("one",)) as here:
        begun(here, ThreadNode("one", lambda order: answer))
        with pytest.raises(PrivacyError, match="this node would have answered Sound with"):
            here.switchboard.ask("one", Sound(5))
    assert not [one for one in said if isinstance(one, Done) and one.answer is answer is not None]
    assert [one.kind for one in said if isinstance(one, Failed)] == ["PrivacyError"]


def test_answers_that_nobody_waits_for_are_not_kept(tmp_path: Path) -> None:
    with world(tmp_path, ("one",)) as here:
        begun(here, ThreadNode("one", clock))
        here.switchboard.ask("one", ReadClock())
        node = here.switchboard.nodes["one"]
        # Each of these is answered, for the second to the twentieth time.
        for _ in range(20):
            here.switchboard._send(node.route, pack(Again(node.session, node.counter)))
        assert here.switchboard.ask("one", ReadClock()) == Clock(4, 0)
        assert here.switchboard._open == {}


def test_where_one_is_not_there_nobody_is_asked(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        one, _ = begun(here, ThreadNode("one", clock), ThreadNode("two", clock))
        here.switchboard.nodes["two"].begun = False
        with pytest.raises(NodeAbsentError, match="'two' is not there"):
            here.switchboard.ask_all([("one", ReadClock()), ("two", ReadClock())])
        here.switchboard.ask("one", Check())
        assert [type(order.message) for order in one.obeyed] == [Check]


def test_strangers_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "airdp"):
        admission = Admission(Expected({"one": "client"}, {b"k" * 40: "one"}, ""))
        for number in range(1000):
            assert not admission.callback("", str(number).encode().zfill(40))
    assert [record.getMessage().rpartition("(")[2] for record in caplog.records[1:4]] == [
        "2 times by now)",
        "4 times by now)",
        "8 times by now)",
    ]
    assert len(caplog.records) == 10


def test_old_orders_and_orders_of_another_session_are_not_done(tmp_path: Path) -> None:
    with world(tmp_path, ("one",)) as here:
        (one,) = begun(here, ThreadNode("one", clock))
        here.switchboard.ask("one", ReadClock())
        done = one.obeyed[-1]
        node = here.switchboard.nodes["one"]
        for stale in (done, Order("run", "0" * 32, 1, 0, 99, "", ReadClock())):
            for _ in range(20):
                here.switchboard._send(node.route, pack(stale))
        # Answered after all of those have arrived.
        here.switchboard.ask("one", ReadClock())
        assert [order.counter for order in one.obeyed] == [3, 4]


def test_a_key_that_is_not_listed_is_refused_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "airdp"), world(tmp_path, ("one",)) as here:
        begun(here, ThreadNode("one", clock))
        stranger = here.join(ThreadNode("one"), key="stranger")
        here.pump(lambda: stranger.outcome is not None)
        assert isinstance(stranger.outcome, RefusedError)
        assert "not listed" in caplog.text
        assert here.switchboard.ask("one", ReadClock()).now_sample > 0


def test_a_server_without_the_expected_key_is_not_spoken_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It hangs up several times a second: that is said once."""
    with caplog.at_level(logging.WARNING, "airdp"), world(tmp_path, ("one",)) as here:
        node = here.join(ThreadNode("one"), server="stranger")
        here.pump(lambda: "is the server's public key here its own?" in caplog.text)
        with pytest.raises(NodeAbsentError, match="'one' did not join"):
            here.switchboard.gather(1.5)
        assert (node.obeyed, node.lost) == ([], 0)
        assert caplog.text.count("is the server's public key here its own?") == 1
        assert f"{here.endpoint} is gone" not in caplog.text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "two"}, "calls itself 'two'"),
        ({"name": "two\nall is well"}, r"calls itself 'two\nall is well'"),
        ({"protocol": 0}, "speaks protocol 0"),
        ({"role": "jammer"}, "is a 'jammer'"),
        ({"lab_sha256": "1" * 64}, "another lab"),
    ],
    ids=["a copied name", "a name of two lines", "an old protocol", "another role", "another lab"],
)
def test_a_node_that_is_not_what_it_says_is_refused(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    with world(tmp_path) as here:
        node = here.join(ThreadNode("one"), **changes)
        here.pump(lambda: node.outcome is not None)
        assert isinstance(node.outcome, RefusedError)
        assert reason in str(node.outcome)
        assert not here.switchboard.nodes["one"].session


def test_a_node_that_does_not_answer_is_named_after_its_time(tmp_path: Path) -> None:
    with world(tmp_path, answer_s=1.5) as here:
        frozen = ThreadNode("one", lambda order: time.sleep(4.0))
        begun(here, frozen, ThreadNode("two", clock))
        started = time.monotonic()
        with pytest.raises(NodeAbsentError, match="'one' has not answered Check"):
            here.switchboard.ask_all([("one", Check()), ("two", Check())])
        assert time.monotonic() - started > 1.0
        # What it says when it is back belongs to an order that nobody waits for any more.
        here.pump(lambda: len(frozen.obeyed) == 1 and frozen.thread is not None)
        frozen.answer = clock
        time.sleep(3.0)
        here.switchboard.limits = TimeLimits(60.0)
        assert here.switchboard.ask("one", ReadClock()).now_sample == here.switchboard.nodes["one"].counter


def test_a_node_that_starts_anew_is_told_of_the_run_before_anything_else(tmp_path: Path) -> None:
    with world(tmp_path, ("one",)) as here:
        (one,) = begun(here, ThreadNode("one", clock))
        here.switchboard.ask("one", Leave())
        assert one.thread is not None
        one.thread.join(10.0)
        again = here.join(ThreadNode("one", clock))
        session = here.switchboard.nodes["one"].session
        here.pump(lambda: here.switchboard.nodes["one"].session != session)
        with pytest.raises(NodeAbsentError, match="started anew"):
            here.switchboard.ask("one", ReadClock())
        assert again.obeyed == []
        here.switchboard.ready()
        assert again.runs == ["run"]
        assert here.switchboard.ask("one", ReadClock()) == Clock(3, 0)


def test_a_node_that_starts_anew_while_others_are_told_is_told_again(tmp_path: Path) -> None:
    """It had answered, and knows nothing of that any more."""
    with world(tmp_path) as here:
        one, two = ThreadNode("one", clock), ThreadNode("two", clock)
        for node in (one, two):
            here.join(node)
        here.switchboard.gather(100.0)
        here.switchboard.enrol("")
        session = here.switchboard.nodes["one"].session
        ask_all = here.switchboard.ask_all

        def asked(what: list[tuple[str, Any]]) -> list[Any]:
            answers = ask_all(what)
            if what and isinstance(what[0][1], Begin) and here.switchboard.nodes["one"].session == session:
                here.join(ThreadNode("one", clock))
                here.pump(lambda: here.switchboard.nodes["one"].session != session)
            return answers

        here.switchboard.ask_all = asked  # type: ignore[assignment,method-assign]
        with pytest.raises(NodeAbsentError, match="'one' has started anew"):
            here.switchboard.begin("run", BEGIN)
        assert not here.switchboard.nodes["one"].begun


def test_a_node_that_comes_back_with_other_data_is_refused(tmp_path: Path) -> None:
    with world(tmp_path, ("one",)) as here:
        begun(here, ThreadNode("one", clock))
        here.switchboard.ask("one", Leave())
        session = here.switchboard.nodes["one"].session
        here.join(ThreadNode("one", clock, enrolled=Enrolled(11, 4)))
        here.pump(lambda: here.switchboard.nodes["one"].session != session)
        with pytest.raises(ConfigError, match="other data"):
            here.switchboard.ready()


def test_nodes_notice_that_the_server_is_gone(tmp_path: Path) -> None:
    with world(tmp_path, ("one",)) as here:
        (one,) = begun(here, ThreadNode("one", clock))
    deadline = time.monotonic() + 100.0
    while not one.lost and time.monotonic() < deadline:
        time.sleep(0.05)
    assert one.lost == 1


@contextlib.contextmanager
def socket_of(here: World, name: str) -> Iterator[Any]:
    """Of somebody who has the key of that node, to say what they like."""
    with (
        zmq.Context() as context,
        node_socket(context, load_keys(here.keys, name), load_public(here.keys, "ps")) as socket,
    ):
        connect(socket, here.endpoint)
        socket.setsockopt(zmq.SNDTIMEO, 100_000)
        yield socket


def test_a_node_that_never_stops_talking_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is slower than it takes so many messages, and sees to its own business: here that time is up."""
    take = Switchboard._take

    def slowly(self: Switchboard, *frames: Any) -> None:
        time.sleep(1e-3)
        take(self, *frames)

    monkeypatch.setattr(Switchboard, "_take", slowly)
    with world(tmp_path, answer_s=1.5) as here:
        begun(here, ThreadNode("one", lambda order: time.sleep(4.0)), ThreadNode("two", clock))
        over = threading.Event()

        def talk(bad: Any) -> None:
            with contextlib.suppress(zmq.Again):
                while not over.is_set():
                    bad.send(b"and another thing")

        with socket_of(here, "two") as bad:
            # Once nobody listens any more it ends.
            bad.setsockopt(zmq.SNDTIMEO, 1000)
            talking = threading.Thread(target=talk, args=(bad,), daemon=True)
            talking.start()
            try:
                with pytest.raises(NodeAbsentError, match="'one' has not answered Check"):
                    here.switchboard.ask_all([("one", Check())])
            finally:
                over.set()
                talking.join(100.0)


def test_a_node_has_nothing_large_to_say(tmp_path: Path) -> None:
    """The server need not keep it: whoever says it is hung up on, before it is there."""
    with world(tmp_path) as here:
        begun(here, ThreadNode("one", clock), ThreadNode("two", clock))
        with socket_of(here, "one") as bad:
            monitor = bad.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            bad.send(bytes(1 << 20))
            here.pump(lambda: bool(monitor.poll(0)))
            bad.disable_monitor()
            monitor.close()
        assert here.switchboard.ask_all([("one", ReadClock()), ("two", ReadClock())]) == [Clock(3, 0)] * 2


def test_what_happens_while_a_node_connects_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a server may have answered before the node goes on: it must know of it when that is gone."""

    def slowly(socket: Any, endpoint: str) -> None:
        connect(socket, endpoint)
        time.sleep(1.0)

    monkeypatch.setattr("fl.nodes.apart.post.connect", slowly)
    with world(tmp_path, ("one",)) as here:
        (one,) = begun(here, ThreadNode("one", clock))
    deadline = time.monotonic() + 100.0
    while not one.lost and time.monotonic() < deadline:
        time.sleep(0.05)
    assert one.lost == 1


def test_malformed_frames_change_nothing(tmp_path: Path) -> None:
    """From somebody who has a key: bytes that are no messages, and messages that are not for a server. All arrive.

    AIRDP_FRAMES: how many.
    """
    frames = malformed(np.random.default_rng(5), int(os.environ.get("AIRDP_FRAMES", "2000")))
    taken = [0]

    class Counted:
        """The server's socket, which counts what has come from nobody who was asked."""

        def __init__(self, socket: Any) -> None:
            self._socket = socket

        def __getattr__(self, name: str) -> Any:
            return getattr(self._socket, name)

        def recv_multipart(self, *words: Any, **more: Any) -> Any:
            parts = self._socket.recv_multipart(*words, **more)
            taken[0] += parts[-1].bytes in sent
            return parts

    with world(tmp_path) as here:
        begun(here, ThreadNode("one", clock), ThreadNode("two", clock))
        sent = set(frames)
        here.switchboard._socket = Counted(here.switchboard._socket)
        with socket_of(here, "one") as bad:
            for number, content in enumerate(frames):
                bad.send_multipart([content] if len(content) % 5 else [content, content])
                # It would be hung up on if nobody took what it says.
                if number % 100 == 0:
                    here.switchboard._listen(0.0)
            assert here.switchboard.ask_all([("one", ReadClock()), ("two", ReadClock())]) == [Clock(3, 0)] * 2
            here.pump(lambda: taken[0] >= len(frames))
        assert taken[0] == len(frames)
        assert here.switchboard.ask_all([("one", ReadClock()), ("two", ReadClock())]) == [Clock(4, 0)] * 2
