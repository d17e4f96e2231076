"""`airdp node` and `airdp run --listen` where they cannot begin: at once where that can be known, in words, with 2."""

import dataclasses
import socket
from pathlib import Path
from typing import Any

import pytest

from fl.nodes.apart.keys import make_keys
from fl.nodes.apart.post import Doing
from fl.processes.node import NodeProgram
from fl.processes.settings import NodeSettings
from hardware.lab.model import Role
from tests.fl.nodes.apart.site import free_port, lab_of

ADDRESS = "ipc:///nowhere/air"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    for name in ("ps", "client-1", "client-2", "jammer"):
        make_keys(tmp_path / "keys", name)
    return tmp_path / "keys"


def lab_file(folder: Path, backend: str = "loopback-served", addresses: bool = True) -> Path:
    """Of two clients whose radios have addresses, at which nobody is."""
    import tomli_w

    lab = lab_of(2, folder, backend=backend)
    radios = [dataclasses.replace(one, address=f"{ADDRESS}#{one.name}" if addresses else "") for one in lab.radios]
    path = folder / "lab.toml"
    path.write_text(tomli_w.dumps(dataclasses.replace(lab, radios=tuple(radios)).to_tables()))
    return path


def words(lab: Path, keys: Path, server: str, *more: str) -> tuple[str, ...]:
    state = str(keys.parent / "state")
    where = ("--lab", str(lab), "--name", "client-1", "--server", server, "--keys", str(keys), "--state", state)
    return ("node", "client", *where, *more)


@pytest.mark.parametrize("quiet", [False, True])
def test_where_nobody_listens_that_is_said(tmp_path: Path, keys: Path, command: Any, quiet: bool) -> None:
    server = f"tcp://127.0.0.1:{free_port()}"
    said = command(*words(lab_file(tmp_path), keys, server, "--give-up", "1"), *(["--quiet"] if quiet else []))
    assert (said.code, said.out) == (2, "")
    assert f"no server at {server} has answered for 1 s: nobody listens there" in said.err
    assert (f"client-1: waiting for the server at {server}" in said.err) != quiet


def test_where_somebody_else_listens_its_key_is_doubted(tmp_path: Path, keys: Path, command: Any) -> None:
    """A port of something else takes the connection and says nothing that a server of airdp says."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        said = command(*words(lab_file(tmp_path), keys, server, "--give-up", "4"))
    assert said.code == 2
    assert f"no server at {server} has answered for 4 s" in said.err
    assert "nobody listens there" not in said.err


@pytest.mark.parametrize(
    ("lab", "reason"),
    [
        ({"backend": "loopback"}, "cannot belong to several processes: choose another with --backend"),
        ({"addresses": False}, "'client-1' has no address"),
    ],
    ids=["a backend of one process", "no address"],
)
def test_a_radio_that_cannot_be_opened_is_refused_before_anybody_waits(
    tmp_path: Path, keys: Path, command: Any, lab: dict[str, Any], reason: str
) -> None:
    said = command(*words(lab_file(tmp_path, **lab), keys, f"tcp://127.0.0.1:{free_port()}", "--give-up", "inf"))
    assert said.code == 2
    assert reason in said.err
    assert "waiting" not in said.err


@pytest.mark.parametrize(
    ("lab", "reason"),
    [
        ({"backend": "loopback"}, "cannot belong to several processes"),
        ({"addresses": False}, "'ps' has no address"),
        ({}, "cannot listen at"),
    ],
    ids=["a backend of one process", "no address", "a port that is taken"],
)
def test_a_server_that_cannot_begin_does_not_wait_for_nodes(
    tmp_path: Path, keys: Path, command: Any, lab: dict[str, Any], reason: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        where = ("--lab", str(lab_file(tmp_path, **lab)), "--listen", listen, "--keys", str(keys))
        clients = ("--set", "partition.clients=2")
        said = command("run", "loopback", *clients, *where, "--out", str(tmp_path / "run"), "--wait", "inf")
    assert said.code == 2
    assert reason in said.err
    assert "waiting for" not in said.err


def test_a_node_says_what_it_does_when_that_changes(tmp_path: Path) -> None:
    lines: list[str] = []
    server = "tcp://10.0.0.1:5757"
    settings = NodeSettings(lab_of(2, tmp_path), "client-1", Role.CLIENT, server, tmp_path, tmp_path, said=lines.append)
    program = NodeProgram(settings, None)  # type: ignore[arg-type]
    for state in ("waiting", "waiting", "joined", "ready", "ready", "waiting"):
        program.told(Doing(state, 0.0, 0, ""))
    assert lines == [
        f"waiting for the server at {server}",
        f"joined the server at {server}; waiting for the other nodes",
        f"takes part in a run of the server at {server}",
        f"waiting for the server at {server}",
    ]
