"""Many datagrams with one system call: `recvmmsg` and `sendmmsg` of the C library, which Python does not have."""

import ctypes
import errno
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

LONGEST_DATAGRAM = 9216
"""Longer ones are cut: no network carries them to a real one either."""
_BATCH = 64
_AF_INET = socket.AF_INET


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.c_void_p),
        ("vectors_length", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    _fields_ = (("header", _Header), ("length", ctypes.c_uint))


_LIBC = ctypes.CDLL(None, use_errno=True)
_DONT_WAIT = socket.MSG_DONTWAIT
Address = tuple[str, int]


class Inbox:
    """Receives up to 64 datagrams at once, each with who sent it. One for each thread: what it gives out is reused."""

    def __init__(self) -> None:
        self._bytes = np.zeros((_BATCH, LONGEST_DATAGRAM), np.uint8)
        self._names = np.zeros((_BATCH, 16), np.uint8)
        self._vectors = (_Vector * _BATCH)()
        self._messages = (_Message * _BATCH)()
        for index, message in enumerate(self._messages):
            self._vectors[index] = _Vector(self._bytes[index].ctypes.data, LONGEST_DATAGRAM)
            message.header.name = self._names[index].ctypes.data
            message.header.vectors = ctypes.addressof(self._vectors[index])
            message.header.vectors_length = 1
        self._rows = [memoryview(row) for row in self._bytes]

    def receive(self, sock: socket.socket) -> list[tuple[memoryview, Address]]:
        """What is there, at most 64; nothing where nothing is."""
        for message in self._messages:
            message.header.name_length = 16
        count = _LIBC.recvmmsg(sock.fileno(), ctypes.byref(self._messages), _BATCH, _DONT_WAIT, None)
        if count < 0:
            # An answer to somebody who went away comes back as an error of the next call.
            return []
        return [(self._rows[i][: self._messages[i].length], _address(self._names[i])) for i in range(count)]


def _address(name: NDArray[np.uint8]) -> Address:
    raw = name.tobytes()
    return socket.inet_ntoa(raw[4:8]), int.from_bytes(raw[2:4], "big")


def send_rows(sock: socket.socket, rows: NDArray[np.uint32], to: Address) -> int:
    """Send each row as a datagram; how many left. The rest found no room, or nobody listens there any more."""
    count, length = len(rows), rows.strides[0]
    name = struct.pack("=H", _AF_INET) + struct.pack(">H", to[1]) + socket.inet_aton(to[0]) + bytes(8)
    held = np.frombuffer(name, np.uint8)
    order = np.arange(count, dtype=np.uint64)
    vectors = np.empty((count, 2), np.uint64)
    vectors[:, 0] = rows.ctypes.data + order * np.uint64(length)
    vectors[:, 1] = length
    messages = np.zeros((count, ctypes.sizeof(_Message) // 8), np.uint64)
    messages[:, 0] = held.ctypes.data
    messages[:, 1] = len(name)
    messages[:, 2] = vectors.ctypes.data + order * np.uint64(ctypes.sizeof(_Vector))
    messages[:, 3] = 1
    sent = 0
    while sent < count:
        first = ctypes.c_void_p(messages[sent:].ctypes.data)
        done = _LIBC.sendmmsg(sock.fileno(), first, count - sent, _DONT_WAIT)
        if done < 0:
            if ctypes.get_errno() == errno.ECONNREFUSED:
                # The error of an earlier datagram, which this call has cleared.
                sent += 1
                continue
            break
        sent += done
    return sent


def send_all(sock: socket.socket, datagrams: Sequence[bytes], to: Address) -> None:
    """Send a few small ones, as far as they find a way: some are asked for by nobody who could be answered."""
    for datagram in datagrams:
        with suppress(OSError):
            sock.sendto(datagram, _DONT_WAIT, to)
