"""Flower's servers answer processes of this user, and nobody else who can connect to them."""

import asyncio
import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="no flwr: pip install 'airdp[flower]'")

from fl.flower import federation, this_user
from fl.flower.federation import free_port
from fl.flower.this_user import ThisUserOnly
from hardware.foundation.child_processes import child_environment

NOBODY = 65534
ASK = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=240)
connection.request("POST", "/v1/control/start-run", b"", {"Content-Type": "application/json"})
print(connection.getresponse().status)
"""


def answer_to(scope: MutableMapping[str, Any]) -> list[MutableMapping[str, Any]]:
    said: list[MutableMapping[str, Any]] = []

    async def answers(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "reached"})

    async def send(message: MutableMapping[str, Any]) -> None:
        said.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {}

    asyncio.run(ThisUserOnly(answers)(scope, receive, send))
    return said


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_requests_of_others_never_reach_the_application(monkeypatch: pytest.MonkeyPatch, kind: str, own: bool) -> None:
    monkeypatch.setattr(this_user, "is_own", lambda peer, here: own)
    said = answer_to({"type": kind, "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 6)})
    if own:
        assert said == [{"type": "reached"}]
    else:
        assert said[0]["type"] == ("http.response.start" if kind == "http" else "websocket.close")
        assert said[0].get("status", 403) == 403
    assert answer_to({"type": "lifespan"}) == [{"type": "reached"}]


@pytest.mark.parametrize("client", [None, ("::1", 5), ("::ffff:127.0.0.1", 5), ("not an address", 5)])
def test_who_cannot_be_told_is_refused(client: tuple[str, int] | None) -> None:
    assert answer_to({"type": "http", "client": client, "server": ("127.0.0.1", 6)})[0]["status"] == 403


@pytest.fixture(scope="module")
def superlink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a real SuperLink, as `airdp flower` starts it."""
    home, port = tmp_path_factory.mktemp("flower"), free_port()
    environment = {**child_environment(), "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0"}
    environment |= {"FLWR_DISABLE_UPDATE_CHECK": "1"}
    command = ["flower-superlink", "--insecure", "--simulation", "--isolation", "process", "--port", str(port)]
    with (home / "log").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "fl.flower.this_user", *command],
            cwd=home,
            env=environment,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(port, process, home / "log")
        yield port
    finally:
        process.terminate()
        process.wait(30)


def wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(log.read_text())


def test_this_user_reaches_a_superlink(superlink: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", superlink, timeout=240)
    connection.request("GET", "/openapi.json")
    assert connection.getresponse().status != 403
    connection.close()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_another_user_of_this_machine_does_not(superlink: int) -> None:
    """With what starts an app, which would then run as this user."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", ASK, str(superlink)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("403\n", "")


def test_ray_gets_a_token_that_is_new_at_each_start() -> None:
    """Its ports are on all addresses; without the token its workers take tasks from whoever reaches them."""
    environments = []
    for _ in range(2):
        with federation._federation("insecure = true") as made:
            environments.append(made.environment)
    assert {environment["RAY_AUTH_MODE"] for environment in environments} == {"token"}
    tokens = {environment["RAY_AUTH_TOKEN"] for environment in environments}
    assert len(tokens) == 2
    assert min(map(len, tokens)) == 64
