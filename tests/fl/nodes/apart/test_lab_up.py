"""`airdp lab up`: every node of a lab is started, shown while it lives, and taken down again."""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tomli_w
from rich.console import Console
from rich.progress import Progress

from fl.cli.experiments import run as run_command
from fl.cli.main import main
from fl.cli.nodes import lab, node
from fl.cli.nodes.lab import node_table
from fl.errors import RunFolderError
from fl.nodes.apart.keys import load_keys
from fl.processes.lab_up import LabUp, NodeSeen, lab_up
from fl.processes.status import STATUS
from fl.run import run
from fl.run.apart.attendance import NodesElsewhere
from fl.run.config import parse_config
from fl.run.course.metrics import UplinkMetrics
from fl.run.course.result import FINISHED
from fl.run.folder import RunFolder, locked
from fl.run.runner import run_experiment
from hardware.lab.model import Role
from tests.conftest import REPOSITORY, START, Outcome
from tests.fl.nodes.apart.site import free_port, lab_of, sections, wait_until
from tests.fl.nodes.small_runs import small_run

pytestmark = [pytest.mark.usefixtures("no_figures", "one_thread"), pytest.mark.timeout(300)]

START_S = 200.0


def shown(up: LabUp) -> list[dict[str, str]]:
    """The table's rows, by column."""
    table = node_table(up)
    columns = {str(column.header): list(column.cells) for column in table.columns}
    return [{name: str(cells[row]) for name, cells in columns.items()} for row in range(table.row_count)]


def test_every_node_is_started_shown_and_ended(tmp_path: Path) -> None:
    server = f"tcp://127.0.0.1:{free_port()}"
    with lab_up(lab_of(2, tmp_path), server, main, seed=1, state=tmp_path / "state") as up:
        wait_until(lambda: all(row["state"] == "waiting" for row in shown(up)), START_S)
        assert {(row["node"], row["role"]) for row in shown(up)} == {
            ("client-1", "client"),
            ("client-2", "client"),
            ("jammer", "jammer"),
        }
        assert {(row["last heard"], row["uplink"]) for row in shown(up)} == {("", "")}
        chosen = sections()
        config = parse_config({**chosen, "radio": {**chosen["radio"], "lab": str(up.lab_file)}})
        seen: list[list[dict[str, str]]] = []

        def look(metrics: UplinkMetrics) -> None:
            # What a node leaves of itself is at most a second old.
            wait_until(lambda: all(row["uplink"] == f"{metrics.uplink} {last(row)}" for row in shown(up)), START_S)
            seen.append(shown(up))

        elsewhere = NodesElsewhere(server, up.folder / "keys")
        assert run_experiment(config, tmp_path / "run", on_uplink=look, elsewhere=elsewhere).status == FINISHED
        assert len(seen) == 3
        for rows in seen:
            assert {row["state"] for row in rows} == {"ready"}
            assert all(row["last heard"].endswith(" s ago") for row in rows)
        for started in up.nodes:
            started.process.join(20)
        assert {row["state"] for row in shown(up)} == {"ended"}
    assert [started.process.exitcode for started in up.nodes] == [0, 0, 0]
    assert not up.folder.exists()


def test_the_table_lives_beside_a_runs_progress_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lab_up(lab_of(1, tmp_path), "tcp://127.0.0.1:1", main, seed=1) as up:
        for terminal in (True, False):
            said = StringIO()
            console = Console(file=said, force_terminal=terminal, force_interactive=terminal, width=100)
            monkeypatch.setattr(lab, "PROGRESS", console)
            with lab._shown(up), Progress(console=console, disable=not terminal) as progress:
                progress.add_task("the run")
            assert [word in said.getvalue() for word in ("last heard", "client-1", "the run")] == [terminal] * 3


