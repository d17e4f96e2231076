"""Noise as it was measured in each attempt, with its interval and its verdict."""

from collections.abc import Mapping
from typing import Any

from fl.dashboard.numbers import inner, interval, number, text
from fl.dashboard.tail import Tail
from fl.run.folder import RunFolder

MOST_LINES = 2000


class Noise:
    """lines: of the last attempts, JSON-ready. version: grows with each change."""

    def __init__(self, folder: RunFolder) -> None:
        self._tail = Tail(folder.path / "noise.jsonl")
        self.lines: list[dict[str, Any]] = []
        self.version = 0

    def update(self) -> None:
        """Read on."""
        found = self._tail.read()
        if found:
            self.lines = [*self.lines, *map(_described, found)][-MOST_LINES:]
            self.version += 1


def _described(line: Mapping[str, Any]) -> dict[str, Any]:
    silence, payload = line.get("silence"), line.get("payload")
    noise = inner(silence, "noise")
    failed = [part for part in (silence, payload) if inner(part, "error") is not None]
    return {
        "uplink": number(line.get("uplink")),
        "attempt": number(line.get("attempt")),
        "noise_var_real": number(inner(noise, "noise_var_real")),
        "ci": interval(inner(noise, "ci")),
        "confidence": number(inner(noise, "confidence")),
        "bound_var_real": number(inner(silence, "sigma", "noise_var_real")),
        "source": text(inner(silence, "sigma", "source")),
        "reason": text(inner(silence, "sigma", "reason")),
        "passed": inner(silence, "diagnostics", "passed") is True,
        "verdict": text(inner(silence, "diagnostics", "verdict")),
        "with_jammer_var_real": number(inner(payload, "margins", "noise_var_real")),
        "with_jammer_ci": interval(inner(payload, "margins", "ci")),
        "error": text(inner(failed[0], "error", "text")) or "failed" if failed else "",
    }
