"""A lab whose nodes are real processes of this machine, started quickly, killed, frozen and started anew by tests."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import tomli_w

from fl.nodes.apart.keys import make_keys
from fl.processes.node import run_node
from fl.processes.settings import NodeSettings
from fl.run.apart.attendance import NodesElsewhere
from fl.run.config import parse_config
from fl.run.course.metrics import UplinkMetrics
from fl.run.course.result import RunResult
from fl.run.runner import run_experiment
from hardware.lab.file import find_lab, load_lab
from hardware.lab.model import Lab, Role
from hardware.virtual.process import emulator_process
from phy.errors import AirdpError
from tests.fl.nodes.apart.faults.far_away import go_into
from tests.fl.nodes.apart.faults.witness import watch_node, watch_server
from tests.fl.nodes.small_runs import small_run

SERVED = "loopback-served"
PATIENT: dict[str, dict[str, Any]] = {"lab": {"timeout_s": 60.0}}
"""Changes of a lab with which no attempt is repeated because this machine is busy: for runs that are compared."""


def forkserver() -> Any:
    """Processes that begin with everything imported: PyTorch takes seconds to load."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.fl.nodes.apart.site"])
    return context


def serve(settings: NodeSettings, log: str, watched: str = "", namespace: str = "") -> None:
    """What a node's process does. watched: folder of its witness, see `witness`. namespace: of the network that it is
    in."""
    write_to(log)
    if namespace:
        go_into(namespace)
    if watched:
        watch_node(Path(watched), settings.name)
    ending_with_a_word(lambda: run_node(settings))


def serve_run(folder: str, port: int, sections: dict[str, Any], out: str, resume: bool, answer_s: float) -> None:
    """What a server's process does, watched by its witness."""
    import fl.run.figures

    # A shell that starts something in the background has it ignore Ctrl-C, and so has all that this starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    write_to(str(Path(folder) / "server.log"))
    watch_server(Path(folder))
    fl.run.figures.draw_run = lambda folder: None
    here = Site(Path(folder), load_lab(Path(folder) / "lab.toml"), port)
    ending_with_a_word(lambda: here.run(sections, out, resume=resume, wait_s=30.0, answer_s=answer_s))


def write_to(log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def ending_with_a_word(do: Callable[[], object]) -> None:
    try:
        do()
    except AirdpError as error:
        print(f"ended: {type(error).__name__}: {error}", flush=True)  # noqa: T201
        sys.exit(2)
    except KeyboardInterrupt:
        print("ended: KeyboardInterrupt: it was told to", flush=True)  # noqa: T201
        sys.exit(130)


@dataclass
class Site:
    """lab: with addresses of its served radios. changes: of a node's settings, by its name."""

    folder: Path
    lab: Lab
    port: int
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    watched: bool = False
    listen: str = ""
    namespaces: dict[str, str] = field(default_factory=dict)
    processes: dict[str, BaseProcess] = field(default_factory=dict)
    starts: int = 0

    @property
    def server(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def start(self, name: str) -> None:
        """A node, anew where it has been there before."""
        radio = self.lab.radio(name)
        plain = {
            "lab": self.lab,
            "name": name,
            "role": radio.role,
            "server": self.server,
            "keys": self.folder / "keys",
            "state": self.folder / "state" / name,
        }
        settings = NodeSettings(**{**plain, **self.changes.get(name, {})})
        self.starts += 1
        watched = str(self.folder) if self.watched else ""
        process = forkserver().Process(
            target=serve,
            args=(settings, str(self.folder / f"{name}.log"), watched, self.namespaces.get(name, "")),
            daemon=True,
        )
        process.start()
        self.processes[name] = process

    def start_all(self) -> None:
        for radio in self.lab.radios:
            if radio.role in (Role.CLIENT, Role.JAMMER):
                self.start(radio.name)

    def signal(self, name: str, number: int) -> None:
        pid = self.processes[name].pid
        if pid is not None and self.processes[name].is_alive():
            # It may end by itself at any moment, also between this question and the signal.
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def end_all(self) -> None:
        for name, process in self.processes.items():
            self.signal(name, signal.SIGCONT)
            process.kill()
            process.join(10)

    def run(
        self,
        sections: dict[str, Any],
        out: str = "run",
        *,
        resume: bool = False,
        on_uplink: Callable[[UplinkMetrics], None] | None = None,
        wait_s: float = 240.0,
        answer_s: float = 10.0,
    ) -> RunResult:
        """The server, in this process."""
        config = parse_config({**sections, "radio": {**sections["radio"], "lab": str(self.folder / "lab.toml")}})
        elsewhere = NodesElsewhere(self.listen or self.server, self.folder / "keys", wait_s, answer_s=answer_s)
        return run_experiment(config, self.folder / out, resume=resume, on_uplink=on_uplink, elsewhere=elsewhere)

    def states(self) -> list[Path]:
        """What each client has kept of the run."""
        return sorted(path for path in (self.folder / "state").glob("client-*/*") if path.is_dir())


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def lab_of(
    clients: int,
    folder: Path,
    source: str = "loopback",
    backend: str = SERVED,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
) -> Lab:
    """A shipped lab with so many clients. changes: of its file's keys, by section."""
    tables = find_lab(source, backend).to_tables()
    kept = [radio for radio in tables["radio"] if radio["role"] != "client"]
    one = next(radio for radio in tables["radio"] if radio["role"] == "client")
    tables["radio"] = [*kept, *({**one, "name": f"client-{number + 1}"} for number in range(clients))]
    tables["lab"]["timeout_s"] = 3.0
    for section, keys in (changes or {}).items():
        tables[section].update(keys)
    path = folder / "plain.toml"
    path.write_text(tomli_w.dumps(tables))
    return load_lab(path)


@contextmanager
def site(
    folder: Path,
    clients: int = 2,
    *,
    backend: str = SERVED,
    source: str = "loopback",
    seed: int = 1,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[Site]:
    """Keys, an air that is served, and nobody started yet."""
    with ExitStack() as stack:
        plain = lab_of(clients, folder, source, backend, changes)
        uris = stack.enter_context(emulator_process(backend, plain, seed=seed)).uris
        lab = replace(plain, radios=tuple(replace(radio, address=uris[radio.name]) for radio in plain.radios))
        (folder / "lab.toml").write_text(tomli_w.dumps(lab.to_tables()))
        for radio in lab.radios:
            make_keys(folder / "keys", radio.name)
        here = Site(folder, lab, free_port())
        stack.callback(here.end_all)
        yield here


def sections(clients: int = 2, uplinks: int = 3, **changes: Any) -> dict[str, Any]:
    return small_run("loopback", clients=clients, uplinks=uplinks, **changes)


def wait_until(true: Callable[[], bool], most_s: float = 20.0) -> None:
    deadline = time.monotonic() + most_s
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError("it has not become true")
        time.sleep(0.02)
