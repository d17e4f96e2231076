"""Inputs that are nearly right: bytes and values of a real file changed at random, from a seed."""

import copy
import random
from typing import Any

TOKENS = [
    b"[" * 3000, b'{"a":' * 3000, b"9" * 5000, b"1" + b"0" * 400, b"1e400", b"-1e400", b"1e300", b"-1", b"0", b"NaN",
    b"Infinity", b"nan", b"inf", b"null", b"true", b'""', b'"x"', b"[]", b"{}", b"\x00", b"\xff\xfe", b"\n", b"=",
    b"\"", b"'''", b"1e17", b"18446744073709551616", b"2026-01-01", b"0x7f", b"\xf0\x9f\x92\xa9", b"../..",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**17, 10**400, 1e300, -1e300, 1e-300, 0.5, "", "x", "inf",
    "../..", "\x00", "x" * 10_000, [], {}, [[]], [None], {"a": 1}, [1] * 1000,
]  # fmt: skip


def mutate_bytes(content: bytes, draw: random.Random) -> bytes:
    """One to four changes: bytes flipped, cut, doubled, moved, or odd tokens in their place."""
    for _ in range(draw.randint(1, 4)):
        start = draw.randint(0, len(content))
        stop = min(len(content), start + draw.choice([0, 1, 2, 8, 64, 1024]))
        kind = draw.randrange(6)
        if kind == 0 and content:
            place = draw.randrange(len(content))
            content = content[:place] + bytes([content[place] ^ (1 << draw.randrange(8))]) + content[place + 1 :]
        elif kind == 1:
            content = content[:start] + content[stop:]
        elif kind == 2:
            content = content[:stop] + content[start:stop] + content[stop:]
        elif kind == 3:
            content = content[:start]
        elif kind == 4:
            content = content[:start] + bytes(draw.randrange(256) for _ in range(stop - start)) + content[stop:]
        else:
            content = content[:start] + draw.choice(TOKENS) + content[stop:]
    return content


def mutate_value(value: Any, draw: random.Random) -> Any:
    """One to three values of a nested structure replaced, removed or added."""
    value = copy.deepcopy(value)
    for _ in range(draw.randint(1, 3)):
        places = list(_places(value))
        if not places:
            return draw.choice(VALUES)
        holder, key = draw.choice(places)
        kind = draw.randrange(6)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[draw.choice(["", "x", "name", "uplink", "kind"])] = copy.deepcopy(draw.choice(VALUES))
        else:
            holder[key] = copy.deepcopy(draw.choice(VALUES))
    return value


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(items):
        yield value, key
        yield from _places(part)
