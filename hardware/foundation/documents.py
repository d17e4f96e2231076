"""The one reader of each format of text that files come in, TOML and JSON. Bounded, whoever wrote the file.

A name may lead to a pipe that never answers, to a device without an end, or to tables that nest without one. Nothing
here waits, and nothing reads more than it was allowed to. Whatever is wrong with a file is a `DocumentError`, which is
a ValueError too; what it means is for the caller to say. Arrays are in `hardware.foundation.arrays`.
"""

import json
import os
import stat
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from phy.errors import AirdpError

MOST_TEXT_BYTES = 64 << 20
MOST_LINES_BYTES = 1 << 30
"""Of a file with a line for each uplink."""
DEEPEST = 32
"""Tables within tables; airdp's own files have six."""
_MOST_BITS = 256


class DocumentError(AirdpError, ValueError):
    """A file that cannot be read as what it should be."""


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that no file can have is not one."""
    try:
        return path.is_file()
    except OSError:
        return False


def open_regular(path: Path) -> BinaryIO:
    """The file for reading. `DocumentError` where it is no regular file, OSError where it cannot be opened."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DocumentError("it is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_bounded(path: Path, most_bytes: int = MOST_TEXT_BYTES) -> bytes:
    """The whole content. Raises `DocumentError` where there is more of it than that, or OSError."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size <= most_bytes:
            content = file.read(most_bytes + 1)
            if len(content) <= most_bytes:
                return content
    raise DocumentError(f"it has more than {most_bytes} bytes")


def read_toml(path: Path, most_bytes: int = MOST_TEXT_BYTES) -> dict[str, Any]:
    """The tables of a TOML file. Raises `DocumentError`, or OSError where there is no such file."""
    return parse_toml(_text(read_bounded(path, most_bytes)))


def parse_toml(text: str) -> dict[str, Any]:
    """The same of its text."""
    try:
        data = tomllib.loads(text)
    except RecursionError as error:
        raise DocumentError(f"its tables are nested more than {DEEPEST} deep") from error
    except DocumentError:
        raise
    # Beside TOMLDecodeError, what Python says to integers of thousands of digits.
    except ValueError as error:
        raise DocumentError(_reason(error)) from error
    _check(data)
    return data


def read_json(path: Path, most_bytes: int = MOST_TEXT_BYTES) -> Any:
    """The value in a JSON file. Raises `DocumentError`, or OSError where there is no such file."""
    return parse_json(read_bounded(path, most_bytes))


def parse_json(content: bytes | str, *, unique: bool = False) -> Any:
    """The same of its content. unique: refuse a key that is there twice."""
    if len(content) > MOST_TEXT_BYTES:
        raise DocumentError(f"it has {len(content)} bytes: expected {MOST_TEXT_BYTES} at most")
    try:
        value = json.loads(
            content if isinstance(content, str) else _text(content),
            object_pairs_hook=_unique if unique else None,
        )
    except RecursionError as error:
        raise DocumentError(f"its values are nested more than {DEEPEST} deep") from error
    except DocumentError:
        raise
    except ValueError as error:
        raise DocumentError(_reason(error)) from error
    _check(value)
    return value


def _reason(error: ValueError) -> str:
    """In words for who wrote the file: Python's to so long an integer are for programmers."""
    said = str(error)
    return "an integer in it has thousands of digits" if "set_int_max_str_digits" in said else said


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DocumentError(f"it is not UTF-8 text: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        raise DocumentError(f"the key '{next(name for name in names if names.count(name) > 1)}' is there twice")
    return made


def _check(value: Any) -> None:
    """Not too deep for whoever walks through it, and no integer that no float can hold; seeds have 128 bits at most."""
    level = [value]
    for _ in range(DEEPEST):
        level = [part for one in level for part in _parts(one)]
        if not level:
            return
    raise DocumentError(f"its values are nested more than {DEEPEST} deep")


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, int) and abs(value) >= 1 << _MOST_BITS:
        raise DocumentError(f"the integer {str(value)[:20]}… has more than {_MOST_BITS} bits")
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()
