"""Metrics of a run, a row per uplink."""

from collections.abc import Mapping
from typing import Any

from fl.dashboard.numbers import inner, number
from fl.dashboard.tail import Tail
from fl.inspect.view import CAUSES
from fl.run.folder import RunFolder

COLUMNS = (
    "uplink",
    "rounds",
    "accuracy",
    "loss",
    "test_loss",
    "epsilon",
    "sigma",
    "alpha_u",
    "alpha_cj",
    "backoff_max",
    "backed_off",
    "clipped",
    "postponed",
    "weight_received",
    "seconds",
)
DIAGNOSTICS = ("nmse_db", "thermal_db", *(f"nmse_{cause}" for cause in CAUSES))
MOST_ROWS = 100_000


class Learning:
    """rows: values of `COLUMNS` and `DIAGNOSTICS`, in this order. generation: grows when rows were taken back."""

    def __init__(self, folder: RunFolder) -> None:
        self._tail = Tail(folder.metrics_path)
        self.rows: list[list[Any]] = []
        self.last: Mapping[str, Any] = {}
        self.generation = 0

    def update(self) -> None:
        """Read on."""
        found = self._tail.read()
        if self._tail.generation != self.generation:
            # A run that was resumed has taken back what it will do again.
            self.generation, self.rows, self.last = self._tail.generation, [], {}
        for row in found:
            if isinstance(number(row.get("uplink")), int) and len(self.rows) < MOST_ROWS:
                self.rows.append(
                    [number(row.get(name)) for name in COLUMNS]
                    + [number(inner(row, "diagnostics", name)) for name in DIAGNOSTICS]
                )
                self.last = row

    @property
    def uplink(self) -> int | None:
        """The last one that has finished."""
        return int(self.rows[-1][0]) if self.rows else None

    @property
    def damaged(self) -> int:
        """Lines that cannot be read."""
        return self._tail.damaged
