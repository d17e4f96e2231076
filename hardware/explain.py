"""What pydantic found wrong in a file, in words that name the key and, for a misspelt one, the nearest valid key."""

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError


def nearest(given: str, valid: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing where no valid name is near."""
    close = difflib.get_close_matches(given, list(valid), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""


def explain(error: ValidationError, model: type[BaseModel], data: Mapping[str, Any]) -> str:
    """Every problem in one line. `data` is what was validated: an entry of a list is called by its `name`."""
    return "; ".join(_explain(problem, model, data) for problem in error.errors())


def _explain(problem: Mapping[str, Any], model: type[BaseModel], data: Mapping[str, Any]) -> str:
    key = _key(problem["loc"], data)
    if problem["type"] == "extra_forbidden":
        fields = _fields(model, [str(part) for part in problem["loc"][:-1]])
        hint = nearest(str(problem["loc"][-1]), fields) or f"; valid here: {', '.join(fields)}"
        return f"unknown key '{key}'{hint}"
    if problem["type"] == "missing":
        return f"key '{key}' is missing"
    message = problem["msg"].removeprefix("Value error, ")
    given = problem.get("input")
    plain = isinstance(given, str | int | float) and not (isinstance(given, float) and math.isnan(given))
    return f"{key}: {message}" + (f" (given {given!r})" if plain else "")


def _key(place: Iterable[str | int], data: Any) -> str:
    """Dotted key; the index of a list's entry gives way to the entry's name."""
    parts = []
    for part in place:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            data = None
        if isinstance(part, int):
            named = isinstance(data, Mapping) and isinstance(data.get("name"), str)
            parts.append(data["name"] if named else str(part + 1))
        else:
            parts.append(part)
    return ".".join(parts)


def _fields(model: type[BaseModel], place: Iterable[str]) -> list[str]:
    """Keys of the section at `place`; parts that are no field are indices or names of entries."""
    for name in place:
        annotation = model.model_fields[name].annotation if name in model.model_fields else None
        candidates = [annotation, *get_args(annotation)]
        model = next((kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel)), model)
    return list(model.model_fields)
