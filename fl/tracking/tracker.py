"""The one hook between a run and experiment trackers.

Only public quantities go out unless more is asked for: what follows from the config, the ledger, the released model and
test data. Training loss, norms, counts and the error budget are computed from clients' data, and no epsilon covers them
(docs/privacy.md, limit 8).
"""

import importlib
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fl.errors import ConfigError
from fl.import_path import build

PUBLIC = frozenset({"rounds", "accuracy", "test_loss", "epsilon", "sigma", "alpha_u", "alpha_cj", "postponed"})
"""Of the metrics of an uplink. Accuracy and test loss are the released model's, on the test data."""
_SHIPPED = {
    "tensorboard": ("fl.tracking.tensorboard", "TensorBoard"),
    "mlflow": ("fl.tracking.mlflow", "Mlflow"),
    "wandb": ("fl.tracking.wandb", "WandbOffline"),
}
_NO_NUMBERS = frozenset({"uplink", "label", "score", "diagnostics", "jamming_client"})
SHIPPED = frozenset(_SHIPPED)
_LOG = logging.getLogger("airdp")


@dataclass(frozen=True)
class Tracked:
    """A run. settings: keys of its config, dotted, with what must be read with its epsilon among them."""

    name: str
    folder: Path
    settings: Mapping[str, str | int | float | bool]


@runtime_checkable
class Tracker(Protocol):
    """Made without arguments. What it raises in `start` ends the run before anything is sent; later, only itself."""

    def start(self, run: Tracked) -> None:
        """The run begins, or goes on: a tracker takes up what it has of this folder."""
        ...

    def uplink(self, number: int, metrics: Mapping[str, float]) -> None:
        """An uplink is over. Numbers are finite or infinite; epsilon's name holds its label."""
        ...

    def finish(self, status: str, result: Mapping[str, float]) -> None:
        """The run has ended: `status` is a word of its result, or says that it failed."""
        ...


class Tracking:
    """All trackers of a run. One that fails is left out from then on, with a warning."""

    def __init__(self, trackers: Mapping[str, Tracker], *, everything: bool) -> None:
        self._trackers, self._everything = dict(trackers), everything
        self._told = False

    def uplink(self, metrics: Mapping[str, Any]) -> None:
        """metrics: a line of metrics.jsonl, as numbers."""
        values = chosen(metrics, everything=self._everything)
        self._each(lambda tracker: tracker.uplink(int(metrics["uplink"]), values))

    def finish(self, status: str, result: Mapping[str, float]) -> None:
        """Tell all, once."""
        if not self._told:
            self._told = True
            self._each(lambda tracker: tracker.finish(status, result))

    def _each(self, tell: Any) -> None:
        for name, tracker in tuple(self._trackers.items()):
            try:
                tell(tracker)
            except Exception as error:  # Trackers talk to disks, servers and users' code: anything may fail.
                del self._trackers[name]
                _LOG.warning("the tracker '%s' is left out from now on: %s", name, error)


def chosen(metrics: Mapping[str, Any], *, everything: bool) -> dict[str, float]:
    """Numbers of a line of metrics that go out, by name."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        if name == "diagnostics" and everything:
            found.update({f"diagnostics/{cause}": float(part) for cause, part in value.items()})
        elif (name in PUBLIC or (everything and name not in _NO_NUMBERS)) and value is not None:
            found[f"epsilon/{metrics['label']}" if name == "epsilon" else name] = float(value)
    return {name: value for name, value in found.items() if not math.isnan(value)}


def flattened(tables: Mapping[str, Any], above: str = "") -> dict[str, str | int | float | bool]:
    """Dotted keys; lists and tables within lists as text."""
    found: dict[str, str | int | float | bool] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            found.update(flattened(value, f"{above}{key}."))
        else:
            found[above + key] = value if isinstance(value, str | int | float | bool) else str(value)
    return found


def make_trackers(names: Sequence[str]) -> dict[str, Tracker]:
    """By shipped name or import path; `AirdpError` where a package is missing. Nothing is written yet."""
    return {name: _shipped(name) if name in SHIPPED else _own(name) for name in names}


def _own(path: str) -> Tracker:
    made = build("tracking.to", path, {})
    if not isinstance(made, Tracker):
        raise ConfigError(
            f"tracking.to '{path}' made a {type(made).__name__}: expected start(run), uplink(number, metrics) and "
            "finish(status, result), as Tracker in fl/tracking/tracker.py has them"
        )
    return made


def _shipped(name: str) -> Tracker:
    module, kind = _SHIPPED[name]
    tracker: Tracker = getattr(importlib.import_module(module), kind)()
    return tracker


@contextmanager
def tracking(trackers: Mapping[str, Tracker], run: Tracked, *, everything: bool) -> Iterator[Tracking]:
    """Trackers, started; told that the run failed where the block does."""
    for name, tracker in trackers.items():
        try:
            tracker.start(run)
        except Exception as error:  # Users' code, and other people's packages.
            raise ConfigError(f"the tracker '{name}' cannot be started: {error}") from error
    told = Tracking(trackers, everything=everything)
    try:
        yield told
    finally:
        told.finish("failed", {})
