"""The web server of the page: one document, one WebSocket, both read-only.

Who may ask: on a loopback address processes of this user, under a name of this machine (a page of another site that
has made its own name point here is refused). On any other address, or where a token is wanted, whoever has it; it is
part of the URL.
"""

import asyncio
import base64
import hmac
import ipaddress
import json
import logging
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from fl.dashboard.follow import Followed, Sent
from fl.errors import ConfigError
from fl.run.folder import RunFolder
from hardware.foundation.peers import peer_is_own

FRAMES_PER_S = 20
DEFAULT_PORT = 8750
MOST_BROWSERS = 16
_STATIC = Path(__file__).parent / "static"
_HERE_4, _HERE_6 = ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128")
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_MOST_QUEUED_BYTES = 4 << 20


@dataclass(frozen=True)
class Listening:
    """host: an address or name to listen on. port: 0 for any that is free. token: in the URL, empty for none."""

    host: str
    port: int
    token: str

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host == "localhost" or _stays_here(self.host)

    def url(self, port: int) -> str:
        """What to give to a browser."""
        host = _own_address() if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104
        named = f"[{host}]" if ":" in host else host
        return f"http://{named}:{port}/" + (f"?token={self.token}" if self.token else "")


def _own_address() -> str:
    """How others reach this machine, most likely. Nothing is sent: the system is asked which way it would send."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


def _stays_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host) in (_HERE_4 if "." in host else _HERE_6)
    except ValueError:
        return False


def parse_listen(said: str | None, *, always_token: bool = False) -> Listening:
    """`HOST:PORT`, `HOST` or `:PORT`; None for the default, with any port where it is taken."""
    host, colon, port = (said or "").rpartition(":")
    if said and not colon:
        host, port = port, ""
    host = host.strip("[]") or "127.0.0.1"
    if port and (not port.isdecimal() or int(port) > 65535):
        raise ConfigError(
            f"'{said}' is no address for the page: expected HOST:PORT, port 0 to 65535, such as 0.0.0.0:8750"
        )
    listening = Listening(host, int(port) if port else DEFAULT_PORT, "")
    if listening.is_local and not always_token:
        return listening
    return Listening(listening.host, listening.port, secrets.token_urlsafe(16))


class _Guarded(RequestHandler):
    """Requests from whoever may ask, and no others."""

    def initialize(self, listening: Listening, hub: "Hub") -> None:
        self.listening, self.hub = listening, hub

    def prepare(self) -> None:
        host = urlsplit(f"//{self.request.host}").hostname or ""
        if self.listening.is_local and host not in _LOCAL_NAMES:
            raise HTTPError(403, "asked for under another name than this machine's")
        if not self.listening.token and not self._from_this_user():
            raise HTTPError(403, "asked for by another user of this machine: start the page with --token for them")
        token = self.get_query_argument("token", "")
        if self.listening.token and not hmac.compare_digest(token.encode(), self.listening.token.encode()):
            raise HTTPError(403, "without the token that is part of the URL")

    def _from_this_user(self) -> bool:
        stream = getattr(self.request.connection, "stream", None)
        # The socket is gone where the browser is.
        return stream is not None and stream.socket is not None and peer_is_own(stream.socket)

    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")
        self.clear_header("Server")

    def write_error(self, status_code: int, **about: Any) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        error = about.get("exc_info", (None, None, None))[1]
        reason = getattr(error, "log_message", None) or self._reason
        self.finish(f"{status_code}: {reason}\n")


class _Page(_Guarded):
    """The document, with everything in it."""

    def get(self) -> None:
        nonce = base64.b64encode(secrets.token_bytes(16)).decode()
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", policy)
        self.finish(page(nonce))


class _Socket(_Guarded, WebSocketHandler):
    """Sends frames; whatever a browser sends is ignored."""

    sent: Sent
    writing: "asyncio.Future[None] | None" = None

    def open(self, *_: str, **__: str) -> None:
        self.sent = {}
        if not self.hub.add(self):
            self.close(1013, f"no more than {MOST_BROWSERS} pages at once")

    def on_message(self, message: str | bytes) -> None:
        """Read-only: there is nothing to ask for."""

    def on_close(self) -> None:
        self.hub.remove(self)

    def offer(self) -> None:
        """The next frame, unless the last is still on its way: a slow browser gets fewer, nobody waits for it."""
        if self.writing is not None and not self.writing.done():
            return
        frame = json.dumps(self.hub.followed.news(self.sent), allow_nan=False, separators=(",", ":"))
        try:
            self.writing = self.write_message(frame)
        except WebSocketClosedError:
            self.hub.remove(self)
            return
        self.writing.add_done_callback(lambda done: done.exception())


class Hub:
    """The followed run and the browsers that look at it."""

    def __init__(self, followed: Followed) -> None:
        self.followed = followed
        self._browsers: list[_Socket] = []

    def add(self, browser: _Socket) -> bool:
        """False where there are too many."""
        if len(self._browsers) >= MOST_BROWSERS:
            return False
        self._browsers.append(browser)
        return True

    def remove(self, browser: _Socket) -> None:
        """It has gone."""
        if browser in self._browsers:
            self._browsers.remove(browser)

    def tick(self) -> None:
        """Look, and tell everybody. Where nobody looks nothing is read."""
        if self._browsers:
            self.followed.update()
            for browser in tuple(self._browsers):
                browser.offer()


def page(nonce: str) -> str:
    """The document: style and scripts are inside, so that nothing else has to be asked for."""
    parts = {
        name: (_STATIC / name).read_text(encoding="utf-8")
        for name in ("uPlot.min.css", "page.css", "uPlot.iife.min.js", "page.js")
    }
    document = (_STATIC / "page.html").read_text(encoding="utf-8")
    for name, content in parts.items():
        document = document.replace(f"[[{name}]]", content)
    return document.replace("[[nonce]]", nonce)


async def serve(
    path: Path, listening: Listening, on_ready: Callable[[str], None], until: "asyncio.Event", *, strict_port: bool
) -> None:
    """Serve the run at `path` until told to stop. on_ready: gets the URL. strict_port: no other where it is taken."""
    logging.getLogger("tornado.access").setLevel(logging.ERROR)
    hub = Hub(Followed(RunFolder(path)))
    about = {"listening": listening, "hub": hub}
    application = Application(
        [("/", _Page, about), ("/socket", _Socket, about)],
        websocket_max_message_size=1024,
        compress_response=False,
    )
    try:
        try:
            sockets = bind_sockets(listening.port, listening.host)
        except OSError:
            if strict_port:
                raise
            sockets = bind_sockets(0, listening.host)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {listening.host} port {listening.port}: {error.strerror}; give another address"
        ) from error
    server = HTTPServer(application, max_buffer_size=_MOST_QUEUED_BYTES, idle_connection_timeout=60)
    server.add_sockets(sockets)
    on_ready(listening.url(sockets[0].getsockname()[1]))
    try:
        while not until.is_set():
            hub.tick()
            try:
                await asyncio.wait_for(until.wait(), 1.0 / FRAMES_PER_S)
            except TimeoutError:
                continue
        hub.tick()
        # What was just written shall arrive.
        await asyncio.sleep(0.2)
    finally:
        server.stop()
        await server.close_all_connections()
