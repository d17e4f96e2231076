"""Messages on the wire: what goes in comes out, bit for bit, and nothing else is taken for a message."""

import dataclasses
import hashlib
import math
import types
from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

import msgpack
import numpy as np
import pytest

from fl.nodes.apart.orders import FROM_NODES, FROM_SERVER, KINDS, Begin, Done, Order, Train
from fl.nodes.apart.wire import PROTOCOL, Prepacked, WireError, pack, pack_around, unpack
from fl.nodes.client import Departure
from fl.nodes.messages import (
    Announcement,
    FlatChannel,
    Heard,
    HearSoundings,
    MeasureSilence,
    Message,
    Receive,
    Received,
    Silence,
    SoundedChannel,
    Transmit,
    Withdraw,
    answer_type,
)
from fl.nodes.transmitter import Burst
from fl.privacy.clipping import BoundedUpdate
from phy.numerology import Numerology


def channel() -> SoundedChannel:
    rng = np.random.default_rng(1)
    values = (rng.normal(size=9) + 1j * rng.normal(size=9)).astype(np.complex64)
    return SoundedChannel(
        values, rng.random(9), Numerology(256, 64, 192, 1e6), 0.25, 1e-9, 5, -3, FlatChannel(1 - 2j, 3, 0.1, 0.2)
    )


MESSAGES: list[Any] = [
    Order("run", "session", 3, 1, 7, "row", Announcement(0.1 + 0.2, channel(), 1, 2, math.pi, 3)),
    Order("run", "session", 3, 1, 8, "", Transmit(2**53 + 1)),
    Train(4, np.array([1.0, -0.0, math.inf, 1e-45], np.float32)),
    Begin((1, 2, 3), 10, 1.0),
]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if dataclasses.is_dataclass(one):
        return type(one) is type(other) and all(
            same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one)
        )
    return type(one) is type(other) and bool(one == other)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_out_as_it_went_in(message: Any) -> None:
    assert same(unpack(pack(message), KINDS), message)


def test_a_difference_in_one_bit_is_a_difference() -> None:
    changed = dataclasses.replace(MESSAGES[2], model=np.array([1.0, 0.0, math.inf, 1e-45], np.float32))
    assert not same(unpack(pack(changed), KINDS), MESSAGES[2])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"uplink": "one", "model": np.zeros(1, np.float32)}, "Train.uplink"),
        ({"uplink": True, "model": np.zeros(1, np.float32)}, "Train.uplink"),
        ({"uplink": 1, "model": np.zeros(1, np.float64)}, "Train.model"),
        ({"uplink": 1, "model": [0.0]}, "Train.model"),
        ({"uplink": 1}, "other fields"),
        ({"uplink": 1, "model": np.zeros(1, np.float32), "more": 1}, "other fields"),
    ],
)
def test_fields_of_other_types_are_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        unpack(pack({"is": "Train", **fields}), KINDS)


@pytest.mark.parametrize("name", ["Path", "KeyPair", "RoundMechanism", "object", "os.system"])
def test_classes_that_are_no_messages_are_not_made(name: str) -> None:
    with pytest.raises(WireError, match="not known"):
        unpack(pack({"is": name}), KINDS)


def test_values_that_a_class_refuses_are_refused() -> None:
    broken = {"is": "Numerology", "fft_size": -1, "cp_samples": 64, "data_subcarriers": 192, "sample_rate_hz": 1e6}
    with pytest.raises(WireError, match="cannot have"):
        unpack(pack(broken), KINDS)


def test_what_was_packed_before_is_the_same_message() -> None:
    whole = MESSAGES[0]
    assert same(unpack(pack_around(whole, "message", Prepacked(whole.message)), KINDS), whole)


@pytest.mark.parametrize(
    "fields",
    [
        {"is": "Decision", "backoff": math.nan},
        {"is": "Decision", "gain_upper": math.nan},
        {"is": "Decision", "gain_upper": math.inf},
        {"is": "Decision", "backoff": 0.5},
        {"is": "Decision", "phase_error_rad": math.nan},
        {"is": "Circuits", "step": math.nan, "image": 0.0},
        {"is": "Circuits", "step": 0.1, "image": -1.0},
        {"is": "JammingDecision", "alpha": math.inf, "gain_lower": 1.0},
        {"is": "JammingDecision", "alpha": 1.0, "gain_lower": 0.0},
        {"is": "Enrolled", "samples": -1, "coordinates": 1},
        {"is": "Enrolled", "samples": 1 << 63, "coordinates": 1},
        {"is": "Rounding", "distance": math.nan, "delta": 0.0},
        {"is": "Rounding", "distance": 0.0, "delta": -1e-9},
    ],
    ids=str,
)
def test_numbers_that_nothing_leads_to_are_refused(fields: dict[str, Any]) -> None:
    """NaN compares with nothing, so a check that asks whether it is too small would let it pass."""
    honest = {"backoff": 1.0, "gain_upper": 1.0, "csi_error": 0.0, "phase_error_rad": 0.0, "timing_error": 0.0}
    exact = {"rounding": {"is": "Rounding", "distance": 0.0, "delta": 0.0}}
    made = {**honest, **exact, **fields} if fields["is"] == "Decision" else fields
    with pytest.raises(WireError, match="cannot have"):
        unpack(pack(made), KINDS)


