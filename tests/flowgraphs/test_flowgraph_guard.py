"""Who may set the parameters of a running flowgraph, and to what; and that parameters are data."""

import base64
import http.client
import socket
import sys
import xmlrpc.client
from collections.abc import Iterator
from pathlib import Path

import pytest

import flowgraphs.errors
import flowgraphs.runtime
from flowgraphs.build import build, cache_folder
from flowgraphs.runtime import FlowgraphProcess
from flowgraphs.source import describe, variant
from tests.flowgraphs.streams import TIMEOUT_S, Running, Streams, free_port
from tests.gnuradio_needed import needs_gnuradio

# What GNU Radio Companion makes of the server block, around the parameters that the guard looks at.
GRAPH = """
import sys, threading
from xmlrpc.server import SimpleXMLRPCServer

class Graph:
    def __init__(self, port):
        self.values = {"center_hz": 2.45e9, "bandwidth_hz": 4e6, "tx_gain_db": -80.0, "control_port": port}
        self.server = SimpleXMLRPCServer(("127.0.0.1", port), allow_none=True)
        self.server.register_instance(self)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __getattr__(self, name):
        action, _, key = name.partition("_")
        if action == "get":
            return lambda: self.values.get(key, "")
        return lambda value: self.values.update({key: value})

    def stop(self):
        print("stopped by a stranger", flush=True)

if __name__ == "__main__":
    port = next(int(part.split("=")[1]) for part in sys.argv if part.startswith("--control-port="))
    graph = Graph(port)
    sys.stdin.read()
"""
CALL = xmlrpc.client.dumps((0.0,), "set_tx_gain_db").encode()


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlowgraphProcess]:
    """Limits: -80 to -20 dB, within 2.40 to 2.48 GHz."""
    monkeypatch.setattr(flowgraphs.runtime, "gnuradio_python", lambda: sys.executable)
    (tmp_path / "client_tx.grc").write_text(variant("client_tx"))
    (tmp_path / "client_tx.py").write_text(GRAPH)
    limits = {"tx_gain_db": (-80.0, -20.0), "band_hz": (2.40e9, 2.48e9)}
    made = FlowgraphProcess(tmp_path / "client_tx.py", {"control_port": free_port()}, limits)
    with made:
        made.wait_until_ready(TIMEOUT_S)
        yield made


