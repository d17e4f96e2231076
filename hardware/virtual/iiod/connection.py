"""A client's socket: lines in, payloads in and out, all with limits.

A client may be idle as long as it likes between commands. In the middle of a line, a payload or a reply it may stall
for `STALL_S` at most; then the connection is closed.
"""

import select
import socket
from collections.abc import Callable
from typing import TypeVar

LONGEST_LINE = 4096
STALL_S = 30.0
_CHUNK = 1 << 16
Result = TypeVar("Result")


class ClosedError(Exception):
    """The client is gone, or does not deserve to be listened to any longer."""


class Connection:
    """A connected socket with a buffer for lines."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(STALL_S)
        self._socket = sock
        self._buffer = bytearray()
        self._hang_up = select.poll()
        self._hang_up.register(sock, select.POLLRDHUP)

    def line(self) -> bytes:
        """The next line without its end; waits for it."""
        end = self._buffer.find(b"\n")
        while end < 0:
            if len(self._buffer) > LONGEST_LINE:
                raise ClosedError
            self._buffer += self._received(may_idle=not self._buffer)
            end = self._buffer.find(b"\n")
        if end > LONGEST_LINE:
            raise ClosedError
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _received(self, may_idle: bool) -> bytes:
        while True:
            try:
                data = self._socket.recv(_CHUNK)
            except TimeoutError:
                if may_idle:
                    continue
                raise ClosedError from None
            except OSError as error:
                raise ClosedError from error
            if not data:
                raise ClosedError
            return data

    def fill(self, target: memoryview) -> None:
        """Receive exactly as many bytes as `target` has."""
        early = min(len(self._buffer), len(target))
        target[:early] = self._buffer[:early]
        del self._buffer[:early]
        while early < len(target):
            received = self._io(lambda: self._socket.recv_into(target[early:]))  # noqa: B023 - called at once
            if not received:
                raise ClosedError
            early += received

    def send(self, data: bytes, payload: memoryview | None = None) -> None:
        """Send all of `data`, then all of `payload`."""
        if payload is None:
            self._io(lambda: self._socket.sendall(data))
            return
        # One call where it fits, so that a small reply is one packet.
        sent = self._io(lambda: self._socket.sendmsg([data, payload]))
        if sent < len(data):
            self._io(lambda: self._socket.sendall(data[sent:]))
            sent = len(data)
        if sent < len(data) + len(payload):
            self._io(lambda: self._socket.sendall(payload[sent - len(data) :]))

    def _io(self, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except OSError as error:
            raise ClosedError from error

    @property
    def gone(self) -> bool:
        """Whether the client has hung up."""
        return bool(self._hang_up.poll(0))

    def shut(self) -> None:
        """End it from any thread: whoever waits on it gets `ClosedError`."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # It was over already.
            return

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()
