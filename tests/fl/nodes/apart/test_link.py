"""The link over real sockets: who is let in, what is done how often, and what happens when somebody is gone."""

import logging
import os
import time
from pathlib import Path

import numpy as np
import pytest

from fl.errors import ConfigError
from fl.nodes.apart.orders import Clock, Enrolled, Leave, Order, ReadClock
from fl.nodes.apart.post import RefusedError
from fl.nodes.apart.switchboard import AGAIN_S, NodeAbsentError
from fl.nodes.messages import Check, Sound
from hardware.radio.errors import LateError
from tests.fl.nodes.apart.link_world import ThreadNode, begun, world
from tests.fl.nodes.apart.test_wire import malformed


def clock(order: Order) -> Clock:
    return Clock(order.counter, 0)


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


def test_old_orders_and_orders_of_another_session_are_not_done(tmp_path: Path) -> None:
    with world(tmp_path, ("one",)) as here:
        (one,) = begun(here, ThreadNode("one", clock))
        here.switchboard.ask("one", ReadClock())
        done = one.obeyed[-1]
        node = here.switchboard.nodes["one"]
        for stale in (done, Order("run", "0" * 32, 1, 0, 99, "", ReadClock())):
            for _ in range(20):
                here.switchboard._send(node.route, stale)
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


def test_a_server_without_the_expected_key_is_not_spoken_to(tmp_path: Path) -> None:
    with world(tmp_path, ("one",)) as here:
        node = here.join(ThreadNode("one"), server="stranger")
        with pytest.raises(NodeAbsentError, match="'one' did not join"):
            here.switchboard.gather(1.5)
        assert node.obeyed == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "two"}, "calls itself 'two'"),
        ({"protocol": 0}, "speaks protocol 0"),
        ({"role": "jammer"}, "is a jammer"),
        ({"lab_sha256": "1" * 64}, "another lab"),
    ],
    ids=["a copied name", "an old protocol", "another role", "another lab"],
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
    deadline = time.monotonic() + 15.0
    while not one.lost and time.monotonic() < deadline:
        time.sleep(0.05)
    assert one.lost == 1


def test_malformed_frames_change_nothing(tmp_path: Path) -> None:
    """From a node that has a key: bytes that are no messages, and messages that are not for a server.

    AIRDP_FRAMES: how many.
    """
    with world(tmp_path) as here:
        begun(here, ThreadNode("one", clock), ThreadNode("two", clock))
        import zmq

        from fl.nodes.apart.keys import load_keys, load_public
        from fl.nodes.apart.sockets import node_socket

        frames = malformed(np.random.default_rng(5), int(os.environ.get("AIRDP_FRAMES", "2000")))
        with zmq.Context() as context:
            keys = load_keys(here.keys, "one")
            with node_socket(context, here.endpoint, keys, load_public(here.keys, "ps")) as bad:
                bad.setsockopt(zmq.SNDTIMEO, 10_000)
                for content in frames:
                    bad.send_multipart([content] if len(content) % 5 else [content, content])
                assert here.switchboard.ask_all([("one", ReadClock()), ("two", ReadClock())]) == [Clock(3, 0)] * 2
                here.pump(lambda: not bad.getsockopt(zmq.EVENTS) & zmq.POLLERR)
        assert here.switchboard.ask_all([("one", ReadClock()), ("two", ReadClock())]) == [Clock(4, 0)] * 2
