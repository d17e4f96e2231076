"""What log.jsonl tells: where the uplink is, what each node has done last, and the lines of the log."""

from collections.abc import Mapping
from typing import Any

from fl.dashboard.numbers import inner, number, text
from fl.dashboard.tail import Tail
from fl.nodes.journal.log import NAME
from fl.run.folder import RunFolder
from hardware.foundation.documents import DocumentError, read_toml

MOST_LINES = 300
MOST_NODES = 1000
_MOST_LAB_BYTES = 1 << 20


class Happenings:
    """nodes: by name. lines: the last of the log, newest last. version, log_version: grow with each change of either.

    done: the last uplink that is. ended: that the process that ran it last has left, with the reason where it had one;
    None while it runs or nothing is known.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._tail = folder, Tail(folder.path / NAME)
        self.nodes: dict[str, dict[str, Any]] = {}
        self.lines: list[dict[str, Any]] = []
        self.state: dict[str, Any] = {}
        self.ended: str | None = None
        self.done: int | None = None
        self.last_time = ""
        self.version = self.log_version = 0
        self._lab_read = False

    def update(self) -> None:
        """Read on."""
        if not self._lab_read:
            self._read_lab()
        found = self._tail.read()
        for event in found:
            self._take(event)
        if found:
            self.lines = self.lines[-MOST_LINES:]
            self.version += 1

    def _read_lab(self) -> None:
        """Names and roles, from the lab as the run has resolved it."""
        try:
            lab = read_toml(self._folder.path / "lab.toml", _MOST_LAB_BYTES)
        except FileNotFoundError:
            self._lab_read = self._folder.config_path.exists()
            return
        except DocumentError:
            lab = {}
        self._lab_read = True
        radios = lab.get("radio")
        for radio in radios[:MOST_NODES] if isinstance(radios, list) else []:
            name, role = text(inner(radio, "name")), text(inner(radio, "role"))
            self.nodes.setdefault(name, {"name": name, "state": "ready"})["role"] = role
        self.version += 1

    def _take(self, event: Mapping[str, Any]) -> None:
        kind, time, state = event.get("kind"), text(event.get("time")), text(event.get("state"))
        uplink = number(event.get("uplink"))
        self.last_time = time or self.last_time
        if kind == "state":
            self.state = {"state": state, "uplink": uplink, "attempt": number(event.get("attempt"))}
            if state == "done" and isinstance(uplink, int):
                self.done = uplink
        elif kind == "node":
            self._take_node(event, state, time)
        elif kind == "run":
            self.ended = text(event.get("reason")) if state == "ended" else None
            reason = f": {self.ended}" if self.ended else ""
            self._line(time, "warning" if self.ended else "info", f"a process has {state} the run{reason}")
        elif kind == "message":
            self._line(time, text(event.get("level")), text(event.get("text")))
        if kind == "state" and state in ("sound", "authorise", "done"):
            attempt = f", attempt {self.state['attempt']}" if self.state["attempt"] else ""
            self._line(time, "debug", f"uplink {uplink}{attempt}: {_SAID[state]}")

    def _take_node(self, event: Mapping[str, Any], state: str, time: str) -> None:
        name = text(event.get("node"))
        if name not in self.nodes and len(self.nodes) >= MOST_NODES:
            return
        node = self.nodes.setdefault(name, {"name": name, "role": ""})
        node.update(state=state, time=time, uplink=number(event.get("uplink")), reason=text(event.get("reason")))
        if state == "failed":
            self._line(time, "error", f"{name} has failed: {node['reason']}")

    def _line(self, time: str, level: str, said: str) -> None:
        self.log_version += 1
        self.lines.append({"time": time, "level": level, "text": said})


_SAID = {
    "sound": "sounding begins",
    "authorise": "charged in the ledger, goes on the air",
    "done": "done",
}
