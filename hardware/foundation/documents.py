"""The one reader of each format that files come in: TOML, JSON, numpy archives. Bounded, whoever wrote the file.

Whatever is wrong with a file is a `DocumentError`, which is a ValueError too; what it means is for the caller to say.
"""

import json
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phy.errors import AirdpError

MOST_TEXT_BYTES = 64 << 20
MOST_ARRAY_BYTES = 4 << 30
DEEPEST = 32
"""Tables within tables; airdp's own files have six."""
# Arrays of zeros shrink by a thousand; what shrinks by more was made to.
_MOST_EXPANSION = 2000
_MOST_BITS = 256


class DocumentError(AirdpError, ValueError):
    """A file that cannot be read as what it should be."""


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that no file can have is not one."""
    try:
        return path.is_file()
    except OSError:
        return False


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises `DocumentError`, or OSError where there is no such file."""
    return parse_toml(_text(_bounded(path)))


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
        raise DocumentError(str(error)) from error
    _check(data)
    return data


def read_json(path: Path, *, unique: bool = False) -> Any:
    """The value in a JSON file. Raises `DocumentError`, or OSError where there is no such file."""
    return parse_json(_bounded(path), unique=unique)


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
        raise DocumentError(str(error)) from error
    _check(value)
    return value


def read_arrays(path: Path, names: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
    """These arrays of an .npz file, or all; none of them may hold objects. Raises `DocumentError`, or OSError."""
    # Opened here because numpy leaves its own handle open when the archive is damaged.
    with path.open("rb") as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                _check_sizes(archive)
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as file:
                return {name: np.asarray(file[name]) for name in (file.files if names is None else names)}
        except OSError:
            raise
        except Exception as error:  # A damaged archive makes zipfile, zlib and numpy raise nearly anything.
            raise DocumentError(str(error) or type(error).__name__) from error


def _check_sizes(archive: zipfile.ZipFile) -> None:
    for entry in archive.infolist():
        if entry.file_size > min(MOST_ARRAY_BYTES, (1 << 20) + _MOST_EXPANSION * entry.compress_size):
            raise DocumentError(f"'{entry.filename}' would have {entry.file_size} bytes")


def _bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MOST_TEXT_BYTES + 1)
    if len(content) > MOST_TEXT_BYTES:
        raise DocumentError(f"it has more than {MOST_TEXT_BYTES} bytes")
    return content


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
