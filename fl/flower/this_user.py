"""Flower's servers for this user alone: `python -m fl.flower.this_user flower-superlink …`.

Whoever can talk to a SuperLink may hand it an app, which then runs with the rights of who started the SuperLink. TLS
tells clients who the server is, and nothing of who they are. So each request is answered only where the kernel says
that its connection belongs to a process of this user, which no client needs to know of.
"""

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from importlib.metadata import entry_points
from typing import Any

from hardware.foundation.peers import is_own

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_REFUSAL = b"this server answers processes of one user only\n"


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
    client, server = scope.get("client"), scope.get("server")
    return client is not None and server is not None and is_own((client[0], client[1]), (server[0], server[1]))


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
