"""The table of docs/security.md against the sockets that commands open, as the kernel lists them."""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fl.cli.main import COMMANDS
from fl.run import run
from tests.conftest import REPOSITORY
from tests.security.sockets import opened, sockets

SMALL = ["--set", "uplink.uplinks=1", "--set", "model.hidden=4", "--set", "local.epochs=1"]
NEEDS_GNU_RADIO = {"airdp run gnuradio", "airdp flowgraph jammer_tx"}
NEEDS_UHD = {"airdp run usrp-virtual"}
NEEDS_FLOWER = {"airdp flower deploy examples/flower"}
LINES = {
    "airdp run quickstart": [*SMALL],
    "airdp sweep quickstart": ["--trials", "1", "--set", "uplink.uplinks=1", "--out", "swept"],
    "airdp run pluto-virtual": [*SMALL],
    "airdp run usrp-virtual": [*SMALL],
    "airdp run gnuradio": [*SMALL],
    "airdp run loopback --lab pluto --listen tcp://127.0.0.1:15757": ["--keys", "keys"],
    "airdp node client --lab loopback --name client-1 --server tcp://127.0.0.1:15758": [
        *("--keys", "keys", "--give-up", "3"),
    ],
    "airdp lab up loopback --backend loopback-served": ["--server", "tcp://127.0.0.1:15759"],
    "airdp live done": ["--listen", "127.0.0.1:18750"],
    "airdp emulate pluto-virtual": ["--json"],
    "airdp emulate usrp-virtual": ["--json"],
    "airdp emulate loopback --backend loopback-served": ["--json"],
    "airdp flowgraph jammer_tx": ["--set", "samples_in=tcp://127.0.0.1:15760"],
    "airdp flower deploy examples/flower": ["--clients", "2"],
}
"""Command lines of the table, and what is added to them here."""
COMPUTING = {
    "account": ["--rounds", "8", "--samples", "100", "--sigma", "0.1", "--delta", "1e-5"],
    "jammer": ["--help"],
    "ledger": ["done"],
    "report": ["done"],
    "bound": ["done"],
    "audit": ["done"],
    "inspect": ["done"],
    "replay": ["done"],
    "keys": ["list", "--keys", "keys"],
    "configs": [],
    "init": ["lab", "--out", "lab.toml"],
    "schema": ["config"],
    "completion": ["bash"],
}
"""Most commands that only compute, called one after the other in one process that notes whether one opens a socket."""
REFUSING = """
import sys
opened = []
sys.addaudithook(lambda event, said: opened.append(event) if event in ("socket.bind", "socket.connect") else None)
from fl.cli.main import main
for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit:
        pass
sys.exit(f"sockets: {opened}" if opened else 0)
"""


BRIEF = " for a moment"


def table() -> dict[str, set[str]]:
    """Sockets by command line, from the guide, with what it says of how long."""
    text = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
    section = text.partition("## What each command opens")[2]
    rows = re.findall(r"^\| `(airdp [^`]*)`[^|]* \| ([^|]*) \|", section, re.MULTILINE)
    return {line: {one.strip() for one in said.split(";")} - {"none"} for line, said in rows}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and keys."""
    from fl.nodes.apart.keys import make_keys
    from hardware.lab.file import find_lab
    from tests.conftest import TINY

    home = tmp_path_factory.mktemp("place")
    run({**TINY, "uplink": {"uplinks": 1}}, home / "done")
    for radio in find_lab("loopback").radios:
        make_keys(home / "keys", radio.name)
    small_flower_app(home)
    return home


def small_flower_app(home: Path) -> None:
    """The example with two clients and one uplink."""
    app, config = home / "examples" / "flower", home / "two.toml"
    shutil.copytree(REPOSITORY / "examples" / "flower", app)
    config.write_text('[partition]\nclients = 2\n[model]\nhidden = 16\n[algorithm]\nname = "fedavg"\n')
    changed = {"quickstart": config, "uplinks = 30": "uplinks = 1", "epochs = 20": "epochs = 1"}
    settings = (app / "pyproject.toml").read_text()
    for before, after in {**changed, "runs/flower": home / "flown"}.items():
        assert before in settings
        settings = settings.replace(before, str(after))
    (app / "pyproject.toml").write_text(settings)


def test_the_table_has_every_command() -> None:
    rows = table()
    assert set(rows) == set(LINES)
    text = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8").partition("## What each command opens")[2]
    named = {line.split()[1] for line in rows} | set(re.findall(r"`([a-z]+)`", text))
    assert set(COMMANDS) <= named, f"not in the table: {set(COMMANDS) - named}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("line", LINES)
def test_commands_open_what_the_table_says(place: Path, line: str) -> None:
    if line in NEEDS_GNU_RADIO and shutil.which("grcc") is None:
        pytest.skip("GNU Radio is not installed: apt-get install --no-install-recommends gnuradio")
    if line in NEEDS_FLOWER and importlib.util.find_spec("flwr") is None:
        pytest.skip("no flwr: pip install 'airdp[flower]'")
    if line in NEEDS_UHD and importlib.util.find_spec("uhd") is None:
        pytest.skip("UHD is not installed: apt-get install --no-install-recommends python3-uhd uhd-host")
    named = table()[line]
    lasting = {one for one in named if not one.endswith(BRIEF)}
    found = opened([*line.split()[1:], *LINES[line]], place, lasting)
    said = (place / "stdout").read_text(errors="replace")[-2000:]
    assert lasting <= found <= {one.removesuffix(BRIEF) for one in named}, said
    assert "Traceback" not in said


@pytest.mark.timeout(300)
def test_what_only_computes_opens_nothing(place: Path) -> None:
    lines = [" ".join([name, *arguments]) for name, arguments in COMPUTING.items()]
    done = subprocess.run(
        [sys.executable, "-c", REFUSING, *lines],
        cwd=place,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin", "HOME": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


OPENERS: dict[str, Callable[[], Any]] = {
    "tcp 0.0.0.0": lambda: socket.create_server(("0.0.0.0", 0)),  # noqa: S104
    "tcp ::": lambda: socket.create_server(("::", 0), family=socket.AF_INET6),
    "udp 0.0.0.0": lambda: _bound(socket.AF_INET, ("0.0.0.0", 0)),  # noqa: S104
    "udp 127.0.0.5": lambda: _bound(socket.AF_INET, ("127.0.0.5", 0)),
    "unix @airdp-test-of-sockets": lambda: _listening("\0airdp-test-of-sockets"),
}


def _bound(family: int, address: tuple[str, int]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_DGRAM)
    made.bind(address)
    return made


def _listening(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(path)
    made.listen()
    return made


@pytest.mark.parametrize("said", OPENERS)
def test_what_is_open_to_others_is_seen(said: str) -> None:
    """The test above can fail."""
    before = sockets(os.getpid())
    with OPENERS[said]():
        assert sockets(os.getpid()) - before == {said}


def test_a_folder_that_others_can_enter_is_seen(tmp_path: Path) -> None:
    for mode, said in ((0o700, "unix, private"), (0o755, f"unix {tmp_path / '755' / 's'}")):
        folder = tmp_path / f"{mode:o}"
        folder.mkdir(mode=mode)
        folder.chmod(mode)
        with _listening(str(folder / "s")):
            assert said in sockets(os.getpid())
