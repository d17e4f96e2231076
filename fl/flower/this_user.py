"""Flower's servers for this user alone: `python -m fl.flower.this_user flower-superlink …`.

Whoever can talk to a SuperLink may hand it an app, which then runs with the rights of who started the SuperLink. TLS
tells clients who the server is, and nothing of who they are. So each request is answered only where the kernel says
that its connection belongs to a process of this user (proc(5), `/proc/net/tcp`), which no client needs to know of.
"""

import os
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Address = tuple[str, int]

_TABLE = Path("/proc/net/tcp")
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9
_REFUSAL = b"this server answers processes of one user only\n"


def owner_of(local: Address, remote: Address) -> int | None:
    """Number of the user whose process holds the IPv4 socket with these two ends; None where none does any more.

    What a process has closed belongs to nobody: the kernel then says 0, which is root's number as well.
    """
    ends = [_spelled(local), _spelled(remote)]
    for line in _TABLE.read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if [fields[_LOCAL], fields[_REMOTE]] == ends:
            return int(fields[_UID]) if fields[_INODE] != "0" else None
    return None


def _spelled(address: Address) -> str:
    """As the kernel writes it: the address as a number in the machine's order."""
    host, port = address
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"


class ThisUserOnly:
    """An ASGI application that passes on what this user asks, and refuses everything else."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one connection of a WebSocket."""
        if scope["type"] == "lifespan" or _is_own(scope):
            await self._application(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(_REFUSAL))]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": _REFUSAL})


def _is_own(scope: Scope) -> bool:
    """False too where it cannot be found out: for IPv6, which Flower's programs do not use here."""
    client, server = scope.get("client"), scope.get("server")
    if not client or not server:
        return False
    try:
        return owner_of((client[0], client[1]), (server[0], server[1])) == os.getuid()
    except OSError:
        return False


def guard_servers() -> None:
    """Put every server that uvicorn starts in this process behind `ThisUserOnly`."""
    import uvicorn

    load = uvicorn.Config.load

    def guarded(self: uvicorn.Config) -> None:
        load(self)
        self.loaded_app = ThisUserOnly(self.loaded_app)

    uvicorn.Config.load = guarded  # type: ignore[method-assign]


def main() -> None:
    """Run the program of Flower's that the first argument names, with those that follow."""
    sys.argv = sys.argv[1:]
    (program,) = entry_points(group="console_scripts", name=sys.argv[0])
    guard_servers()
    sys.exit(program.load()())


if __name__ == "__main__":
    main()
