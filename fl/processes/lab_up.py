"""All nodes of a lab as processes of this machine: keys made for it, virtual radios served where they are wanted."""

import json
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import tomli_w

from fl.nodes.apart.keys import make_keys
from fl.processes.started import Program, start_program
from fl.processes.status import STATUS
from fl.run.apart.attendance import require_one_by_one
from hardware.foundation.scratch import scratch_folder
from hardware.lab.model import Lab, LabRadio, Role
from hardware.virtual.process import emulator_process

_END_S = 10.0


@dataclass
class NodeProcess:
    """A node that was started here. log: what it said. kept: folder of what it keeps."""

    name: str
    role: Role
    process: BaseProcess
    log: Path
    kept: Path

    def look(self) -> "NodeSeen":
        """What can be seen of it now."""
        code = self.process.exitcode
        if code is not None:
            return NodeSeen("ended" if code == 0 else f"failed ({code})", None, 0, "")
        try:
            doing = json.loads((self.kept / STATUS).read_bytes())
        except (OSError, ValueError):
            return NodeSeen("starting", None, 0, "")
        # While it is busy it says nothing: what it heard last is as much older.
        heard_s = float(doing["heard_s"]) + max(0.0, time.time() - float(doing["at"]))
        return NodeSeen(str(doing["state"]), heard_s, int(doing["uplink"]), str(doing["order"]))


@dataclass(frozen=True)
class NodeSeen:
    """state: in a word. heard_s: since the node last heard of its server, None where that is not known. uplink, order:
    of what it was last told."""

    state: str
    heard_s: float | None
    uplink: int
    order: str


@dataclass(frozen=True)
class LabUp:
    """folder: of keys, lab file and logs. lab_file: with the radios' addresses. server: where nodes look for it."""

    folder: Path
    lab: Lab
    lab_file: Path
    server: str
    nodes: Sequence[NodeProcess]

    def commands(self) -> Mapping[str, str]:
        """For machines elsewhere: what to start there, by node, in a folder with lab file and keys."""
        node = "airdp node {} --name {} --lab lab.toml --keys keys --server {}"
        return {radio.name: node.format(radio.role.value, radio.name, self.server) for radio in _nodes(self.lab)}

    @property
    def run_command(self) -> str:
        """What starts a run over these nodes, on this machine."""
        where = ["--lab", str(self.lab_file), "--listen", self.server, "--keys", str(self.folder / "keys")]
        return f"airdp run CONFIG {shlex.join(where)}"


@contextmanager
def lab_up(
    lab: Lab, server: str, program: Program, *, seed: int, state: Path | None = None, trust: bool = False
) -> Iterator[LabUp]:
    """Start every node of a lab, as `program` node …; all of them end with the block.

    trust: whether nodes import code that the server's config names.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder("lab"))
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
            command = ["--lab", str(lab_file), "--name", radio.name, "--server", server, "--keys", str(keys), "--quiet"]
            command += ["--trust"] if trust else []
            log = folder / f"{radio.name}.log"
            log.touch(mode=0o600)
            process = start_program(program, ["node", radio.role.value, *command, "--state", str(kept)], log)
            nodes.append(NodeProcess(radio.name, radio.role, process, log, kept))
        yield LabUp(folder, served, lab_file, server, nodes)


def _served(lab: Lab, seed: int, stack: ExitStack) -> Lab:
    """The lab with an address for every radio: its own, or those of virtual radios that are served from now on."""
    require_one_by_one(lab)
    if lab.backend.emulate is None or all(radio.address for radio in lab.radios):
        return lab
    uris = stack.enter_context(emulator_process(lab.backend.name, lab, seed=seed)).uris
    return replace(lab, radios=tuple(replace(radio, address=uris[radio.name]) for radio in lab.radios))


def _nodes(lab: Lab) -> list[LabRadio]:
    return [radio for radio in lab.radios if radio.role in (Role.CLIENT, Role.JAMMER)]


def _end_all(nodes: Sequence[NodeProcess]) -> None:
    """Clients first, then the jammer; who does not end is killed."""
    for wanted in (Role.CLIENT, Role.JAMMER):
        ending = [node.process for node in nodes if node.role is wanted and node.process.is_alive()]
        for process in ending:
            process.terminate()
        for process in ending:
            process.join(_END_S)
            if process.is_alive():
                process.kill()
                process.join()
