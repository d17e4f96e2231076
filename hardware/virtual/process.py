"""Virtual radios of a lab in a process of their own, for as long as this one needs them."""

import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from hardware.foundation.child_processes import end_module, start_module
from hardware.foundation.scratch import scratch_folder
from hardware.lab.model import Lab
from hardware.radio.errors import HardwareError
from hardware.virtual.kept_sockets import keep

_START_S = 60.0
_END_S = 5.0
_GONE_S = 0.5


@dataclass(frozen=True)
class EmulatorProcess:
    """A process that serves. lab: what messages call it. uris: of the radios, by name."""

    process: "subprocess.Popen[str]"
    lab: str
    uris: Mapping[str, str]

    @property
    def pid(self) -> int:
        """Its number."""
        return self.process.pid

    def gone(self) -> str:
        """Why its radios are gone; empty while it runs."""
        how = _ending(self.process)
        return f"its emulator {how}" if how else ""

    def check(self) -> None:
        """Raise `HardwareError` where it has ended, for who lost a radio and wonders why."""
        try:
            # Its connections end a little before it does.
            self.process.wait(_GONE_S)
        except subprocess.TimeoutExpired:
            return
        raise HardwareError(f"the emulator of {self.lab} {_ending(self.process)}: its radios are gone; start again")

    def cpu_s(self) -> float:
        """Processor time that it has used."""
        # The name, second of the fields, may have blanks in it.
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def emulator_process(
    backend: str, lab: Lab, *, seed: int, port: int | None = None, paced: bool = False
) -> Iterator[EmulatorProcess]:
    """Serve the radios of `lab` as `backend` makes them; see `EmulationSettings` for the rest.

    The process ends with the block, and with this process, however that ends. Its sockets stay open until then.
    """
    options = ["--seed", str(seed), "--exit-with-stdin", *(["--paced"] if paced else [])]
    options += [] if port is None else ["--port", str(port)]
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder("radios"))
        said = stack.enter_context((folder / "stderr").open("w+"))
        file = folder / "lab.toml"
        file.write_text(tomli_w.dumps(lab.to_tables()), encoding="utf-8")
        ours, theirs = (stack.enter_context(end) for end in socket.socketpair())
        options += ["--sockets-to", str(theirs.fileno())]
        process = start_module("hardware.virtual", [backend, str(file), *options], said, [theirs.fileno()])
        theirs.close()
        try:
            line = _first_line(process)
            if not line:
                said.seek(0)
                reason = " ".join(said.read().split()[-40:])
                raise HardwareError(f"the emulator of {lab.source} did not start: {reason or _silence(process)}")
            served = EmulatorProcess(process, lab.source, json.loads(line)["uris"])
            try:
                with keep(ours):
                    yield served
            except HardwareError:
                # Whatever its radios' users say went wrong, including that they could not be parked.
                served.check()
                raise
        finally:
            end_module(process, _END_S)


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
                return stdout.readline().strip()
    return ""


def _silence(process: "subprocess.Popen[str]") -> str:
    """Why a process has said nothing."""
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        return f"no answer within {_START_S:g} s"
    return f"it {_ending(process)} before it answered"


def _ending(process: "subprocess.Popen[str]") -> str:
    """How a process has ended; empty while it has not."""
    code = process.poll()
    if code is None:
        return ""
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was killed by {signal.Signals(-code).name}"
