"""Plutos that are emulated: the whole way of a real one, libiio and TCP included, to a simulated air.

One process has all radios of a lab. It ends with this one, however this one ends.
"""

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import tomli_w

from hardware.counted_lab import align
from hardware.errors import HardwareError
from hardware.lab import Backend, Lab
from hardware.pluto import CAPABILITIES, PlutoRadio
from hardware.pluto_lab import connect_plutos
from hardware.radio import Radio

_START_S = 60.0
_END_S = 5.0


@dataclass(frozen=True)
class EmulatedAir:
    """The air of an emulator, reached through one of its radios."""

    radio: PlutoRadio

    def new_block(self, block: int) -> None:
        """Begin fading block `block` on all links. It is the first thing that is done after something broke."""
        self.radio.recover()
        self.radio.context.write_debug("airdp_block", str(block))


def serve(lab: Lab, seed: int, stack: ExitStack, *, paced: bool = False) -> dict[str, str]:
    """Start the emulator of a lab; the stack ends it. Returns the address of each radio."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="airdp-")))
    file = folder / "lab.toml"
    file.write_text(tomli_w.dumps(lab.to_tables()), encoding="utf-8")
    said = stack.enter_context((folder / "stderr").open("w+", encoding="utf-8"))
    above = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join([above, *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "hardware.virtual_pluto", str(file)),
            *("--seed", str(seed), "--exit-with-stdin", *(["--paced"] if paced else [])),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        # Ctrl-C is for this process: the radios must be there to be parked.
        start_new_session=True,
    )
    stack.callback(_end, process)
    line = _first_line(process)
    if not line:
        said.seek(0)
        reason = " ".join(said.read().split()[-40:]) or f"no answer within {_START_S:g} s"
        raise HardwareError(f"the emulator of {lab.source} did not start: {reason}")
    uris: dict[str, str] = json.loads(line)["uris"]
    return uris


def _first_line(process: "subprocess.Popen[str]") -> str:
    """What it prints first, or nothing where it ends or takes too long."""
    stdout = process.stdout
    if stdout is None:
        return ""
    deadline = time.monotonic() + _START_S
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            if selector.select(0.1):
                return _line(stdout)
    return ""


def _line(stream: IO[str]) -> str:
    return stream.readline().strip()


def _end(process: "subprocess.Popen[str]") -> None:
    """Its standard input ends, upon which it does; a process that is frozen is killed."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        if process.stdout is not None:
            process.stdout.close()


def _connect(lab: Lab, seed: int, stack: ExitStack) -> tuple[dict[str, Radio], EmulatedAir]:
    radios = connect_plutos(lab, serve(lab, seed, stack), stack)
    server = radios[lab.ps.name]
    if not isinstance(server, PlutoRadio):
        raise HardwareError(f"'{lab.ps.name}' is no Pluto")
    return radios, EmulatedAir(server)


BACKEND = Backend(CAPABILITIES, _connect, align)
