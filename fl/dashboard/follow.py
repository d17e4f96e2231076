"""A run's folder, followed part by part."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fl.dashboard.happenings import Happenings
from fl.dashboard.learning import COLUMNS, DIAGNOSTICS, Learning
from fl.dashboard.noise import Noise
from fl.dashboard.numbers import number, text
from fl.dashboard.privacy import Privacy
from fl.dashboard.radio import Radio
from fl.dashboard.tail import parse_object
from fl.errors import ConfigError, RunFolderError
from fl.run.config import RunConfig, parse_config
from fl.run.folder import RunFolder
from hardware.foundation.documents import DocumentError, read_bounded, read_toml

WAITING, RUNNING, STOPPED, SILENT = "waiting for the run to begin", "running", "stopped", "no sign of life"
_QUIET_S = 120.0
"""Without a line of the log, a run may be dead."""
_MOST_BYTES = 16 << 20
ROWS_AT_ONCE = 2000
Sent = dict[str, int]
"""What a browser has: the version of each part, and rows of metrics."""


class Followed:
    """All that is known of one run. `update`, then `news` for each browser."""

    def __init__(self, folder: RunFolder, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder = folder
        self.learning, self.privacy, self.radio = Learning(folder), Privacy(folder, clock), Radio(folder)
        self.noise, self.happenings = Noise(folder), Happenings(folder)
        self._facts: dict[str, Any] | None = None
        self._problems: dict[str, str] = {}
        self._result: dict[str, Any] | None = None

    def update(self) -> None:
        """Look at every file. What cannot be read is named on the page, and the rest is shown."""
        if self._facts is None and self.folder.config_path.exists():
            self._try("config.toml", self._read_config)
        self._try("log.jsonl", self.happenings.update)
        self._try("metrics.jsonl", self.learning.update)
        self._try("noise.jsonl", self.noise.update)
        self._try("ledger.jsonl", lambda: self.privacy.update(running=self.status == RUNNING))
        self._try("radio/", lambda: self.radio.update(self._uplink, self.learning.generation))
        self._try("result.json", self._read_result)

    def _try(self, name: str, read: Callable[[], None]) -> None:
        try:
            read()
        except (RunFolderError, DocumentError, OSError) as error:
            self._problems[name] = str(error)
        else:
            self._problems.pop(name, None)

    def _read_config(self) -> None:
        path = self.folder.config_path
        try:
            config = parse_config(read_toml(path, _MOST_BYTES), origin=str(path))
        except (DocumentError, ConfigError) as error:
            raise RunFolderError(f"{path} is not the config of a run: {error}") from error
        self._facts = _facts(config)

    def _read_result(self) -> None:
        try:
            self._result = parse_object(read_bounded(self.folder.path / "result.json", _MOST_BYTES))
        except FileNotFoundError:
            self._result = None

    @property
    def _uplink(self) -> int | None:
        """The last one that is over; of a loop of somebody's own, which keeps no metrics, as its log says."""
        return self.happenings.done if self.learning.uplink is None else self.learning.uplink

    @property
    def status(self) -> str:
        """Of the run, as far as its folder tells."""
        if self._result is not None:
            return text(self._result.get("status")) or "finished"
        if self._facts is None:
            return WAITING
        if self.happenings.ended is not None:
            return STOPPED
        return SILENT if self.quiet_s > _QUIET_S else RUNNING

    @property
    def quiet_s(self) -> float:
        """Since the last line of the log; infinite where there is none."""
        try:
            return (datetime.now(UTC) - datetime.fromisoformat(self.happenings.last_time)).total_seconds()
        except (ValueError, TypeError):
            return float("inf")

    def news(self, sent: Sent) -> dict[str, Any]:
        """What a browser that has `sent` does not have yet; `sent` is brought up to date."""
        frame: dict[str, Any] = {"now": datetime.now(UTC).isoformat(timespec="milliseconds")}
        status = {
            "folder": self.folder.path.resolve().name,
            "status": self.status,
            "state": self.happenings.state,
            "last_time": self.happenings.last_time,
            "problems": [f"{name}: {why}" for name, why in sorted(self._problems.items())],
            "damaged_lines": self.learning.damaged,
            "done": self._uplink,
            "accuracy": number((self._result or {}).get("accuracy")),
            "score": text(self.learning.last.get("score") or (self._result or {}).get("score") or "accuracy"),
            "loss": number((self._result or {}).get("loss")),
        }
        frame["run"] = {**(self._facts or {}), **status}
        self._add_rows(frame, sent)
        for name, version, make in (
            ("privacy", self.privacy.version, lambda: self.privacy.said),
            ("noise", self.noise.version, lambda: self.noise.lines),
            ("radio", self.radio.version, lambda: self.radio.said),
            ("nodes", self.happenings.version, lambda: list(self.happenings.nodes.values())),
            ("log", self.happenings.log_version, lambda: self.happenings.lines),
        ):
            if version != sent.get(name, 0):
                frame[name], sent[name] = make(), version
        self._add_waterfalls(frame, sent)
        return frame

    def _add_rows(self, frame: dict[str, Any], sent: Sent) -> None:
        rows, generation = self.learning.rows, self.learning.generation
        begin = sent.get("rows", 0) if sent.get("generation") == generation else 0
        fresh = rows[begin : begin + ROWS_AT_ONCE]
        if fresh or sent.get("generation") != generation:
            frame["metrics"] = {"columns": [*COLUMNS, *DIAGNOSTICS], "from": begin, "rows": fresh}
        sent["rows"], sent["generation"] = begin + len(fresh), generation

    def _add_waterfalls(self, frame: dict[str, Any], sent: Sent) -> None:
        last = sent.get("waterfall", 0)
        if self.radio.waterfalls and last > max(self.radio.waterfalls):
            last = 0
        fresh = {uplink: rows for uplink, rows in self.radio.waterfalls.items() if uplink > last}
        if fresh:
            frame["waterfalls"] = [{"uplink": uplink, **rows} for uplink, rows in fresh.items()]
            sent["waterfall"] = max(fresh)


def _facts(config: RunConfig) -> dict[str, Any]:
    """What does not change, in the config's own words."""
    return {
        "name": text(config.name),
        "description": text(config.description),
        "kind": config.uplink.kind.value,
        "uplinks": config.last_uplink,
        "algorithm": str(config.algorithm.name),
        "label": config.label.value,
        "accountant": config.privacy.accountant.value,
        "target_epsilon": config.privacy.epsilon,
        "budget_epsilon": config.privacy.budget_epsilon,
        "jammer": config.jammer.role.value,
        "gate_rad": config.radio.max_phase_error_rad,
        "lab": text(str(config.radio.lab)) if config.uplink.kind.value == "radio" else "",
    }