@pytest.mark.parametrize(("said", "columns"), [("", 6), ("WARNING: the server is gone\n", 7)])
def test_a_node_is_one_line_of_a_narrow_terminal_while_it_has_said_nothing(
    tmp_path: Path, said: str, columns: int
) -> None:
    """A terminal has 80 columns, and the longest order 16 letters."""
    (tmp_path / "log").write_text(said)
    busy = NodeSeen("waiting", 12.0, 80, "DescribeCircuits")
    node = SimpleNamespace(
        name="client-10",
        role=Role.CLIENT,
        process=SimpleNamespace(pid=1234567),
        log=tmp_path / "log",
        look=lambda: busy,
    )
    table = node_table(SimpleNamespace(nodes=[node, node]))  # type: ignore[arg-type]
    assert len(table.columns) == columns
    console = Console(file=StringIO(), width=80)
    with console.capture() as captured:
        console.print(table)
    lines = captured.get().splitlines()
    assert (len(lines) == 2 + 4) == (not said)
    assert ("WARNING" in captured.get()) == bool(said)


def test_the_table_is_gone_before_the_outcome_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It erases itself, and with it what was printed below it."""
    there: list[str] = []
    seen: list[list[str]] = []

    @contextmanager
    def table(up: object) -> Iterator[None]:
        there.append("table")
        yield
        there.clear()

    monkeypatch.setattr(lab, "_shown", table)
    monkeypatch.setattr(RunFolder, "save_checkpoint", lambda *_: seen.append(there.copy()))
    monkeypatch.setattr(run_command, "_print_tables", lambda *_: seen.append(there.copy()))
    monkeypatch.setattr(run_command, "_elsewhere", lambda *_: None)
    parser = argparse.ArgumentParser()
    lab.add_arguments(parser)
    up = LabUp(tmp_path, lab_of(1, tmp_path), Path("loopback"), "tcp://127.0.0.1:1", [])
    words = ["up", "loopback", "--run", "loopback", "--out", str(tmp_path / "run"), "--set", "uplink.uplinks=1"]
    assert lab._run(parser.parse_args(words), up) == 0
    assert seen == [["table"], []]


def last(row: dict[str, str]) -> str:
    """What a node was told last in an uplink."""
    return "Settle" if row["role"] == "client" else "Check"


def test_for_a_run_and_for_other_machines_there_are_commands(tmp_path: Path) -> None:
    with lab_up(lab_of(2, tmp_path), "tcp://10.0.0.1:5757", main, seed=1) as up:
        commands = up.commands()
        assert set(commands) == {"client-1", "client-2", "jammer"}
        for name, command in commands.items():
            parser = argparse.ArgumentParser(exit_on_error=False)
            node.add_arguments(parser)
            options = parser.parse_args(command.split()[2:])
            assert (options.name, options.role) == (name, up.lab.radio(name).role.value)
            assert (options.server, options.lab, options.keys) == ("tcp://10.0.0.1:5757", "lab.toml", Path("keys"))
        parser = argparse.ArgumentParser(exit_on_error=False)
        run_command.add_arguments(parser)
        served = parser.parse_args(shlex.split(up.run_command)[2:])
        assert (served.lab, served.listen) == (str(up.lab_file), "tcp://10.0.0.1:5757")
        assert load_keys(served.keys, "ps").name == "ps"
        # What it says to take there is enough: beside the lab file, a node's own secret and the server's public key.
        assert (up.folder / "keys" / "ps.key").exists()
        assert (up.folder / "keys" / "jammer.key_secret").exists()


def test_nodes_do_not_outlive_who_started_them(tmp_path: Path) -> None:
    """Killed, it takes nothing down: they notice."""
    command = ["lab", "up", "loopback", "--backend", "loopback-served", "--state", str(tmp_path / "state")]
    starter = subprocess.Popen(
        [sys.executable, "-c", START, *command, "--server", f"tcp://127.0.0.1:{free_port()}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    states = [tmp_path / "state" / name for name in (*(f"client-{number + 1}" for number in range(5)), "jammer")]
    try:
        wait_until(lambda: all((state / STATUS).exists() for state in states), START_S)
        assert all(in_use(state) for state in states)
    finally:
        starter.send_signal(signal.SIGKILL)
        starter.wait()
    wait_until(lambda: not any(in_use(state) for state in states), START_S)


def in_use(state: Path) -> bool:
    """Whether the node that keeps this is there."""
    try:
        with locked(RunFolder(state)):
            return False
    except RunFolderError:
        return True


def test_a_run_that_was_interrupted_goes_on_with_the_command_that_is_shown(
    tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, addresses and lab file of the first are gone with it."""
    lab_of(2, tmp_path)
    (tmp_path / "small.toml").write_text(tomli_w.dumps(sections(uplinks=2)))
    monkeypatch.chdir(tmp_path)
    words = ["lab", "up", "plain.toml", "--run", "small.toml", "--set", "model.hidden=9"]
    words += ["--state", "state", "--out", "run", "--server", f"tcp://127.0.0.1:{free_port()}"]
    with pytest.MonkeyPatch.context() as patch:
        keep = RunFolder.save_checkpoint
        patch.setattr(RunFolder, "save_checkpoint", lambda *what: (keep(*what), interrupt()))
        stopped = command(*words)
    assert stopped.code == 130
    shown = stopped.err.partition("to go on: airdp ")[2].splitlines()[0]
    said = command(*shlex.split(shown), "--json")
    assert (said.code, said.json["uplinks"], said.json["transmissions_charged"]) == (0, 2, 2)


