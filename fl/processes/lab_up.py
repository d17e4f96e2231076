"""All nodes of a lab as processes of this machine: keys made for it, virtual radios served where they are wanted."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import tomli_w

from fl.errors import ConfigError
from fl.nodes.apart.keys import make_keys
from hardware.foundation.child_processes import child_environment
from hardware.lab.model import Lab, LabRadio, Role
from hardware.virtual.process import emulator_process

_START = "import sys; from fl.cli.main import main; sys.exit(main(sys.argv[1:]))"
_END_S = 10.0


@dataclass
class NodeProcess:
    """A node that was started here. log: what it said."""

    name: str
    role: Role
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def state(self) -> str:
        """In a word."""
        code = self.process.poll()
        return "running" if code is None else "ended" if code == 0 else f"failed ({code})"


@dataclass(frozen=True)
class LabUp:
    """folder: of keys, lab file and logs. lab_file: with the radios' addresses. server: where nodes look for it."""

    folder: Path
    lab: Lab
    lab_file: Path
    server: str
    nodes: Sequence[NodeProcess]

    def commands(self) -> Mapping[str, str]:
        """For machines elsewhere: what to start there, by node."""
        return {
            radio.name: f"airdp node {radio.role.value} --name {radio.name} --lab LAB --server {self.server} --keys DIR"
            for radio in _nodes(self.lab)
        }


@contextmanager
def lab_up(lab: Lab, server: str, *, seed: int, state: Path | None = None) -> Iterator[LabUp]:
    """Start every node of a lab; all of them end with the block."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="airdp-lab-")))
        served = _served(lab, seed, stack)
        keys = folder / "keys"
        for radio in (served.ps, *_nodes(served)):
            make_keys(keys, radio.name)
        lab_file = folder / "lab.toml"
        lab_file.write_text(tomli_w.dumps(served.to_tables()), encoding="utf-8")
        nodes: list[NodeProcess] = []
        stack.callback(_end_all, nodes)
        for radio in _nodes(served):
            kept = (state or folder / "state") / radio.name
            command = ["--lab", str(lab_file), "--name", radio.name, "--server", server, "--keys", str(keys)]
            log = folder / f"{radio.name}.log"
            with log.open("wb") as said:
                process = _start(["node", radio.role.value, *command, "--state", str(kept)], said)
            nodes.append(NodeProcess(radio.name, radio.role, process, log))
        yield LabUp(folder, served, lab_file, server, nodes)


def _served(lab: Lab, seed: int, stack: ExitStack) -> Lab:
    """The lab with an address for every radio: its own, or those of virtual radios that are served from now on."""
    if lab.backend.connect_one is None:
        raise ConfigError(
            f"radios of the backend '{lab.backend.name}' cannot belong to several processes: "
            "choose another with --backend"
        )
    if lab.backend.emulate is None or all(radio.address for radio in lab.radios):
        return lab
    uris = stack.enter_context(emulator_process(lab.backend.name, lab, seed=seed)).uris
    return replace(lab, radios=tuple(replace(radio, address=uris[radio.name]) for radio in lab.radios))


def _nodes(lab: Lab) -> list[LabRadio]:
    return [radio for radio in lab.radios if radio.role in (Role.CLIENT, Role.JAMMER)]


def _start(arguments: Sequence[str], said: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", _START, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=subprocess.STDOUT,
        env={**child_environment(), "PYTHONUNBUFFERED": "1"},
        # Ctrl-C is for the one who started them: clients must fall silent before the jammer does.
        start_new_session=True,
    )


def _end_all(nodes: Sequence[NodeProcess]) -> None:
    """Clients first, then the jammer; who does not end is killed."""
    for wanted in (Role.CLIENT, Role.JAMMER):
        ending = [node for node in nodes if node.role is wanted and node.process.poll() is None]
        for node in ending:
            os.kill(node.process.pid, signal.SIGTERM)
        for node in ending:
            try:
                node.process.wait(_END_S)
            except subprocess.TimeoutExpired:
                node.process.kill()
                node.process.wait()
