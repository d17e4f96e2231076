"""How much a client's socket on this machine can still take, asked of the kernel (NETLINK_SOCK_DIAG).

UDP tells a sender nothing about its receiver, and what finds no room is lost. In lockstep nothing may be.
"""

import socket
import struct

from hardware.radio.errors import HardwareError
from hardware.virtual.usrp2.wire.batches import Address

_SOCK_DIAG = 4
_BY_FAMILY = 20
_REQUEST = 1
_MEMORY_ATTRIBUTE = 15 - 8
_ANY_COOKIE = 0xFFFFFFFF
_ANSWER_OFFSET = 16 + 72

MOST_WAITING_BYTES = 192 << 10
"""In a client's socket, as the kernel counts."""


class SocketRoom:
    """Asks about the sockets that datagrams go to."""

    def __init__(self) -> None:
        try:
            self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)
        except OSError as error:
            raise HardwareError(
                f"the kernel does not tell how full sockets are ({error}): lockstep needs it, serve with --paced"
            ) from error

    def close(self) -> None:
        """Give the socket back."""
        self._netlink.close()

    def free_bytes(self, sender: Address, receiver: Address) -> int | None:
        """What the socket that gets datagrams from `sender` is to take now; None where there is no such socket.

        It is not filled up: a client that does not read is found out soon, and little of what it reads is old.
        """
        identity = struct.pack(">HH", sender[1], receiver[1])
        identity += socket.inet_aton(sender[0]) + bytes(12) + socket.inet_aton(receiver[0]) + bytes(12)
        identity += struct.pack("=III", 0, _ANY_COOKIE, _ANY_COOKIE)
        body = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_UDP, 1 << _MEMORY_ATTRIBUTE - 1, 0, 0xFFFFFFFF)
        body += identity
        self._netlink.send(struct.pack("=IHHII", 16 + len(body), _BY_FAMILY, _REQUEST, 0, 0) + body)
        answer = self._netlink.recv(65536)
        return _free(answer)


def _free(answer: bytes) -> int | None:
    """From the attribute that has the size of the buffer and what is in it."""
    position = _ANSWER_OFFSET
    while position + 4 <= len(answer):
        length, kind = struct.unpack_from("=HH", answer, position)
        if kind == _MEMORY_ATTRIBUTE and length >= 12:
            used, room = struct.unpack_from("=II", answer, position + 4)
            return max(min(int(room) // 2, MOST_WAITING_BYTES) - int(used), 0)
        position += max((length + 3) & ~3, 4)
    return None
