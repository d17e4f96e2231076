"""All that crosses the link, both ways, with and without other data at one client: nothing but the released sum knows.

What is compared is what is in the frames: CURVE encrypts them with keys and nonces of their own every time, and leaves
their lengths, which follow from what is in them.
"""

import dataclasses
import random
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl.learning.data.digits import load_digits
from fl.nodes.apart.orders import KINDS, Alive, Done, Enrol, Failed, Hello, Missing, Order, Train
from fl.nodes.apart.wire import pack, unpack
from fl.random_streams import Stream, generator
from tests.fl.nodes.apart.faults.meddler import Meddler, Wire
from tests.fl.nodes.apart.site import PATIENT, free_port, sections, site

pytestmark = [pytest.mark.usefixtures("no_figures", "one_thread"), pytest.mark.timeout(300)]

UPLINKS = 3
NO_MODEL = np.zeros(0, np.float32)
WORDS = {pack(Missing("", 0)), *(pack(Alive("", state)) for state in ("waiting", "joined", "ready"))}
"""That a node may say at any time."""


@dataclasses.dataclass
class Conversation:
    """With one node. orders, answers: as bytes, by the order's number, without what names a session. models: as they
    were brought to it. kinds: of orders. besides: what else the node has said, whenever and however often."""

    orders: dict[int, bytes]
    answers: dict[int, bytes]
    models: list[bytes]
    kinds: list[str]
    besides: set[bytes]


def conversation(wire: Wire) -> Conversation:
    """What came twice came the same: an answer that is asked for again is a matter of time alone."""
    said = Conversation({}, {}, [], [], set())
    for for_the_node, content in wire.history:
        message: Any = unpack(content, KINDS)
        # Who is there, and when it is asked for an answer, is a matter of time too.
        if isinstance(message, Order if for_the_node else Done | Failed):
            book = said.orders if for_the_node else said.answers
            if isinstance(message, Order) and isinstance(message.message, Train) and message.counter not in book:
                said.models.append(message.message.model.tobytes())
            if isinstance(message, Order) and message.counter not in book:
                said.kinds.append(type(message.message).__name__)
            bare = without_model(dataclasses.replace(message, session=""))
            assert book.setdefault(message.counter, bare) == bare
        elif not for_the_node:
            said.besides.add(pack(without_number(message)))
    return said


def without_number(message: Any) -> Any:
    """Without what is drawn anew at every start, or is the number of an order."""
    match message:
        case Hello():
            return dataclasses.replace(message, boot="")
        case Missing():
            return Missing("", 0)
    return dataclasses.replace(message, session="")


def without_model(message: Any) -> bytes:
    if isinstance(message, Order) and isinstance(message.message, Train):
        message = dataclasses.replace(message, message=dataclasses.replace(message.message, model=NO_MODEL))
    return pack(message)


def conversations(folder: Path, labels: Any) -> dict[str, Conversation]:
    """Of all nodes in a run in which the first client has these labels."""
    digits = load_digits(200, 0.2, generator(1, Stream.DATA))
    folder.mkdir()
    np.savez(folder / "own.npz", x=digits.train_x[:90], y=labels(digits.train_y[:90]))
    with site(folder, changes=PATIENT) as here:
        names = [radio.name for radio in here.lab.radios if radio.name != "ps"]
        ports = {name: free_port() for name in names}
        with Meddler(folder / "keys", here.server, ports, random.Random(1), remembers=None) as between:
            here.changes = {name: {"server": between.endpoint(name)} for name in names}
            here.changes["client-1"]["data"] = str(folder / "own.npz")
            here.start_all()
            assert here.run(sections(uplinks=UPLINKS)).uplinks == UPLINKS
            return {name: conversation(wire) for name, wire in between.wires.items()}


class NoTime(datetime):
    """Rows of the ledger say when they were written, and their hashes depend on that."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "NoTime":
        return cls(2000, 1, 1, tzinfo=tz)


def test_nothing_on_the_wire_depends_on_a_clients_data_but_the_released_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fl.privacy.ledger.datetime", NoTime)
    # In the same place, because its name is in the run's config.
    place, heard = tmp_path / "place", []
    for labels in (lambda y: y, lambda y: y[::-1]):
        heard.append(conversations(place, labels))
        place.rename(tmp_path / f"done-{len(heard)}")
    one, other = heard
    assert one.keys() == {"client-1", "client-2", "jammer"}
    for name, said in one.items():
        assert len(said.orders) > 10
        assert said.orders.keys() == said.answers.keys() == other[name].orders.keys()
        differing = [number for number in said.orders if said.orders[number] != other[name].orders[number]]
        assert [said.kinds[number - 1] for number in differing] == []
        assert said.answers == other[name].answers
        # Besides answers a node says who it is, in which of its states, and that it has missed something.
        assert said.besides | WORDS == other[name].besides | WORDS
        assert len(said.besides - WORDS) == 1
        # The model comes to each client once in each uplink; after the first it has a sum in it that has noise.
        assert len(said.models) == (0 if name == "jammer" else UPLINKS)
        assert [a == b for a, b in zip(said.models, other[name].models, strict=True)] == [True, False, False][
            : len(said.models)
        ]
    assert Enrol.__name__ == one["client-1"].kinds[0]
