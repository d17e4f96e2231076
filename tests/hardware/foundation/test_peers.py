"""Who is at the other end of a connection within this machine: this user, or somebody else who can connect too."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hardware.foundation import peers
from hardware.foundation.peers import Senders, is_own, owner_of, peer_is_own, senders_at
from hardware.virtual.iiod.emulator import Emulator
from hardware.virtual.usrp2 import emulator as usrp2
from hardware.virtual.usrp2.port import CONTROL
from hardware.virtual.usrp2.side_channel import PORT as FAULTS
from hardware.virtual.usrp2.side_channel import ask
from tests.hardware.virtual.iiod.raw_client import RawClient, address, make_lab
from tests.hardware.virtual.usrp2 import uhd_client

NOBODY = 65534
ASK = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
connection.sendall(sys.argv[3].encode())
connection.shutdown(socket.SHUT_WR) if sys.argv[4] == "end" else None
print(connection.recv(64))
"""

TELL = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.settimeout(float(sys.argv[4]))
sock.sendto(bytes.fromhex(sys.argv[3]), (sys.argv[1], int(sys.argv[2])))
try:
    print(len(sock.recv(9216)) > 0)
except TimeoutError:
    print("silence")
"""
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")


def as_user(user: int, program: str, *arguments: str) -> str:
    """What a process of that user prints, or the last line of why it failed."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, *arguments],
        user=user,
        group=user,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


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


def test_a_socket_of_ipv6_that_talks_to_ipv4_has_an_owner_too() -> None:
    """As clients in Java and Go open them. The server sees an address of IPv4."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET6) as client:
        client.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
        accepted, _ = server.accept()
        with accepted:
            assert accepted.family == socket.AF_INET
            assert peer_is_own(accepted)


@pytest.mark.parametrize(("host", "told"), [("127.0.0.1", ""), ("127.0.0.1", "connected"), ("0.0.0.0", "")])  # noqa: S104
def test_the_kernel_says_who_sends_datagrams(host: str, told: str) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as server, socket.socket(type=socket.SOCK_DGRAM) as client:
        server.bind(("127.0.0.1", 0))
        client.bind((host, 0))
        if told:
            client.connect(server.getsockname())
        client.sendto(b"x", server.getsockname())
        sender = server.recvfrom(1)[1]
        assert senders_at(sender) == {os.getuid()}
        assert Senders().is_own(sender)
        client.close()
        assert senders_at(sender) == set()
        assert not Senders().is_own(sender)


def test_a_port_that_went_to_another_user_is_noticed_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    owners, senders, now_s = {os.getuid()}, Senders(), [100.0]
    monkeypatch.setattr(peers, "senders_at", lambda address: owners)
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    assert senders.is_own(("127.0.0.1", 5))
    owners.add(NOBODY)
    now_s[0] += 1.1
    assert not senders.is_own(("127.0.0.1", 5))
    owners.discard(NOBODY)
    assert senders.is_own(("127.0.0.1", 5))


@pytest.mark.parametrize(("owner", "own"), [(os.getuid(), True), (0, True), (os.getuid() + 1, False), (None, False)])
def test_root_may_as_this_user_may(monkeypatch: pytest.MonkeyPatch, owner: int | None, own: bool) -> None:
    monkeypatch.setattr(peers, "owner_of", lambda local, remote: owner)
    assert is_own(("127.0.0.1", 5), ("127.0.0.1", 6)) is own


@pytest.mark.parametrize("host", ["not an address", "", "10.1.2.3"])
def test_who_cannot_be_told_is_somebody_else(host: str) -> None:
    assert not is_own((host, 5), ("127.0.0.1", 6))


@needs_root
def test_a_virtual_pluto_answers_its_user_and_nobody_else() -> None:
    with Emulator(make_lab(1), seed=1) as emulator:
        host, port = address(emulator.uris["ps"])
        with RawClient(emulator.uris["ps"]) as client:
            assert client.command("TIMEOUT 1000") == 0
        said = [as_user(user, ASK, host, str(port), "TIMEOUT 1000\r\n", "stay") for user in (0, NOBODY)]
    assert said[0] == "b'0\\n'"
    assert said[1] == "b''" or "reset" in said[1]


@needs_root
def test_a_virtual_usrp_obeys_its_user_and_nobody_else() -> None:
    """At its own ports, and at the one for faults, where a box can be told to vanish."""
    order, hello = json.dumps({"do": {"frozen": 1}}).encode(), bytes([0, 0, 0, 12, 0, 0, 0, ord("a")]) + bytes(28)
    with usrp2.Emulator(uhd_client.make_lab(1), seed=1) as emulator:
        uri = emulator.uris["ps"]
        host = uri.removeprefix("addr=")
        for port, datagram in ((CONTROL, hello), (FAULTS, order)):
            assert as_user(NOBODY, TELL, host, str(port), datagram.hex(), "0.5") == "silence"
        assert not ask(uri)["frozen"]
        for port, datagram in ((CONTROL, hello), (FAULTS, order)):
            assert as_user(0, TELL, host, str(port), datagram.hex(), "30") == "True"
        assert ask(uri)["frozen"]


def test_who_stands_between_two_pieces_of_the_kernels_table_is_looked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One lookup in a thousand finds nobody where sockets come and go."""
    read = peers._sockets
    looks: list[str] = []

    def torn(table: str) -> Iterator[list[str]]:
        looks.append(table)
        return iter(()) if len(looks) < 4 else read(table)

    monkeypatch.setattr(peers, "_sockets", torn)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        assert senders_at(sock.getsockname()) == {os.getuid()}
    looks.clear()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert owner_of(*ends_of(client)) == os.getuid()
