"""Frozen dataclasses to JSON values and back, strictly.

Written by hand because complex numbers go as [re, im], and because a record that privacy rests on is refused, with the
path of the key, for what general libraries let pass: an unknown key, `true` for `1`, NaN, a time without zone.
"""

import dataclasses
import math
import types
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from calibration.errors import RecordError
from phy.errors import AirdpError

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
T = TypeVar("T")


def encode(value: object) -> dict[str, JsonValue]:
    """The fields of a dataclass, JSON-ready; raises `RecordError` for numbers that JSON does not have."""
    return cast("dict[str, JsonValue]", _encode(value, type(value).__name__))


def _encode(value: object, where: str) -> JsonValue:
    match value:
        case np.generic():
            return _encode(value.item(), where)
        case Enum():
            return _encode(value.value, where)
        case None | bool() | int() | str():
            return value
        case float():
            return _finite(float(value), where)
        case complex():
            return [_finite(value.real, where), _finite(value.imag, where)]
        case datetime():
            return value.isoformat()
        case tuple() | list():
            return [_encode(item, f"{where}[{number}]") for number, item in enumerate(value)]
        case dict():
            return {str(key): _encode(item, f"{where}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {name: _encode(getattr(value, name), f"{where}.{name}") for name in fields}
    raise RecordError(f"{where} is a {type(value).__name__}, which has no JSON form")


def _finite(value: float, where: str) -> float:
    if not math.isfinite(value):
        raise RecordError(f"{where} is {value}: expected a finite number")
    return value


def decode(kind: type[T], value: object, where: str) -> T:
    """`value`, read from JSON, as a `kind`; raises `RecordError` that names the key at fault, starting with `where`."""
    return cast("T", _decode(kind, value, where))


def _decode(kind: Any, value: object, where: str) -> object:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        if value is None and type(None) in arguments:
            return None
        return _decode(next(option for option in arguments if option is not type(None)), value, where)
    if origin is tuple:
        return _decode_tuple(arguments, value, where)
    if origin is dict:
        items = _expect(dict, value, where, "an object")
        return {key: _decode(arguments[1], item, f"{where}.{key}") for key, item in items.items()}
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(cast("type[Any]", kind), value, where)
    return _decode_scalar(kind, value, where)


def _decode_tuple(arguments: tuple[Any, ...], value: object, where: str) -> tuple[object, ...]:
    items = _expect(list, value, where, "a list")
    kinds = (arguments[0],) * len(items) if arguments[1:] == (Ellipsis,) else arguments
    if len(items) != len(kinds):
        raise RecordError(f"{where} has {len(items)} entries: expected {len(kinds)}")
    return tuple(
        _decode(kind, item, f"{where}[{number}]") for number, (kind, item) in enumerate(zip(kinds, items, strict=True))
    )


def _decode_dataclass(kind: type[Any], value: object, where: str) -> object:
    items = _expect(dict, value, where, "an object")
    names = {field.name for field in dataclasses.fields(kind) if field.init}
    for what, keys in (("lacks the key", names - items.keys()), ("has the unknown key", items.keys() - names)):
        if keys:
            raise RecordError(f"{where} {what} '{min(keys)}': expected {', '.join(sorted(names))}")
    hints = get_type_hints(kind)
    made = {name: _decode(hints[name], items[name], f"{where}.{name}") for name in names}
    try:
        return kind(**made)
    except RecordError:
        raise
    except (AirdpError, ValueError, TypeError) as error:
        raise RecordError(f"{where}: {error}") from error


def _decode_scalar(kind: Any, value: object, where: str) -> object:
    if kind is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise RecordError(f"{where} is {value!r}: expected a number")
        return _finite(float(value), where)
    if kind is complex:
        real, imaginary = _decode_tuple((float, float), value, where)
        return complex(cast("float", real), cast("float", imaginary))
    if kind is datetime:
        return _decode_time(_expect(str, value, where, "a time"), where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        choices = [member.value for member in kind]
        if value not in choices:
            raise RecordError(f"{where} is {value!r}: expected one of {', '.join(map(str, choices))}")
        return kind(value)
    if kind is int and isinstance(value, bool):
        raise RecordError(f"{where} is {value!r}: expected a whole number")
    names = {int: "a whole number", bool: "true or false", str: "a text"}
    return _expect(kind, value, where, names.get(kind, str(kind)))


def _decode_time(text: str, where: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise RecordError(f"{where} is {text!r}: expected a time such as 2025-01-31T12:00:00+00:00") from error
    if time.tzinfo is None:
        raise RecordError(f"{where} is {text!r}, a time without zone: expected one such as 2025-01-31T12:00:00+00:00")
    return time


def _expect(kind: type[T], value: object, where: str, name: str) -> T:
    if not isinstance(value, kind):
        raise RecordError(f"{where} is {_short(value)}: expected {name}")
    return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
