"""ZeroMQ sockets as both ends of a link need them: encrypted, authenticated, bounded, with heartbeats."""

from typing import Any

import zmq

from fl.errors import ConfigError
from fl.nodes.apart.keys import KeyPair
from fl.nodes.apart.wire import LARGEST_BYTES

DOMAIN = "airdp"
HEARTBEAT_MS = 1000
SILENT_MS = 5000
"""After which a peer that answers no heartbeat is taken for gone."""
_LARGEST_ANSWER_BYTES = 1 << 16
"""Of what a node says: numbers and words. A model goes the other way only."""


def server_socket(context: "zmq.Context[Any]", endpoint: str, keys: KeyPair) -> "zmq.Socket[Any]":
    """Bound to `endpoint`. Who may connect is for the authenticator of `DOMAIN`."""
    socket: zmq.Socket[Any] = context.socket(zmq.ROUTER)
    _prepare(socket, keys, _LARGEST_ANSWER_BYTES)
    socket.curve_server = True
    socket.setsockopt_string(zmq.ZAP_DOMAIN, DOMAIN)
    # A node that is not there is an error, not a message that is dropped.
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        socket.close()
        raise ConfigError(
            f"cannot listen at {endpoint}: {error}; expected tcp://ADDRESS:PORT of this machine"
        ) from error
    return socket


def node_socket(context: "zmq.Context[Any]", keys: KeyPair, server_key: bytes) -> "zmq.Socket[Any]":
    """For a server that has the secret of `server_key`; for no other. See `connect`."""
    socket: zmq.Socket[Any] = context.socket(zmq.DEALER)
    _prepare(socket, keys, LARGEST_BYTES)
    socket.curve_serverkey = server_key
    socket.setsockopt(zmq.RECONNECT_IVL, 100)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
    # Nothing is kept for a server that is not there: what it will hear must be true then.
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.SNDTIMEO, 0)
    return socket


def connect(socket: "zmq.Socket[Any]", endpoint: str) -> None:
    """Connect a node's. Whoever wants to know how that goes has a monitor before: what has happened is told to nobody
    who comes later."""
    try:
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        socket.close()
        raise ConfigError(f"cannot reach {endpoint}: {error}; expected tcp://ADDRESS:PORT of the server") from error


def _prepare(socket: "zmq.Socket[Any]", keys: KeyPair, largest_bytes: int) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, largest_bytes)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TTL, SILENT_MS)
    socket.curve_publickey, socket.curve_secretkey = keys.public, keys.secret
