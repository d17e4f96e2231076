"""Numbers and texts out of JSON that somebody else may have written, ready to be sent as JSON."""

import math
from collections.abc import Mapping
from typing import Any

_WORDS = ("inf", "-inf", "nan")
"""How a run writes the numbers that JSON has not."""
_MOST_TEXT = 2000


def number(value: Any) -> float | int | str | None:
    """A finite number as it is, another as its word, None for whatever is no number."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    if isinstance(value, int | float):
        try:
            real = float(value)
        except OverflowError:
            return "inf"
        return real if math.isfinite(real) else str(real)
    return value if isinstance(value, str) and value in _WORDS else None


def text(value: Any) -> str:
    """At most a few lines of it; what is no string is left out."""
    return value[:_MOST_TEXT] if isinstance(value, str) else ""


def inner(value: Any, *keys: str) -> Any:
    """value[key][key]..., None where it is not there."""
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def interval(value: Any) -> list[float | int | str | None] | None:
    """Two numbers, or None."""
    return [number(value[0]), number(value[1])] if isinstance(value, list) and len(value) == 2 else None