def test_nobody_waits_for_a_node_that_has_ended(tmp_path: Path, command: Any) -> None:
    """Another process has its state: the node says so, and the run need not wait for it."""
    lab_of(2, tmp_path)
    (tmp_path / "small.toml").write_text(tomli_w.dumps(sections(uplinks=2)))
    (tmp_path / "state" / "client-2").mkdir(parents=True)
    words = ["lab", "up", tmp_path / "plain.toml", "--run", tmp_path / "small.toml", "--out", tmp_path / "run"]
    words += ["--state", tmp_path / "state", "--server", f"tcp://127.0.0.1:{free_port()}"]
    with locked(RunFolder(tmp_path / "state" / "client-2")):
        said = command(*words)
    assert said.code == 2
    assert "'client-2' has ended with 2 before it has joined" in said.err
    assert "another process is running" in said.err


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_plutos_and_a_run_in_one_command(tmp_path: Path, airdp: Any) -> None:
    """Server, three clients, jammer: five processes, and virtual radios in one more. Epsilon is that of one process.

    Noise of virtual Plutos is the system's: sigma is measured anew in every run, from 65536 samples of silence. In
    three quarters of the band that is to within 0.23 %, five of which are 1.1 %; the rest is left to bounds on gains.
    """
    # Its own config may name code: nobody else's can come to these nodes.
    own = {"name": "fl.learning.server.adaptive:FedAvgM"}
    chosen = small_run("pluto-virtual", clients=3, uplinks=2, algorithm=own)
    (tmp_path / "small.toml").write_text(tomli_w.dumps(chosen))
    alone = run(chosen, tmp_path / "alone")
    port = free_port()
    words = ("lab", "up", "pluto-virtual", "--run", "small.toml", "--out", "apart", "--state", "state", "--json")
    said: Outcome = airdp(*words, "--server", f"tcp://127.0.0.1:{port}", timeout=180)
    assert said.code == 0, said.err
    result = json.loads(said.out)
    charged = result["transmissions_charged"]
    assert (result["status"], charged >= 2) == (FINISHED, True)
    # On a machine that is too busy for radios an uplink is sent again, and charged again.
    if charged == alone.transmissions_charged == 2:
        epsilon = result["privacy"][0]["epsilon"]
        assert epsilon == pytest.approx(dict(alone.privacy[0].epsilon), rel=0.05)
    kept = sorted(path.name for path in (tmp_path / "state").iterdir())
    assert kept == ["client-1", "client-2", "client-3", "jammer"]
    against = [part for path in (tmp_path / "state").glob("client-*/*/") for part in ("--against", str(path))]
    compared: Outcome = airdp("ledger", "apart", *against, "--json")
    assert compared.code == 0, compared.err
    for one in json.loads(compared.out)["against"]:
        assert (2 <= one["sent"] <= charged, one["unknown"], one["lowered"]) == (True, 0, 0)
        if charged == 2:
            assert one["own_loss"] == pytest.approx(one["server_loss"])
