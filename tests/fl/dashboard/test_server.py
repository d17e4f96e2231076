"""The page's server: who may ask, what it answers, and that it changes nothing."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from fl.dashboard import server as module
from fl.dashboard.beside import page_beside
from fl.dashboard.server import Listening, parse_listen, serve
from fl.errors import ConfigError

LOCAL = Listening("127.0.0.1", 0, "")
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "x" * 22 + "==",
    "Sec-WebSocket-Version": "13",
}


def served(folder: Path, listening: Listening, ask: Callable[[str], Awaitable[Any]]) -> Any:
    """What `ask` returns, given the URL of a page that is being served meanwhile."""

    async def both() -> Any:
        until, url = asyncio.Event(), asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve(folder, listening, url.set_result, until, strict_port=True))
        try:
            return await asyncio.wait_for(ask(await url), 60)
        finally:
            until.set()
            await serving

    return asyncio.run(both())


@asynccontextmanager
async def connected(address: "str | HTTPRequest") -> AsyncIterator[WebSocketClientConnection]:
    """A browser's end of the socket, closed and gone at the end: its frames are read until there are no more."""
    browser = await websocket_connect(address)
    try:
        yield browser
    finally:
        browser.close()
        while await browser.read_message() is not None:
            continue


async def code(url: str, **about: Any) -> int:
    try:
        return (await AsyncHTTPClient().fetch(HTTPRequest(url, **about))).code
    except HTTPClientError as error:
        return error.code


def test_the_page_asks_for_nothing_else(radio_run: Path) -> None:
    async def ask(url: str) -> Any:
        return await AsyncHTTPClient().fetch(url)

    answer = served(radio_run, LOCAL, ask)
    text = answer.body.decode()
    assert "uPlot" in text
    assert "[[" not in text.split("<script")[0]
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert answer.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(("host", "expected"), [("localhost:1", 200), ("127.0.0.1", 200), ("evil.example", 403)])
def test_a_name_that_was_made_to_point_here_is_refused(radio_run: Path, host: str, expected: int) -> None:
    assert served(radio_run, LOCAL, lambda url: code(url, headers={"Host": host})) == expected


def test_another_sites_page_cannot_read_along(radio_run: Path) -> None:
    async def ask(url: str) -> tuple[int, int]:
        address = url.replace("http", "ws") + "socket"
        refused = await code(url + "socket", headers={**UPGRADE, "Origin": "http://evil.example"})
        async with connected(HTTPRequest(address, headers={"Origin": url.rstrip("/")})) as own:
            frame = await own.read_message()
        assert isinstance(frame, str)
        return refused, len(json.loads(frame)["metrics"]["rows"])

    assert served(radio_run, LOCAL, ask) == (403, 5)


