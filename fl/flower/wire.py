"""What is said on an air node's socket: one request and one answer a connection, between processes of one user.

A message is two lengths, a MessagePack map of public things, and coordinates as float32 where there are any.
"""

import hmac
import os
import socket
import struct
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError, PrivacyError
from fl.flower.place import SOCKET, checked_place
from phy.errors import AirdpError

Values = NDArray[np.float32]
_LENGTHS = struct.Struct("!IQ")
_LARGEST_HEAD, _LARGEST_BODY = 1 << 20, 1 << 32
_CREDENTIALS = struct.Struct("3i")
_NOTHING = np.zeros(0, np.float32)


class WireError(AirdpError):
    """Bytes that are no message, or a peer that is somebody else."""


def send(connection: socket.socket, content: dict[str, Any], values: Values = _NOTHING) -> None:
    """One message."""
    head = msgpack.packb(content)
    body = np.ascontiguousarray(values, np.float32)
    connection.sendall(_LENGTHS.pack(len(head), body.nbytes) + head)
    if body.size:
        connection.sendall(body.data)


def receive(connection: socket.socket, largest_body: int = _LARGEST_BODY) -> tuple[dict[str, Any], Values]:
    """The message that comes; `WireError` where it is none, or has more than `largest_body` bytes of coordinates."""
    head_bytes, body_bytes = _LENGTHS.unpack(_read(connection, _LENGTHS.size))
    if head_bytes > _LARGEST_HEAD or body_bytes > largest_body or body_bytes % 4:
        raise WireError(f"a message of {head_bytes} and {body_bytes} bytes: expected at most {largest_body}")
    try:
        content = msgpack.unpackb(_read(connection, head_bytes))
    except (ValueError, msgpack.UnpackException) as error:
        raise WireError(f"not a message of an air node: {error}") from error
    if not isinstance(content, dict):
        raise WireError(f"not a message of an air node: {type(content).__name__}")
    return content, np.frombuffer(_read(connection, body_bytes), np.float32)


def _read(connection: socket.socket, count: int) -> bytearray:
    read = bytearray(count)
    view, at = memoryview(read), 0
    while at < count:
        got = connection.recv_into(view[at:])
        if not got:
            raise WireError(f"a connection ended after {at} of {count} bytes")
        at += got
    return read


def require_same_user(connection: socket.socket) -> None:
    """The kernel's word for who is at the other end; `WireError` unless it is this user."""
    _, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if uid != os.getuid():
        raise WireError(f"the peer is user {uid}: expected {os.getuid()}")


def require_token(content: dict[str, Any], expected: str) -> None:
    """`WireError` unless the request carries the token."""
    given = content.get("token")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), expected.encode()):
        raise WireError("the token is not that of this air node")


def request(
    place: Path, content: dict[str, Any], values: Values = _NOTHING, *, timeout_s: float | None = None
) -> tuple[dict[str, Any], Values]:
    """Ask the air node at `place`. What it refuses is a `PrivacyError` with its reason."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(checked_place(place) / SOCKET))
            require_same_user(connection)
            send(connection, content, values)
            answer, received = receive(connection)
        except TimeoutError as error:
            raise ConfigError(f"the air node at {place} has not answered within {timeout_s:g} s") from error
        except OSError as error:
            raise ConfigError(f"the air node at {place} is gone: {error.strerror}; see its log") from error
    if "error" in answer:
        raise PrivacyError(str(answer["error"]))
    return answer, received
