"""Who is at the other end of a connection within this machine: this user, or somebody else who can connect too."""

import os
import socket
import subprocess
import sys

import pytest

from hardware.foundation import peers
from hardware.foundation.peers import is_own, owner_of, peer_is_own
from hardware.virtual.iiod.emulator import Emulator
from tests.hardware.virtual.iiod.raw_client import RawClient, address, make_lab

NOBODY = 65534
ASK = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
connection.sendall(sys.argv[3].encode())
connection.shutdown(socket.SHUT_WR) if sys.argv[4] == "end" else None
print(connection.recv(64))
"""


def ends_of(connection: socket.socket) -> tuple[tuple[str, int], tuple[str, int]]:
    (here, port, *_), (there, other, *_) = connection.getsockname(), connection.getpeername()
    return (here, port), (there, other)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.77.3.250", "::1"])
def test_the_kernel_says_whose_connection_it_is(host: str) -> None:
    """A socket that was closed is nobody's: the kernel's own word for its owner would be 0, root."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        client = socket.create_connection(server.getsockname()[:2])
        ends = ends_of(client)
        accepted, _ = server.accept()
        assert owner_of(*ends) == os.getuid()
        assert owner_of(*reversed(ends)) == os.getuid()
        assert owner_of(ends[0], (host, 1)) is None
        assert peer_is_own(accepted)
        client.close()
        assert owner_of(*ends) is None
        assert not peer_is_own(accepted)
        accepted.close()
        assert not peer_is_own(accepted)


@pytest.mark.parametrize(("owner", "own"), [(os.getuid(), True), (0, True), (os.getuid() + 1, False), (None, False)])
def test_root_may_as_this_user_may(monkeypatch: pytest.MonkeyPatch, owner: int | None, own: bool) -> None:
    monkeypatch.setattr(peers, "owner_of", lambda local, remote: owner)
    assert is_own(("127.0.0.1", 5), ("127.0.0.1", 6)) is own


@pytest.mark.parametrize("host", ["not an address", "", "10.1.2.3"])
def test_who_cannot_be_told_is_somebody_else(host: str) -> None:
    assert not is_own((host, 5), ("127.0.0.1", 6))


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_a_virtual_pluto_answers_its_user_and_nobody_else() -> None:
    with Emulator(make_lab(1), seed=1) as emulator:
        host, port = address(emulator.uris["ps"])
        with RawClient(emulator.uris["ps"]) as client:
            assert client.command("TIMEOUT 1000") == 0
        said = []
        for user in (0, NOBODY):
            done = subprocess.run(
                [sys.executable, "-I", "-c", ASK, host, str(port), "TIMEOUT 1000\r\n", "stay"],
                user=user,
                group=user,
                extra_groups=[],
                capture_output=True,
                text=True,
                check=False,
            )
            said.append(done.stdout.strip() or done.stderr.strip().splitlines()[-1])
    assert said[0] == "b'0\\n'"
    assert said[1] == "b''" or "reset" in said[1]
