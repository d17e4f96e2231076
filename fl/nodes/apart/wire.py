"""Messages as bytes: MessagePack, of classes that are known, with fields of the types that they declare.

A value is what its class says or it is refused (`WireError`): nothing that comes from a link is believed to have the
right shape. Floats, complex numbers and arrays come out as they went in, bit for bit.
"""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgpack
import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError

PROTOCOL = 3
"""Version of all that is said over a link: nodes of another one are refused."""
LARGEST_BYTES = 1 << 27
"""Of one message: a model of 33 million coordinates."""
_ARRAY, _COMPLEX = 1, 2
_DTYPES = ("<c8", "<c16", "<f4", "<f8", "<i8")
_DEEPEST = 16
_AS_THEY_ARE = frozenset({int, float, str, bool, bytes, types.NoneType})


class WireError(ConfigError):
    """Bytes that are no message."""


def pack(value: Any) -> bytes:
    """`value` as bytes."""
    packed: bytes = msgpack.packb(_plain(value))
    return packed


class Prepacked:
    """A value that was packed before: one that goes to many is made into bytes once."""

    def __init__(self, value: Any) -> None:
        self.content = pack(value)


def pack_around(value: Any, name: str, part: Prepacked) -> bytes:
    """As `pack` of a dataclass whose field `name` has the value that `part` was made of."""
    others = {key: one for key, one in _tagged(value).items() if key != name}
    packer = msgpack.Packer()
    head: bytes = packer.pack_map_header(len(others) + 1)
    parts: list[bytes] = [head]
    for key, one in others.items():
        parts += [packer.pack(key), packer.pack(_plain(one))]
    return b"".join([*parts, packer.pack(name), part.content])


def unpack(content: bytes, kinds: Mapping[str, type]) -> Any:
    """The value behind `content`, an instance of one of `kinds` (by class name) or made of plain ones."""
    try:
        plain = msgpack.unpackb(
            content,
            ext_hook=_extended,
            max_str_len=1 << 20,
            max_array_len=1 << 20,
            max_map_len=1 << 16,
            max_bin_len=LARGEST_BYTES,
            max_ext_len=LARGEST_BYTES,
        )
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError, MemoryError) as error:
        raise WireError(f"not a message: {error}") from error
    return _built(plain, kinds, 0)


def _plain(value: Any) -> Any:
    # Most are as they should be, and are not asked what else they could be.
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, complex):
        return msgpack.ExtType(_COMPLEX, np.array([value], "<c16").tobytes())
    if isinstance(value, np.ndarray):
        return _plain_array(value)
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if is_dataclass(value):
        return {name: _plain(part) for name, part in _tagged(value).items()}
    return value


def _tagged(value: Any) -> dict[str, Any]:
    return {"is": type(value).__name__, **{field.name: getattr(value, field.name) for field in fields(value)}}


def _plain_array(value: NDArray[Any]) -> Any:
    portable = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
    head = msgpack.packb([portable.dtype.str, list(portable.shape)])
    return msgpack.ExtType(_ARRAY, len(head).to_bytes(2, "big") + head + portable.tobytes())


def _extended(code: int, content: bytes) -> Any:
    if code == _COMPLEX and len(content) == 16:
        return complex(np.frombuffer(content, "<c16")[0])
    if code != _ARRAY or len(content) < 2:
        raise ValueError(f"an extension of the type {code}")
    end = 2 + int.from_bytes(content[:2], "big")
    dtype, shape = msgpack.unpackb(content[2:end])
    if dtype not in _DTYPES or not all(type(size) is int and size >= 0 for size in shape) or len(shape) > 3:
        raise ValueError(f"an array of {dtype!r} and shape {shape!r}")
    return np.frombuffer(content, dtype, offset=end).reshape(shape)


def _built(value: Any, kinds: Mapping[str, type], depth: int) -> Any:
    if type(value) in _AS_THEY_ARE:
        return value
    if depth > _DEEPEST:
        raise WireError("a message that is nested too deeply")
    if isinstance(value, list):
        return tuple(_built(part, kinds, depth + 1) for part in value)
    if not isinstance(value, dict):
        return value
    if "is" not in value:
        return {key: _built(part, kinds, depth + 1) for key, part in value.items()}
    kind = kinds.get(str(value["is"]))
    if kind is None:
        raise WireError(f"a message '{value['is']}', which is not known here")
    parts = {str(key): _built(part, kinds, depth + 1) for key, part in value.items() if key != "is"}
    hints = _hints(kind)
    if parts.keys() != hints.keys():
        raise WireError(f"a message '{kind.__name__}' with other fields: {sorted(parts.keys() ^ hints.keys())}")
    try:
        made = {name: _conforming(part, hints[name], f"{kind.__name__}.{name}") for name, part in parts.items()}
        return kind(**made)
    except WireError:
        raise
    except Exception as error:  # whatever a class has against its values, they are no message
        raise WireError(f"a message '{kind.__name__}' with values that it cannot have: {error}") from error


@cache
def _hints(kind: type) -> dict[str, Any]:
    declared = get_type_hints(kind)
    return {field.name: declared[field.name] for field in fields(kind)}


def _conforming(value: Any, hint: Any, where: str) -> Any:
    """`value` as the type that is declared for it, or `WireError`."""
    if hint is Any or (hint is not float and type(value) is hint):
        return value
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        for option in args:
            try:
                return _conforming(value, option, where)
            except WireError:
                continue
        raise WireError(f"{where} is of the type {type(value).__name__}")
    if origin is np.ndarray:
        if isinstance(value, np.ndarray) and value.dtype == np.dtype(get_args(args[1])[0]):
            return value
    elif origin is tuple:
        if isinstance(value, tuple):
            each = [args[0]] * len(value) if len(args) == 2 and args[1] is ... else list(args)
            if len(each) == len(value):
                return tuple(_conforming(part, one, where) for part, one in zip(value, each, strict=True))
    elif origin is not None and issubclass(origin, Mapping):
        if isinstance(value, dict):
            return {_conforming(k, args[0], where): _conforming(v, args[1], where) for k, v in value.items()}
    elif hint is float:
        if type(value) in (int, float):
            return float(value)
    elif isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    elif isinstance(hint, type) and type(value) is hint:
        return value
    raise WireError(f"{where} is of the type {type(value).__name__}")
