"""Whose process is at the other end of a connection within this machine, or has sent a datagram, as the kernel says
(proc(5)).

For servers on loopback addresses, which every user of the machine can reach: TCP and UDP tell nothing of who asks.
"""

import ipaddress
import math
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

Address = tuple[str, int]

_NET = Path("/proc/net")
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9
_ROOT = 0
_MAPPED = "::ffff:"
_ANY = "0.0.0.0"  # noqa: S104 - what a socket may be bound to
_KNOWN_S = 1.0
_LOOKS = 4
"""The kernel writes a table in pieces: what stands between two of them is left out where something before it goes."""


def owner_of(local: Address, remote: Address) -> int | None:
    """Number of the user whose process holds the TCP socket with these two ends; None where none does any more.

    What a process has closed belongs to nobody: the kernel then says 0, which is root's number as well.
    Raises OSError where the kernel does not tell, and ValueError for what is no address.
    """
    for _ in range(_LOOKS):
        for table, prefix in _places_of(local):
            ends = [_spelled((prefix + host, port)) for host, port in (local, remote)]
            for fields in _sockets(table):
                if [fields[_LOCAL], fields[_REMOTE]] == ends:
                    return int(fields[_UID]) if fields[_INODE] != "0" else None
    return None


def _places_of(address: Address) -> Iterator[tuple[str, str]]:
    """Tables in which a TCP socket with this address may stand, each with what its addresses begin with there.

    A socket of IPv6 can talk to IPv4 as well, and has mapped addresses then (RFC 4291).
    """
    version = ipaddress.ip_address(address[0]).version
    if version == 4:
        yield "tcp", ""
    yield "tcp6", _MAPPED if version == 4 else ""


def senders_at(address: Address) -> set[int]:
    """Numbers of all users whose processes hold a UDP socket of IPv4 that sends from there; more than one may.

    Raises OSError where the kernel does not tell, and ValueError for what is no address.
    """
    places = {_spelled((host, address[1])) for host in (address[0], _ANY)}
    found: set[int] = set()
    for _ in range(_LOOKS):
        found = {int(fields[_UID]) for fields in _sockets("udp") if fields[_LOCAL] in places}
        if found:
            break
    return found


def _sockets(table: str) -> Iterator[list[str]]:
    """The fields of each socket of a table; nothing where the kernel has no such protocol."""
    try:
        text = (_NET / table).read_text(encoding="ascii")
    except FileNotFoundError:
        return
    for line in text.splitlines()[1:]:
        yield line.split()


def _spelled(address: Address) -> str:
    """As the kernel writes it: the address in words of 32 bits, each as a number in the machine's order."""
    packed = ipaddress.ip_address(address[0]).packed
    words = (packed[start : start + 4] for start in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words) + f":{address[1]:04X}"


def is_own(peer: Address, here: Address) -> bool:
    """Whether the other end of a connection, `peer`, is held by a process of this user, or of root.

    here: this end. False where it cannot be told.
    """
    try:
        return owner_of(peer, here) in (os.getuid(), _ROOT)
    except (OSError, ValueError):
        return False


def peer_is_own(connection: socket.socket) -> bool:
    """The same of a connected TCP socket."""
    try:
        peer, here = connection.getpeername(), connection.getsockname()
    except OSError:
        return False
    return is_own((peer[0], peer[1]), (here[0], here[1]))


class Senders:
    """Who sends datagrams to a socket. Each sender is looked up at its first one, and again once a second."""

    def __init__(self) -> None:
        self._own: set[Address] = set()
        self._since_s = -math.inf

    def is_own(self, sender: Address) -> bool:
        """Whether nobody but this user and root can have sent from there. False where it cannot be told."""
        now_s = time.monotonic()
        if now_s - self._since_s > _KNOWN_S:
            self._own.clear()
            self._since_s = now_s
        if sender in self._own:
            return True
        try:
            owners = senders_at(sender)
        except (OSError, ValueError):
            return False
        if not owners or not owners <= {os.getuid(), _ROOT}:
            return False
        self._own.add(sender)
        return True
