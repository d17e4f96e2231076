"""Start all nodes of a lab as processes of this machine, and a run over them, or wait for one elsewhere.

With --run CONFIG the server is started too, and everything ends with the run; on a terminal a table shows the nodes
meanwhile. Without it the table is shown until Ctrl-C, with the command that starts each node on a machine of its own.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fl.cli.output import PROGRESS, RESULTS
from fl.cli.terminal_text import visible

if TYPE_CHECKING:
    from rich.table import Table

    from fl.processes.lab_up import LabUp

_REFRESH_S = 0.5
_WAIT_S = 600.0
"""For nodes of this machine, which are starting as long as they have not ended."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("action", choices=("up",), help="what to do")
    parser.add_argument("lab", metavar="LAB", help="shipped name or lab file")
    parser.add_argument("--backend", metavar="NAME", help="instead of the lab's own")
    parser.add_argument("--run", metavar="CONFIG", help="run this experiment over the nodes")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="with --run: override a key")
    parser.add_argument("--out", type=Path, metavar="DIR", help="with --run: folder of the run")
    parser.add_argument("--state", type=Path, metavar="DIR", help="folder of what nodes keep (default: temporary)")
    parser.add_argument(
        "--server", default="tcp://127.0.0.1:5757", metavar="tcp://…", help="where the run listens (default: port 5757)"
    )
    parser.add_argument(
        "--trust", action="store_true", help="import code that a server's config names; --run implies it"
    )
    parser.add_argument("--resume", action="store_true", help="with --run: go on with the run in --out")
    parser.add_argument("--json", action="store_true", help="with --run: print one JSON object instead of a table")


def call(options: argparse.Namespace) -> int:
    """Start everything; take it down again."""
    from fl.cli.main import main
    from fl.processes.lab_up import lab_up
    from fl.run.config import load_config
    from hardware.lab.file import find_lab

    lab = find_lab(options.lab, options.backend)
    config = load_config(options.run, options.set) if options.run else None
    seed = 1 if config is None else config.seed
    try:
        # With --run the config is that of whoever calls this, and nobody else has the keys of these nodes' server.
        trust = options.trust or bool(options.run)
        with lab_up(lab, options.server, main, seed=seed, state=options.state, trust=trust) as up:
            if options.run:
                return _run(options, up)
            _watch(up)
    except KeyboardInterrupt:
        if options.run:
            raise
    return 0


def _run(options: argparse.Namespace, up: "LabUp") -> int:
    from fl.cli.experiments import run

    keys = up.folder / "keys"
    # By its own name: under that the run goes on, in another lab up.
    arguments = [options.run, "--lab", options.lab, "--listen", options.server, "--keys", str(keys)]
    arguments += ["--wait", f"{_WAIT_S:g}"]
    arguments += ["--backend", options.backend] if options.backend else []
    arguments += [part for override in options.set for part in ("--set", override)]
    arguments += ["--out", str(options.out)] if options.out else []
    arguments += ["--resume"] if options.resume else []
    arguments += ["--json"] if options.json else []
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    try:
        # The table goes before the outcome is printed: what erases itself would take some of that along.
        around = run.Around(_shown(up), up.lab, again=partial(_again, options), look=partial(_require_alive, up))
        return run.call(parser.parse_args(arguments), around)
    except Exception:
        for node in up.nodes:
            said = node.log.read_text(errors="replace").strip()
            if said:
                PROGRESS.print(f"{node.name}: {said[-400:]}", markup=False, highlight=False)
        raise


def _require_alive(up: "LabUp") -> None:
    """Raise `ConfigError` where a node has ended before the run has begun: nobody need wait for it."""
    from fl.errors import ConfigError

    for node in up.nodes:
        if node.process.exitcode is not None:
            raise ConfigError(f"'{node.name}' has ended with {node.process.exitcode} before it has joined")


def _again(options: argparse.Namespace, out: Path) -> list[str]:
    """The command that goes on with the run in a folder."""
    again = ["airdp", "lab", "up", options.lab, "--run", options.run]
    again += [part for override in options.set for part in ("--set", override)]
    for name in ("backend", "state", "server"):
        if getattr(options, name):
            again += [f"--{name}", str(getattr(options, name))]
    return [*again, "--out", str(out), "--resume"]


@contextmanager
def _shown(up: "LabUp") -> Iterator[None]:
    """The table of nodes above what the run says of itself, where there is a terminal."""
    from rich.live import Live

    if not PROGRESS.is_interactive:
        yield
        return
    with Live(
        get_renderable=lambda: node_table(up), console=PROGRESS, transient=True, refresh_per_second=1.0 / _REFRESH_S
    ):
        yield


def _watch(up: "LabUp") -> None:
    from rich.live import Live

    RESULTS.print(f"a run over these nodes: {up.run_command}", soft_wrap=True, markup=False, highlight=False)
    RESULTS.print("or, in place of one of them, on a machine of its own:", markup=False, highlight=False)
    for name, command in up.commands().items():
        RESULTS.print(f"{name}: {command}", soft_wrap=True, markup=False, highlight=False)
    take = (
        f"take {up.lab_file} there, and from {up.folder / 'keys'} into keys/: {up.lab.ps.name}.key and NAME.key_secret"
    )
    RESULTS.print(f"{take}. Stop with Ctrl-C", soft_wrap=True, markup=False, highlight=False)
    if "//127." in up.server or "//localhost" in up.server:
        hint = "nodes on other machines need --server with an address that they reach, here and there"
        RESULTS.print(f"{up.server} is this machine's alone: {hint}", soft_wrap=True, markup=False, highlight=False)
    RESULTS.file.flush()
    with Live(console=PROGRESS, transient=True, auto_refresh=False) as live:
        while True:
            live.update(node_table(up), refresh=True)
            time.sleep(_REFRESH_S)


def node_table(up: "LabUp") -> "Table":
    """What each node is doing. The last column is there when somebody has said something: 80 columns are few."""
    from rich.table import Table
    from rich.text import Text

    said = [node.log.read_text(errors="replace").strip().splitlines() for node in up.nodes]
    table = Table("node", "role", "process", "state", "last heard", "uplink", *(["last words"] if any(said) else []))
    for node, words in zip(up.nodes, said, strict=True):
        seen = node.look()
        table.add_row(
            node.name,
            node.role.value,
            str(node.process.pid),
            seen.state,
            "" if seen.heard_s is None or seen.state == "waiting" else f"{seen.heard_s:.0f} s ago",
            f"{seen.uplink} {seen.order}" if seen.uplink else "",
            *([Text(visible(words[-1][-60:])) if words else ""] if any(said) else []),
        )
    return table