def malformed(rng: np.random.Generator, count: int) -> list[bytes]:
    """Random bytes, and messages with bytes changed, cut, doubled or put in."""
    whole = [pack(message) for message in MESSAGES]
    made = [rng.bytes(int(rng.integers(0, 200))) for _ in range(count // 4)]
    while len(made) < count:
        content = bytearray(whole[int(rng.integers(len(whole)))])
        for _ in range(int(rng.integers(1, 4))):
            place = int(rng.integers(len(content)))
            match int(rng.integers(4)):
                case 0:
                    content[place] = int(rng.integers(256))
                case 1:
                    del content[place : place + int(rng.integers(1, 9))]
                case 2:
                    content[place:place] = rng.bytes(int(rng.integers(1, 9)))
                case 3:
                    content += content[place : place + 64]
            content = content or bytearray(b"\0")
        made.append(bytes(content))
    return made


def test_nothing_malformed_is_worse_than_refused() -> None:
    """Every one is a value of plain types, a message, or a `WireError`."""
    refused = 0
    for content in malformed(np.random.default_rng(2), 3000):
        try:
            unpack(content, KINDS)
        except WireError:
            refused += 1
    assert refused > 1500


def test_deep_and_large_things_are_refused() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    lying = msgpack.packb(msgpack.ExtType(1, (10).to_bytes(2, "big") + msgpack.packb(["<f4", [2**40]])))
    for content in (msgpack.packb(deep), b"\xdd\xff\xff\xff\xff", lying):
        with pytest.raises(WireError):
            unpack(content, KINDS)


PUBLIC = {
    "Hello": {"protocol", "version", "name", "role", "lab_sha256", "boot"},
    "Alive": {"session", "state"},  # one of three words
    "Missing": {"session", "counter"},
    "Done": {"session", "counter", "answer"},  # one of the below, or nothing, or how many bursts were withdrawn
    "Failed": {"session", "counter", "kind", "text"},  # words that depend on data stay home
    "Enrolled": {"samples", "coordinates"},  # n_i is public in this model, and d is that of the config
    "Clock": {"now_sample", "lead_samples"},
    "CountStatus": {"astray", "unsent_samples", "queue_samples"},
    "BurstSent": {"start_sample", "epoch"},  # of alignment, before any payload
    "Sent": {"samples"},  # the length of a burst follows from d and the channel's inverse
    "Circuits": {"step", "image"},
    # Of the channel, and of the converter's step and the burst's length, alone.
    "Decision": {"backoff", "gain_upper", "csi_error", "phase_error_rad", "timing_error", "rounding"},
    "Rounding": {"distance", "delta"},
    "JammingDecision": {"alpha", "gain_lower"},
}
"""All that a node may say, field by field. A new field is added here with its reason, or it is not public."""


def all_messages(kind: type = Message) -> Iterator[type]:
    for below in kind.__subclasses__():
        yield below
        yield from all_messages(below)


def parts(hint: Any) -> Iterator[Any]:
    """A declared type, and those that it is made of."""
    yield hint
    for argument in get_args(hint):
        yield from parts(argument)


def test_no_field_of_what_a_client_says_depends_on_its_data() -> None:
    assert {kind.__name__: {field.name for field in dataclasses.fields(kind)} for kind in FROM_NODES} == PUBLIC
    for kind in FROM_NODES:
        for name, declared in get_type_hints(kind).items():
            # No arrays, no tables, nothing of a type that is not declared, but for the one field that answers are in.
            allowed = (int, float, str, bool, tuple, types.NoneType, types.UnionType, Any, *FROM_NODES)
            for part in parts(declared):
                assert (get_origin(part) or part) in allowed, (kind, name, part)
            assert Any not in parts(declared) or (kind, name) == (Done, "answer")


def test_every_message_that_may_come_to_a_node_is_answered_with_what_is_public() -> None:
    """What the server asks its own radio, and what that answers, cannot come over a link at all."""
    own = {MeasureSilence, HearSoundings, Receive}
    asked = {kind for kind in all_messages() if kind.__module__.startswith("fl.")}
    assert asked - own == {kind for kind in FROM_SERVER if issubclass(kind, Message)}
    for kind in asked - own:
        answer = answer_type(kind.__new__(kind))
        assert answer in (*FROM_NODES, int, types.NoneType), kind
        assert answer is not int or kind is Withdraw
    for kind in (*own, Silence, Heard, Received):
        assert kind.__name__ not in KINDS


def test_what_a_client_knows_of_its_own_data_is_no_message() -> None:
    for kind in (Departure, Burst, BoundedUpdate):
        assert kind.__name__ not in KINDS
        with pytest.raises(WireError, match="not known"):
            unpack(pack({"is": kind.__name__}), KINDS)


SCHEMA = {3: "135b76193035dfba08db59f8c8997040cf53b877e4ae16a55dddd00a384d8116"}
"""sha256 of `schema()` by version of the protocol."""


def written(hint: Any) -> str:
    """A declared type, the same in all versions of Python and NumPy."""
    if get_origin(hint) is np.ndarray:
        return f"array[{written(get_args(get_args(hint)[1])[0])}]"
    if get_args(hint):
        origin = get_origin(hint)
        name = "|" if origin is types.UnionType else getattr(origin, "__name__", str(origin))
        return f"{name}[{', '.join(written(one) for one in get_args(hint))}]"
    return getattr(hint, "__name__", str(hint))


def schema() -> str:
    """All messages, each with the names and types of its fields."""
    lines = []
    for name, kind in sorted(KINDS.items()):
        hints = get_type_hints(kind)
        fields = (f"{field.name} {written(hints[field.name])}" for field in dataclasses.fields(kind))
        lines.append(f"{name}: {', '.join(fields)}")
    return "\n".join(lines)


def test_messages_that_change_have_another_version() -> None:
    """Nodes of two versions would not understand each other, and say so only if the number differs."""
    assert hashlib.sha256(schema().encode()).hexdigest() == SCHEMA[PROTOCOL], (
        f"messages are not those of protocol {PROTOCOL}: raise it, and put the new digest here\n{schema()}"
    )
