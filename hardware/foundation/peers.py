"""Whose process is at the other end of a connection within this machine, as the kernel says (proc(5)).

For servers on loopback addresses, which every user of the machine can reach: TCP itself tells nothing of who asks.
"""

import ipaddress
import os
import socket
import sys
from pathlib import Path

Address = tuple[str, int]

_TABLES = {4: Path("/proc/net/tcp"), 6: Path("/proc/net/tcp6")}
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9
_ROOT = 0


def owner_of(local: Address, remote: Address) -> int | None:
    """Number of the user whose process holds the TCP socket with these two ends; None where none does any more.

    What a process has closed belongs to nobody: the kernel then says 0, which is root's number as well.
    Raises OSError where the kernel does not tell, and ValueError for what is no address.
    """
    ends = [_spelled(local), _spelled(remote)]
    table = _TABLES[ipaddress.ip_address(local[0]).version]
    for line in table.read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if [fields[_LOCAL], fields[_REMOTE]] == ends:
            return int(fields[_UID]) if fields[_INODE] != "0" else None
    return None


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