def test_another_user_of_this_machine_needs_a_token(radio_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the page and for its socket."""
    monkeypatch.setattr(module, "peer_is_own", lambda connection: False)

    async def ask(url: str) -> tuple[int, int]:
        return await code(url), await code(f"{url}socket", headers=UPGRADE)

    assert served(radio_run, LOCAL, ask) == (403, 403)
    assert served(radio_run, Listening("127.0.0.1", 0, "secret"), code) == 200


def test_beyond_loopback_a_token_is_needed(radio_run: Path) -> None:
    listening = parse_listen("0.0.0.0:0")
    assert len(listening.token) >= 20

    async def ask(url: str) -> list[int]:
        port = url.split(":")[2].split("/", maxsplit=1)[0]
        base = f"http://127.0.0.1:{port}/"
        assert url.endswith(f"/?token={listening.token}")
        pages = [await code(base + query) for query in ("", "?token=x", f"?token={listening.token}")]
        refused = await code(f"{base}socket", headers=UPGRADE)
        async with connected(f"ws://127.0.0.1:{port}/socket?token={listening.token}") as accepted:
            assert await accepted.read_message() is not None
        return [*pages, refused]

    assert served(radio_run, listening, ask) == [403, 403, 200, 403]


def test_it_only_reads(radio_run: Path, snapshot: Callable[[Path], dict[str, str]]) -> None:
    before = snapshot(radio_run)

    async def ask(url: str) -> list[int]:
        async with connected(url.replace("http", "ws") + "socket") as browser:
            await browser.write_message('{"delete": "everything"}')
            for _ in range(3):
                assert await browser.read_message() is not None
        methods = [await code(url, method=method, body="x") for method in ("POST", "PUT")]
        return [*methods, await code(url, method="DELETE"), await code(url + "../../etc/passwd")]

    assert served(radio_run, LOCAL, ask) == [405, 405, 405, 404]
    assert snapshot(radio_run) == before


def test_a_browser_that_does_not_read_is_not_waited_for(radio_run: Path) -> None:
    """Its frames are left out, and another gets all of its own meanwhile."""

    async def ask(url: str) -> int:
        port = int(url.split(":")[2].rstrip("/"))
        stuck = socket.create_connection(("127.0.0.1", port))
        asked = "".join(f"{name}: {value}\r\n" for name, value in UPGRADE.items())
        stuck.sendall(f"GET /socket HTTP/1.1\r\nHost: localhost\r\n{asked}\r\n".encode())
        frames = 0
        async with connected(f"ws://127.0.0.1:{port}/socket") as browser:
            while frames < 20:
                assert await browser.read_message() is not None
                frames += 1
        stuck.close()
        return frames

    assert served(radio_run, LOCAL, ask) == 20


def test_no_more_pages_than_a_few(radio_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BROWSERS", 1)

    async def ask(url: str) -> str | None:
        address = url.replace("http", "ws") + "socket"
        async with connected(address) as first:
            assert await first.read_message() is not None
            second = await websocket_connect(address)
            assert await second.read_message() is None
            second.close()
        return second.close_reason

    assert served(radio_run, LOCAL, ask) == "no more than 1 pages at once"


@pytest.mark.parametrize(
    ("said", "host", "port", "token"),
    [
        (None, "127.0.0.1", 8750, False),
        (":9000", "127.0.0.1", 9000, False),
        ("localhost", "localhost", 8750, False),
        ("127.0.0.2:1", "127.0.0.2", 1, False),
        ("[::1]:80", "::1", 80, False),
        ("0.0.0.0:80", "0.0.0.0", 80, True),  # noqa: S104
        ("192.168.1.7:80", "192.168.1.7", 80, True),
        ("[::]:80", "::", 80, True),
        ("lab-server", "lab-server", 8750, True),
    ],
)
def test_where_to_listen(said: str | None, host: str, port: int, token: bool) -> None:
    listening = parse_listen(said)
    assert (listening.host, listening.port, bool(listening.token)) == (host, port, token)
    assert parse_listen(said, always_token=True).token


@pytest.mark.parametrize("said", ["127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:-1"])
def test_a_port_that_is_none(said: str) -> None:
    with pytest.raises(ConfigError, match="expected HOST:PORT"):
        parse_listen(said)


def test_a_port_that_is_taken(radio_run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigError, match="give another address"),
            page_beside(radio_run, f"127.0.0.1:{port}"),
        ):
            pass


def test_the_page_beside_a_run_goes_with_it(tmp_path: Path) -> None:
    with page_beside(tmp_path / "not-yet", "127.0.0.1:0") as url:
        assert asyncio.run(code(url)) == 200
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(url.split(":")[2].rstrip("/"))))


def test_bad_input_is_refused(command: Callable[..., Any], tmp_path: Path, radio_run: Path) -> None:
    for arguments, reason in (
        ((tmp_path,), "not the folder of a run"),
        ((tmp_path / "missing",), "not the folder of a run"),
        ((radio_run, "--listen", "127.0.0.1:x"), "expected HOST:PORT"),
    ):
        outcome = command("live", *arguments)
        assert (outcome.code, outcome.out) == (2, "")
        assert reason in outcome.err
