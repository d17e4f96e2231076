"""In processes of nodes and servers under test: writes down every burst before it goes to the air, and does what it is
told to at an exact moment.

What is to be done stands in a file of a node's name, as JSON, and is done once:

    {"do": "cut", "part": 0.4}       jammer: send this part of the next payload's noise, and die
    {"do": "lie", "db": 6}           client: turn the radio up for the next payload; it stays so until `set_right`
    {"do": "count", "samples": 99}   transmitter: its sample counter jumps before the next burst
    {"do": "die"}                    server: kill the process `pid` between PLAN and TRANSMIT, then go on
    {"do": "clock", "wall_s": 1e5, "steady_s": 30}      any: its clocks jump
"""

import contextlib
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fl.nodes.apart.orders import Order
from fl.nodes.apart.switchboard import Switchboard
from fl.privacy.ledger_rows import checked_row
from fl.processes.node import NodeProgram
from hardware.radio.settings import RadioSettings
from hardware.virtual.served.radio import ServedRadio

SENT, ARMED, LYING = "sent", "armed", "lying"


def arm(folder: Path, name: str, **what: Any) -> None:
    """From outside: let a process do something once."""
    (folder / ARMED).mkdir(exist_ok=True)
    scratch = folder / ARMED / f".{name}"
    scratch.write_text(json.dumps(what))
    scratch.replace(folder / ARMED / name)


def disarm(folder: Path, name: str) -> bool:
    """Whether it had not been done yet."""
    path = folder / ARMED / name
    was = path.exists()
    path.unlink(missing_ok=True)
    return was


def set_right(folder: Path, name: str) -> None:
    """A radio that was turned up is as it should be, once its process has started anew."""
    (folder / LYING / name).unlink(missing_ok=True)


def _turned_up_db(folder: Path, name: str) -> float:
    path = folder / LYING / name
    return float(path.read_text()) if path.exists() else 0.0


def _armed(folder: Path, name: str, *kinds: str) -> dict[str, Any]:
    path = folder / ARMED / name
    try:
        what: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    if what["do"] not in kinds:
        return {}
    path.unlink(missing_ok=True)
    return what


def _write_down(folder: Path, name: str, line: dict[str, Any]) -> None:
    """One write: whole, or not there, however the process ends."""
    descriptor = os.open(folder / SENT / f"{name}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, json.dumps(line).encode() + b"\n")
    os.close(descriptor)


class _Clocks:
    """`time.time` and `time.monotonic` with what they have jumped by."""

    def __init__(self) -> None:
        self.wall_s = self.steady_s = 0.0
        wall, steady = time.time, time.monotonic
        time.time = lambda: wall() + self.wall_s
        time.monotonic = lambda: steady() + self.steady_s

    def jump(self, what: dict[str, Any]) -> None:
        self.wall_s += what.get("wall_s", 0.0)
        self.steady_s += what.get("steady_s", 0.0)


def watch_node(folder: Path, name: str) -> None:
    """Called in a node's process before it is one."""
    (folder / SENT).mkdir(exist_ok=True)
    clocks = _Clocks()
    carry_out, send = NodeProgram.carry_out, ServedRadio._send
    write, read_back = ServedRadio._write, ServedRadio._read_back
    current: list[Order] = []
    jumped = [0]
    # As a knob is turned: neither airdp nor another start of it turns it back.
    louder_db = [_turned_up_db(folder, name)]

    def written(self: ServedRadio, settings: RadioSettings) -> None:
        write(self, replace(settings, tx_gain_db=settings.tx_gain_db + louder_db[0]))

    def believed(self: ServedRadio) -> RadioSettings:
        settings = read_back(self)
        return replace(settings, tx_gain_db=settings.tx_gain_db - louder_db[0])

    def carried(self: NodeProgram, order: Order) -> Any:
        clocks.jump(_armed(folder, name, "clock"))
        current[:] = [order]
        return carry_out(self, order)

    def sent(self: ServedRadio, samples: Any, start_sample: int) -> None:
        order = current[0]
        kind = type(order.message).__name__
        jumped[0] += _armed(folder, name, "count").get("samples", 0)
        payload = kind == "Transmit"
        cut = _armed(folder, name, "cut") if payload else {}
        lie = _armed(folder, name, "lie") if payload else {}
        _write_down(
            folder,
            name,
            {
                "kind": kind,
                "uplink": order.uplink,
                "attempt": order.attempt,
                "row": checked_row(order.permit).hash if order.permit else "",
                "whole": not cut,
                "lie_db": lie.get("db", 0),
                "run": order.run,
            },
        )
        if lie:
            louder_db[0] = lie["db"]
            (folder / LYING).mkdir(exist_ok=True)
            (folder / LYING / name).write_text(str(lie["db"]))
            self._write(self.settings)
        part = samples[: int(cut["part"] * samples.size)] if cut else samples
        if part.size:
            send(self, part, start_sample + jumped[0])
        if cut:
            os.kill(os.getpid(), signal.SIGKILL)

    NodeProgram.carry_out = carried  # type: ignore[method-assign]
    ServedRadio._send = sent  # type: ignore[method-assign]
    ServedRadio._write = written  # type: ignore[method-assign]
    ServedRadio._read_back = believed  # type: ignore[method-assign]


def watch_server(folder: Path) -> None:
    """Called in the server's process before the run."""
    clocks = _Clocks()
    permit, listen = Switchboard.permit, Switchboard._listen

    def permitted(self: Switchboard, row: str) -> None:
        what = _armed(folder, "server", "die") if row else {}
        if what:
            # It may have ended by itself in the meantime, which is the same to the server.
            with contextlib.suppress(ProcessLookupError):
                os.kill(what["pid"], signal.SIGKILL)
        permit(self, row)

    def listened(self: Switchboard, wait_s: float) -> None:
        clocks.jump(_armed(folder, "server", "clock"))
        listen(self, wait_s)

    Switchboard.permit = permitted  # type: ignore[method-assign]
    Switchboard._listen = listened  # type: ignore[method-assign]