def status(graph: FlowgraphProcess, headers: dict[str, str], body: bytes = CALL, path: str = "/RPC2") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", int(graph.parameters["control_port"]), timeout=TIMEOUT_S)
    try:
        connection.request("POST", path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def credentials(graph: FlowgraphProcess) -> str:
    return "Basic " + base64.b64encode(graph.control_url.removeprefix("http://").partition("@")[0].encode()).decode()


def test_only_who_has_the_token_may_call(graph: FlowgraphProcess) -> None:
    right = credentials(graph)
    wrong = "Basic " + base64.b64encode(b"airdp:" + b"A" * 32).decode()
    assert status(graph, {"Content-Type": "text/plain"}) == 401
    assert status(graph, {"Authorization": wrong}) == 401
    assert status(graph, {"Authorization": right.replace("Basic", "Bearer")}) == 401
    assert status(graph, {"Authorization": right}) == 200
    assert status(graph, {"Authorization": right}, path="/") == 200
    with xmlrpc.client.ServerProxy(graph.control_url) as proxy:
        assert proxy.get_tx_gain_db() == -80.0, "what was refused has changed nothing"


def test_web_pages_and_other_hosts_are_refused(graph: FlowgraphProcess) -> None:
    """Even with the token: a browser adds an Origin to what a page sends, and a rebound name as Host."""
    right = {"Authorization": credentials(graph)}
    assert status(graph, {**right, "Origin": "http://evil.example"}) == 403
    assert status(graph, {**right, "Origin": "null"}) == 403
    assert status(graph, {**right, "Host": "evil.example"}) == 403
    assert status(graph, {**right, "Host": f"localhost:{graph.parameters['control_port']}"}) == 200
    assert status(graph, right, body=b"x" * 70_000) == 413


def test_the_token_is_new_at_each_start_and_not_on_the_command_line(graph: FlowgraphProcess, tmp_path: Path) -> None:
    token = graph.control_url.partition("@")[0].rpartition(":")[2]
    assert len(token) >= 32
    assert token not in FlowgraphProcess(tmp_path / "client_tx.py").control_url
    assert graph._process is not None
    assert token.encode() not in Path(f"/proc/{graph._process.pid}/cmdline").read_bytes()
    assert token not in graph.control_place


@pytest.mark.parametrize(
    ("method", "value", "said"),
    [
        ("set_tx_gain_db", 0.0, "allows -80 to -20"),
        ("set_tx_gain_db", -81.0, "allows -80 to -20"),
        ("set_tx_gain_db", "0", "expected a number"),
        ("set_tx_gain_db", True, "expected a number"),
        ("set_center_hz", 5.8e9, "allows 2400000000 to 2480000000 Hz"),
        ("set_bandwidth_hz", "wide", "expected a number"),
        ("set_samples_in", 3, "expected text"),
        ("set_control_port", 1, "cannot be set"),
        ("stop", None, "no method"),
        ("_dispatch", 1.0, "no method"),
        ("set_values", 1.0, "no method"),
        ("system.listMethods", None, "system.listMethods"),
    ],
)
def test_limits_hold_inside_the_flowgraph(graph: FlowgraphProcess, method: str, value: object, said: str) -> None:
    arguments = () if value is None else (value,)
    with xmlrpc.client.ServerProxy(graph.control_url) as proxy:
        with pytest.raises(xmlrpc.client.Fault, match=said):
            getattr(proxy, method)(*arguments)
        assert (proxy.get_tx_gain_db(), proxy.get_center_hz()) == (-80.0, 2.45e9)
    assert "stopped by a stranger" not in graph.reason()


def test_what_is_heard_stays_in_the_band(graph: FlowgraphProcess) -> None:
    """Parked, only the centre counts: so a radio can be tuned before it is heard."""
    with xmlrpc.client.ServerProxy(graph.control_url) as proxy:
        proxy.set_center_hz(2.479e9)
        with pytest.raises(xmlrpc.client.Fault, match="2481000000"):
            proxy.set_tx_gain_db(-30.0)
        proxy.set_bandwidth_hz(1e6)
        proxy.set_tx_gain_db(-30.0)
        with pytest.raises(xmlrpc.client.Fault, match="would occupy"):
            proxy.set_bandwidth_hz(4e6)
        with pytest.raises(xmlrpc.client.Fault, match="would occupy"):
            proxy.set_center_hz(2.4e9)


def test_a_connection_that_says_nothing_keeps_nobody_waiting(graph: FlowgraphProcess) -> None:
    with (
        socket.create_connection(("127.0.0.1", int(graph.parameters["control_port"]))),
        xmlrpc.client.ServerProxy(graph.control_url) as proxy,
    ):
        assert proxy.get_tx_gain_db() == -80.0


@needs_gnuradio
def test_a_real_graph_is_guarded(streams: Streams) -> None:
    addresses = {"samples_in": streams.address("in"), "samples_out": streams.address("out")}
    with Running("client_tx", **addresses, control_port=free_port()) as running:
        assert status(running.process, {"Content-Type": "text/plain", "Origin": "http://evil.example"}) == 403
        assert status(running.process, {}) == 401
        with xmlrpc.client.ServerProxy(running.process.control_url) as proxy:
            proxy.set_tx_gain_db(-6.0)
            assert proxy.get_tx_gain_db() == -6.0


CODE = [
    "__import__('os').system('touch TRACE')",
    "'+__import__('os').system('touch TRACE')+'",
    '"); __import__("os").system("touch TRACE"); ("',
    "ipc:///tmp/x${open('TRACE', 'w')}",
    "ipc:///tmp/%(default)s{open('TRACE','w')}",
]


@needs_gnuradio
@pytest.mark.parametrize("code", CODE)
def test_a_parameter_is_never_evaluated(streams: Streams, tmp_path: Path, code: str) -> None:
    """Text parameters get code, as `--set` would: the graph starts with that as its text, and nothing else happens."""
    trace = tmp_path / "trace"
    value = code.replace("TRACE", str(trace))
    addresses = {"samples_in": streams.address("in"), "samples_out": streams.address("out")}
    graph = Running("client_tx", **addresses, control_port=free_port(), usrp_args=value, pluto_uri=value)
    with graph as running, xmlrpc.client.ServerProxy(running.process.control_url) as proxy:
        assert proxy.get_usrp_args() == value
        proxy.set_pluto_uri(value)
        assert proxy.get_pluto_uri() == value
    assert not trace.exists()


def test_numbers_and_taps_that_are_code_are_refused() -> None:
    drawn = {**describe("air").parameters, **describe("client_tx").parameters}
    for name in ("tx_gain_db", "sample_rate_hz", "control_port", "taps_1", "delay_samples_1", "samples_in"):
        with pytest.raises(flowgraphs.errors.FlowgraphError, match=name):
            drawn[name].parse("__import__('os').getpid()")


@needs_gnuradio
@pytest.mark.parametrize("harm", ["empty program", "empty drawing", "half a program", "no seal"])
def test_a_damaged_cache_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = build("client_tx")
    whole = program.read_text()
    assert build("client_tx") == program
    if harm == "empty drawing":
        program.with_suffix(".grc").write_text("")
    elif harm == "no seal":
        program.with_suffix(".sha256").unlink()
    else:
        program.write_text("" if harm == "empty program" else whole[: len(whole) // 2])
    assert build("client_tx") == program
    assert program.read_text() == whole
    assert sorted(path.name for path in cache_folder().iterdir()) == [program.parent.name]
