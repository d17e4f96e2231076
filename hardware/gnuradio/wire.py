"""What GNU Radio's ZeroMQ stream blocks send and understand when they pass tags, written and read without GNU Radio.

A message is a header and samples. The header has the absolute number of the first sample in the sender's stream, which
is how lost samples are found, and the tags: (sample number, key, value, source), the last three as serialised PMTs.
The header is little-endian as on every machine that GNU Radio runs these blocks on; PMTs are big-endian.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hardware.radio.errors import HardwareError

MAGIC = 0x5FF0
VERSION = 1
_HEADER = struct.Struct("<HBQQ")
_OFFSET = struct.Struct("<Q")
_SAMPLE_BYTES = np.dtype(np.complex64).itemsize

PmtValue = bool | int | float | complex | str | tuple["PmtValue", ...] | dict["PmtValue", "PmtValue"] | None
"""What a PMT becomes here: pairs and vectors are tuples, symbols are strings."""

_TRUE, _FALSE, _SYMBOL, _INT32, _DOUBLE, _COMPLEX, _NULL, _PAIR, _VECTOR, _DICT = range(10)
_UNIFORM, _UINT64, _TUPLE, _INT64 = range(10, 14)
_NUMBERS = {_INT32: ">i", _DOUBLE: ">d", _UINT64: ">Q", _INT64: ">q"}
_UNIFORM_TYPES = (">u1", ">i1", ">u2", ">i2", ">u4", ">i4", ">u8", ">i8", ">f4", ">f8", ">c8", ">c16")


@dataclass(frozen=True)
class Tag:
    """Something that is said about one sample of a stream. offset: the sample's absolute number."""

    offset: int
    key: str
    value: PmtValue


@dataclass(frozen=True)
class Message:
    """offset: absolute number of the first of the samples, complex64 (n,)."""

    offset: int
    tags: tuple[Tag, ...]
    samples: NDArray[np.complex64]


class WireError(HardwareError):
    """Bytes that no ZeroMQ block of GNU Radio with tags has sent."""


def encode(offset: int, samples: NDArray[np.complex64], tags: Sequence[tuple[int, str, int]] = ()) -> bytes:
    """A message with samples (n,), complex64 and contiguous. tags: (sample number, key, whole number >= 0)."""
    parts = [_HEADER.pack(MAGIC, VERSION, offset, len(tags))]
    for position, key, number in tags:
        name = key.encode()
        parts.append(_OFFSET.pack(position) + struct.pack(">BH", _SYMBOL, len(name)) + name)
        parts.append(struct.pack(">BQB", _UINT64, number, _FALSE))
    return b"".join([*parts, samples.view(np.uint8).data])


def decode(message: bytes) -> Message:
    """`WireError` for anything else than a message."""
    try:
        magic, version, offset, count = _HEADER.unpack_from(message)
        if (magic, version) != (MAGIC, VERSION):
            raise WireError("samples came without GNU Radio's tag header: let its ZeroMQ sink pass tags")
        place, tags = _HEADER.size, []
        for _ in range(min(count, len(message))):
            (position,) = _OFFSET.unpack_from(message, place)
            key, place = _pmt(message, place + _OFFSET.size)
            value, place = _pmt(message, place)
            _, place = _pmt(message, place)
            tags.append(Tag(position, str(key), value))
    except (struct.error, IndexError, ValueError, TypeError, RecursionError) as error:
        raise WireError(f"a message of {len(message)} bytes is cut short or damaged: {error}") from error
    if (len(message) - place) % _SAMPLE_BYTES:
        raise WireError(f"{len(message) - place} bytes of samples came: expected a multiple of {_SAMPLE_BYTES}")
    # A copy: the header's length is odd, and what is not aligned is slow.
    return Message(offset, tuple(tags), np.frombuffer(message, np.complex64, offset=place).copy())


def _pmt(data: bytes, at: int) -> tuple[PmtValue, int]:
    """The value that begins at byte `at`, and where the next one does."""
    kind = data[at]
    at += 1
    if kind in (_TRUE, _FALSE, _NULL):
        return {_TRUE: True, _FALSE: False, _NULL: None}[kind], at
    if kind == _SYMBOL:
        (length,) = struct.unpack_from(">H", data, at)
        end = at + 2 + length
        return data[at + 2 : end].decode(), end
    if kind in _NUMBERS:
        form = _NUMBERS[kind]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    if kind == _COMPLEX:
        return complex(*struct.unpack_from(">dd", data, at)), at + 16
    if kind in (_PAIR, _DICT):
        first, at = _pmt(data, at)
        second, at = _pmt(data, at)
        if kind == _PAIR:
            return (first, second), at
        if not isinstance(first, tuple) or len(first) != 2:
            raise WireError("a dictionary in a tag has something else than pairs")
        rest = second if isinstance(second, dict) else {}
        return {first[0]: first[1], **rest}, at
    if kind in (_VECTOR, _TUPLE):
        (count,) = struct.unpack_from(">I", data, at)
        at += 4
        values: list[PmtValue] = []
        for _ in range(min(count, len(data))):
            value, at = _pmt(data, at)
            values.append(value)
        return tuple(values), at
    if kind == _UNIFORM:
        subtype, count, padding = struct.unpack_from(">BIB", data, at)
        at += 6 + padding
        numbers = np.dtype(_UNIFORM_TYPES[subtype])
        end = at + count * numbers.itemsize
        return tuple(np.frombuffer(data[at:end], numbers).tolist()), end
    raise WireError(f"a tag has a value of type {kind:#04x}, which is not known here")
