"""Nested tables, as TOML has them, compared key by key."""

from collections.abc import Mapping
from typing import Any

_NOTHING = object()


def flat(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Every value by its dotted key. Of a list of tables that have a name, each is called by it. Empty tables stay."""
    pairs: dict[str, Any] = {}
    for key, value in tables.items():
        inner = _named(value) if isinstance(value, list) else value
        if isinstance(inner, Mapping) and inner:
            pairs.update({f"{key}.{name}": part for name, part in flat(inner).items()})
        else:
            pairs[key] = inner
    return pairs


def _named(entries: list[Any]) -> Mapping[str, Any] | list[Any]:
    names = [entry["name"] for entry in entries if isinstance(entry, Mapping) and isinstance(entry.get("name"), str)]
    if not entries or len(set(names)) < len(entries):
        return entries
    return dict(zip(names, entries, strict=True))


def differing_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Dotted keys with another value in `new`, or in one of the two only; in the order of `old`, then of `new`."""
    before, after = flat(old), flat(new)
    return [key for key in {**before, **after} if before.get(key, _NOTHING) != after.get(key, _NOTHING)]
