"""Sockets of virtual radios that stay open for as long as their users are there, whatever becomes of who serves them.

A datagram to a port that nobody has open comes back as an error of the next call, and libuhd ends its whole process
upon that. To one that is open, and not read, it is as to a radio that is switched off: no answer, which is an error
with a name. So who starts a process that serves radios keeps a copy of each of its sockets.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

_AT_ONCE = 100
"""Descriptors in a message; the kernel allows 253."""


@runtime_checkable
class ServesAtSockets(Protocol):
    """An emulation that has sockets to keep."""

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """All that datagrams come to."""
        ...


def hand_over(descriptor: int, emulation: object) -> None:
    """Send copies of an emulation's sockets, where it has any, to the other end of a Unix socket, and close that."""
    sockets = emulation.sockets if isinstance(emulation, ServesAtSockets) else ()
    with socket.socket(fileno=descriptor) as channel:
        for first in range(0, len(sockets), _AT_ONCE):
            batch = [sock.fileno() for sock in sockets[first : first + _AT_ONCE]]
            socket.send_fds(channel, [b"s"], batch)


@contextmanager
def keep(channel: socket.socket) -> Iterator[None]:
    """Take all that comes until the other end is closed, and keep it open for as long as the block lasts."""
    kept: list[int] = []
    try:
        while True:
            said, descriptors, _, _ = socket.recv_fds(channel, 1, _AT_ONCE, socket.MSG_CMSG_CLOEXEC)
            kept += descriptors
            if not said:
                break
        yield
    finally:
        for descriptor in kept:
            os.close(descriptor)
