"""Values of attributes on the wire: one by itself, or all of a device or channel in one message.

In such a message each value has its length before it, four bytes, highest first and signed, and is filled up to a
multiple of four; what cannot be read has a negative error number for its length, and no value. That is how libiio's
`iio_*_attr_read_all` and `_write_all` have it (`local_read_all_dev_attrs` of its local backend).
"""

import struct
from collections.abc import Iterator, Sequence

from hardware.virtual.iiod.attributes import Attribute
from hardware.virtual.iiod.refusal import RefusalError, invalid

_LENGTH = struct.Struct(">i")


def value_of(attribute: Attribute) -> bytes:
    """What reading gives: the kernel's line feed arrives as a NUL, and counts."""
    return attribute.get().encode() + b"\0"


def text_of(value: bytes | bytearray) -> str:
    """What was written: up to the first NUL."""
    return value.split(b"\0", 1)[0].decode("ascii", "replace")


def all_values(attributes: Sequence[Attribute]) -> bytes:
    """The message for reading all of them, in their order."""
    return b"".join(_entry(attribute) for attribute in attributes)


def _entry(attribute: Attribute) -> bytes:
    try:
        value = value_of(attribute)
    except RefusalError as refusal:
        return _LENGTH.pack(-refusal.code)
    return _LENGTH.pack(len(value)) + value + bytes(-len(value) % 4)


def write_all(attributes: Sequence[Attribute], message: bytes) -> None:
    """Write the values of a message, in the order of the attributes; an empty one leaves its attribute alone.

    `RefusalError` for the first value that is refused: those before it have been written, as on a real radio.
    """
    for attribute, value in zip(attributes, list(_values(message, len(attributes))), strict=True):
        if value:
            attribute.set(text_of(value))


def _values(message: bytes, count: int) -> Iterator[bytes]:
    place = 0
    for _ in range(count):
        if len(message) - place < _LENGTH.size:
            raise invalid(f"a message of {len(message)} bytes does not have {count} values")
        (length,) = _LENGTH.unpack_from(message, place)
        place += _LENGTH.size
        if length > len(message) - place:
            raise invalid(f"a value of {length} bytes in the {len(message) - place} that are left")
        yield message[place : place + max(length, 0)]
        place += max(length, 0) + -max(length, 0) % 4
