"""Messages of GNU Radio's ZeroMQ blocks, against GNU Radio's own, and what is not one."""

import struct
from typing import Any

import numpy as np
import pytest

from hardware.gnuradio.wire import MAGIC, Message, Tag, WireError, decode, encode
from tests.gnuradio_needed import needs_gnuradio

SAMPLES = np.array([0.5, -1j, 3 + 4j], np.complex64)


def message_of(*pmts: bytes, offset: int = 7) -> bytes:
    tags = b"".join(struct.pack("<Q", offset + 1) + b"\x02\x00\x01k" + pmt + b"\x01" for pmt in pmts)
    return struct.pack("<HBQQ", MAGIC, 1, offset, len(pmts)) + tags + SAMPLES.tobytes()


def same(one: Message, other: Message) -> bool:
    return (one.offset, one.tags) == (other.offset, other.tags) and np.array_equal(one.samples, other.samples)


def test_what_is_encoded_is_decoded() -> None:
    tags = [(10**12, "burst_start", 2**63), (10**12 + 2, "x", 0)]
    message = decode(encode(10**12, SAMPLES, tags))
    assert same(message, Message(10**12, tuple(Tag(*tag) for tag in tags), SAMPLES))
    assert message.samples.flags.writeable


def test_no_samples_and_no_tags() -> None:
    assert decode(encode(0, SAMPLES[:0])).samples.size == 0


@needs_gnuradio
def test_values_are_those_of_gnu_radio() -> None:
    import pmt

    values: list[tuple[Any, Any]] = [
        (pmt.PMT_T, True),
        (pmt.PMT_F, False),
        (pmt.PMT_NIL, None),
        (pmt.intern("größe"), "größe"),
        (pmt.from_long(-3), -3),
        (pmt.from_long(2**40), 2**40),
        (pmt.from_uint64(2**63), 2**63),
        (pmt.from_double(1.5), 1.5),
        (pmt.from_complex(1 + 2j), 1 + 2j),
        (pmt.cons(pmt.intern("a"), pmt.from_long(1)), ("a", 1)),
        (pmt.make_vector(2, pmt.PMT_T), (True, True)),
        (pmt.make_tuple(pmt.from_uint64(7), pmt.from_double(0.25)), (7, 0.25)),
        (pmt.init_f32vector(2, [1.0, 2.0]), (1.0, 2.0)),
        (pmt.init_u8vector(3, [1, 2, 255]), (1, 2, 255)),
        (
            pmt.dict_add(
                pmt.dict_add(pmt.make_dict(), pmt.intern("x"), pmt.from_long(5)), pmt.intern("y"), pmt.PMT_NIL
            ),
            {"x": 5, "y": None},
        ),
    ]
    message = decode(message_of(*(pmt.serialize_str(theirs) for theirs, _ in values)))
    assert [tag.value for tag in message.tags] == [ours for _, ours in values]
    assert np.array_equal(message.samples, SAMPLES)


@needs_gnuradio
def test_our_tags_are_read_by_gnu_radio() -> None:
    import pmt

    header = encode(5, SAMPLES[:0], [(6, "burst_start", 12345)])
    key_length = len(pmt.serialize_str(pmt.intern("burst_start")))
    key, value = header[27 : 27 + key_length], header[27 + key_length :]
    assert pmt.symbol_to_string(pmt.deserialize_str(key)) == "burst_start"
    assert pmt.to_uint64(pmt.deserialize_str(value)) == 12345


def test_every_prefix_of_a_message_is_refused_or_short() -> None:
    """Nothing but a `WireError` comes out of damaged bytes."""
    whole = encode(3, SAMPLES, [(3, "burst_start", 3)])
    for end in range(len(whole)):
        try:
            message = decode(whole[:end])
        except WireError:
            continue
        assert message.samples.size < SAMPLES.size


def test_damaged_bytes_raise_nothing_else() -> None:
    rng = np.random.default_rng(1)
    whole = np.frombuffer(encode(3, SAMPLES, [(3, "burst_start", 3)] * 3), np.uint8)
    refused = 0
    for _ in range(3000):
        damaged = whole.copy()
        damaged[rng.integers(0, damaged.size, 3)] = rng.integers(0, 256, 3)
        try:
            decode(damaged.tobytes())
        except WireError:
            refused += 1
    assert refused > 1000


@pytest.mark.parametrize("broken", [b"", SAMPLES.tobytes() * 3, b"\x00" * 40], ids=["empty", "samples alone", "zeros"])
def test_what_has_no_header_is_refused(broken: bytes) -> None:
    with pytest.raises(WireError, match=r"pass tags|cut short"):
        decode(broken)


def test_values_nested_without_end_are_refused() -> None:
    with pytest.raises(WireError, match="damaged"):
        decode(message_of(b"\x07" * 100_000))
