"""Sections of a TOML file as pydantic models, and what is wrong with one in words that name the key.

Used for lab files here and for run configs above: a misspelt key or choice is answered with the nearest valid one.
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

_LONGEST_SHOWN = 80
"""Characters of a value in a message."""


class Section(BaseModel):
    """A section of a file: frozen, without unknown keys, without silent conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def nearest(given: str, valid: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing where no valid name is near."""
    names = list(valid)
    close = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    close = close or difflib.get_close_matches(given.lower(), names, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""


def choice(kind: type[StrEnum]) -> BeforeValidator:
    """Let a TOML string stand for an enum member; pydantic's strict mode would refuse it."""

    def convert(value: object) -> object:
        names = [member.value for member in kind]
        if isinstance(value, str) and not isinstance(value, kind):
            if value not in names:
                raise ValueError(f"'{_shortened(value)}' is not one of {', '.join(names)}{nearest(value, names)}")
            return kind(value)
        return value

    return BeforeValidator(convert)


def as_tuple(value: object) -> object:
    """TOML has lists where settings have tuples."""
    return tuple(value) if isinstance(value, list) else value


Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Pair = Annotated[tuple[float, float], BeforeValidator(as_tuple)]


def explain(error: ValidationError, model: type[BaseModel] | None, data: Any, most: int | None = None) -> str:
    """Every problem in one line. `data` is what was validated: an entry of a list is called by its `name`.

    A key that takes one of several types has a problem for each; they are joined into one. model: for what is valid in
    place of an unknown key; None says nothing about that. most: keys to name, of more only the number is given.
    """
    messages: dict[str, list[str]] = {}
    for problem in error.errors():
        key, message = _explain(problem, model, data)
        messages.setdefault(key, []).append(message)
    lines = [f"{key}: {' or '.join(said)}" if key else " or ".join(said) for key, said in messages.items()]
    if most is not None and len(lines) > most:
        lines[most:] = [f"and {len(lines) - most} more"]
    return "; ".join(lines)


def _explain(problem: Mapping[str, Any], model: type[BaseModel] | None, data: Any) -> tuple[str, str]:
    """The key, empty where the message names it, and the message."""
    place = problem["loc"]
    # The second is what a dataclass calls it.
    if problem["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        fields = [] if model is None else _fields(model, [str(part) for part in place[:-1]])
        hint = nearest(str(place[-1]), fields) or (f"; valid here: {', '.join(fields)}" if fields else "")
        return "", f"unknown key '{_key(place, data)}'{hint}"
    if problem["type"] == "missing":
        last = place[-1] + 1 if isinstance(place[-1], int) else place[-1]
        return "", f"key '{_key(place[:-1], data, str(last))}' is missing"
    return _key(place, data), _said(problem["type"], problem["msg"].removeprefix("Value error, "), problem.get("input"))


def _said(kind: str, message: str, given: Any) -> str:
    """The message with the value where it does not have it, in words of TOML."""
    if kind in {"model_type", "dataclass_type"}:
        message = "expected a section with keys of its own"
    elif isinstance(given, float) and math.isnan(given):
        message = "expected a finite number"
    elif kind == "list_type" and isinstance(given, str):
        return f'expected a list, such as ["{_shortened(given)}"]'
    named = isinstance(given, str) and repr(given) in message
    plain = isinstance(given, str | int | float) and not named
    return message + (f" (given {_shortened(repr(given))})" if plain else "")


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _key(place: Iterable[str | int], data: Any, last: str = "") -> str:
    """Dotted key; the index of a list's entry gives way to the entry's name.

    Parts that are not in `data` are pydantic's names for the tried members of a union, and left out.
    """
    parts = []
    for part in place:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            continue
        if isinstance(part, int):
            named = isinstance(data, Mapping) and isinstance(data.get("name"), str)
            parts.append(data["name"] if named else str(part + 1))
        else:
            parts.append(part)
    return ".".join([*parts, last] if last else parts)


def _fields(model: type[BaseModel], place: Iterable[str]) -> list[str]:
    """Keys of the section at `place`; parts that are no field are indices or names of entries."""
    for name in place:
        annotation = model.model_fields[name].annotation if name in model.model_fields else None
        candidates = [annotation, *get_args(annotation)]
        model = next((kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel)), model)
    return list(model.model_fields)
