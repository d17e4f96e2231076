"""A flowgraph as a process: when it is ready, why it ended, and that it ends."""

import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import flowgraphs.runtime
from flowgraphs.build import build
from flowgraphs.errors import FlowgraphError, UnknownNameError
from flowgraphs.runtime import FlowgraphProcess
from flowgraphs.source import variant
from tests.conftest import REPOSITORY
from tests.flowgraphs.streams import TIMEOUT_S, Running, Streams, free_port
from tests.gnuradio_needed import needs_gnuradio


def addresses(streams: Streams) -> dict[str, Any]:
    return {"samples_in": streams.address("in"), "samples_out": streams.address("out"), "control_port": free_port()}


def stand_in(folder: Path, code: str) -> Path:
    """A program in the place of a compiled graph, which does what a graph should not."""
    (folder / "client_tx.grc").write_text(variant("client_tx"))
    program = folder / "client_tx.py"
    program.write_text(textwrap.dedent(code))
    return program


@needs_gnuradio
def test_the_end_of_its_input_ends_it(streams: Streams) -> None:
    with Running("client_tx", **addresses(streams)) as graph:
        process = graph.process._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        assert graph.process.wait(TIMEOUT_S)
        assert graph.process.exit_code == 0
        assert not graph.process.alive


@needs_gnuradio
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(streams: Streams, number: signal.Signals) -> None:
    with Running("client_tx", **addresses(streams)) as graph:
        assert graph.process._process is not None
        graph.process._process.send_signal(number)
        assert graph.process.wait(TIMEOUT_S)
        assert graph.process.exit_code == 0


@needs_gnuradio
def test_it_stops_with_samples_under_way_and_nobody_to_take_them(streams: Streams) -> None:
    with Running("client_tx", **addresses(streams)) as graph:
        feed = streams.feed("in")
        for _ in range(8):
            feed.send([0.5] * 8192)
    assert graph.process.exit_code == 0


@needs_gnuradio
def test_it_does_not_outlive_who_started_it(streams: Streams) -> None:
    starter = f"""
        import os, signal
        from pathlib import Path
        from flowgraphs.runtime import FlowgraphProcess
        graph = FlowgraphProcess(Path({str(build("client_tx"))!r}), {addresses(streams)!r})
        graph.start()
        graph.wait_until_ready()
        print(graph._process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(starter)], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    try:
        watched = os.pidfd_open(int(killed.stdout))
    except ProcessLookupError:
        return
    with os.fdopen(watched) as handle:
        assert select.select([handle], [], [], TIMEOUT_S)[0], "it still runs"


@needs_gnuradio
def test_an_address_in_use_is_named_before_anything_starts(streams: Streams) -> None:
    with Running("client_tx", **addresses(streams)) as first:
        taken = {name: first.process.parameters[name] for name in ("samples_out", "control_port")}
        other = FlowgraphProcess(build("client_tx"), taken)
        with pytest.raises(
            FlowgraphError, match=r"cannot listen at ipc://.*\(samples_out\) and http://.*already in use"
        ):
            other.start()
        other.stop()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        other = FlowgraphProcess(build("client_tx"), {"samples_out": address, "control_port": free_port()})
        with pytest.raises(FlowgraphError, match=rf"cannot listen at {address} \(samples_out\): already in use"):
            other.start()
        other.stop()


@needs_gnuradio
def test_a_graph_that_cannot_start_gives_its_reason(streams: Streams) -> None:
    # Nothing answers as a Pluto there: the port of a web server that is not one.
    values = {**addresses(streams), "pluto_uri": "ip:127.0.0.1:1"}
    with (
        FlowgraphProcess(build("client_tx", {"device": "pluto"}), values) as graph,
        pytest.raises(FlowgraphError, match=r"^client_tx ended: RuntimeError: Unable to create context$"),
    ):
        graph.wait_until_ready(TIMEOUT_S)
    assert graph.reason() == "RuntimeError: Unable to create context"


@needs_gnuradio
def test_a_block_that_fails_ends_the_graph_instead_of_silencing_it(streams: Streams) -> None:
    with Running("client_tx", **addresses(streams)) as graph:
        # Seven bytes are no whole sample.
        streams.feed("in").socket.send(b"\xf0\x5f\x01" + bytes(16) + b"seven b")
        assert graph.process.wait(TIMEOUT_S)
        assert "Incompatible vector sizes" in graph.process.reason()
        assert "ended by SIGABRT" in graph.process.reason()


def test_a_graph_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flowgraphs.runtime, "gnuradio_python", lambda: sys.executable)
    program = stand_in(tmp_path, "print('looking for the radio'); input()")
    with (
        FlowgraphProcess(program, {"control_port": free_port(), "samples_out": "tcp://127.0.0.1:9"}) as graph,
        pytest.raises(FlowgraphError, match=r"did not answer at http://127.0.0.1:\d+ within 0.5 s: "),
    ):
        graph.wait_until_ready(0.5)


def test_a_graph_that_does_not_want_to_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flowgraphs.runtime, "gnuradio_python", lambda: sys.executable)
    monkeypatch.setattr(flowgraphs.runtime, "TERMINATE_AFTER_S", 0.2)
    monkeypatch.setattr(flowgraphs.runtime, "KILL_AFTER_S", 0.4)
    code = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: print("not yet", file=sys.stderr))
        open(sys.argv[0] + ".ready", "w").close()
        while True:
            time.sleep(60)
    """
    program = stand_in(tmp_path, code)
    with FlowgraphProcess(program, {"control_port": free_port(), "samples_out": "tcp://127.0.0.1:9"}) as graph:
        while not Path(f"{program}.ready").exists():
            assert not graph.wait(0.01)
    assert graph.exit_code == -signal.SIGKILL
    assert graph.reason() == "not yet; ended by SIGKILL"


def test_a_parameter_that_the_graph_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown parameter 'gain' of client_tx"):
        FlowgraphProcess(stand_in(tmp_path, ""), {"gain": 1.0})


def test_what_follows_a_traceback_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flowgraphs.runtime, "gnuradio_python", lambda: sys.executable)
    program = stand_in(tmp_path, "print('x :info: chatter'); raise ValueError('no antenna\\nat all')")
    with FlowgraphProcess(program, {"control_port": free_port(), "samples_out": "tcp://127.0.0.1:9"}) as graph:
        assert graph.wait(TIMEOUT_S)
        assert graph.reason() == "ValueError: no antenna; at all"
        with pytest.raises(FlowgraphError, match=r"^client_tx ended: ValueError: no antenna; at all$"):
            graph.require_alive()
    # Also after it has been cleared away.
    assert graph.reason() == "ValueError: no antenna; at all"


def test_a_window_needs_a_display(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "ps_monitor.grc").write_text(variant("ps_monitor"))
    graph = FlowgraphProcess(tmp_path / "ps_monitor.py")
    with pytest.raises(FlowgraphError, match=r"there is no display; .*`xvfb-run airdp flowgraph ps_monitor"):
        graph.start()
    graph.stop()
