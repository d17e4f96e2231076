"""`airdp flowgraph` as a user meets it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from xmlrpc.client import Fault, ServerProxy

import numpy as np
import pytest

from flowgraphs.source import NAMES
from tests.conftest import REPOSITORY, START, Outcome
from tests.flowgraphs.streams import TIMEOUT_S, Streams, free_port
from tests.gnuradio_needed import needs_gnuradio

Command = Callable[..., Outcome]


@contextmanager
def started(*arguments: object) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", START, "flowgraph", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def settings(streams: Streams) -> list[str]:
    values = {"samples_in": streams.address("in"), "samples_out": streams.address("out"), "control_port": free_port()}
    return [part for name, value in values.items() for part in ("--set", f"{name}={value}")]


def test_without_a_name_it_lists_what_there_is(command: Command) -> None:
    listed = command("flowgraph")
    assert listed.code == 0
    for name in NAMES:
        assert f"airdp flowgraph {name}" in listed.out
    assert "--device zeromq|pluto|uhd --noise host|gnuradio" in listed.out
    assert "tx_gain_db" in listed.out
    assert "gain_db_1" in listed.out
    assert "gain_db_2" not in listed.out


def test_the_list_as_json(command: Command) -> None:
    graphs = {graph["name"]: graph for graph in command("flowgraph", "--json").json["flowgraphs"]}
    assert set(graphs) == set(NAMES)
    assert graphs["client_tx"]["choices"] == {"device": ["zeromq", "pluto", "uhd"]}
    assert graphs["air"]["transmitters"] == 4
    gain = next(item for item in graphs["client_tx"]["parameters"] if item["id"] == "tx_gain_db")
    assert gain["kind"] == "number"
    assert gain["default"] == "0"


@needs_gnuradio
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["clien_tx"], "unknown flowgraph 'clien_tx'; expected one of: air, client_tx"),
        (["clien_tx"], "did you mean 'client_tx'?"),
        (["client_tx", "--device", "plutto"], "unknown device 'plutto' of client_tx"),
        (["client_tx", "--device", "plutto"], "did you mean 'pluto'?"),
        (["client_tx", "--noise", "host"], "unknown choice 'noise' of client_tx; expected one of: device"),
        (["client_tx", "--set", "tx_gain=3"], "unknown parameter 'tx_gain' of client_tx"),
        (["client_tx", "--set", "tx_gain=3"], "did you mean 'tx_gain_db'?"),
        (["client_tx", "--set", "tx_gain_db=loud"], "tx_gain_db is 'loud'; expected a number"),
        (["client_tx", "--set", "tx_gain_db"], "expected PARAMETER=VALUE"),
        (["client_tx", "--transmitters", "2"], "client_tx has no chains"),
        (["air", "--transmitters", "0"], "0 transmitters were asked of air; expected 1 or more"),
        (["client_tx", "--device", "pluto"], "give --set tx_gain_db=DB"),
        (["ps_monitor"], "there is no display"),
        (["client_tx", "--edit"], "there is no display"),
        (["--device", "pluto"], "--device needs the name of a flowgraph"),
    ],
)
def test_bad_input_is_answered_in_one_line(
    command: Command, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(variable, raising=False)
    refused = command("flowgraph", *arguments)
    assert refused.code == 2
    assert refused.out == ""
    assert refused.err.startswith("airdp: error: ")
    assert refused.err.count("\n") == 1
    assert said in refused.err


def test_without_gnu_radio_it_says_how_to_get_it(airdp: Command, tmp_path: Path) -> None:
    """A Python that cannot see it, and a PATH on which nothing of it is."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import shutil\nshutil.which = lambda *_, **__: None\n")
    refused = airdp("flowgraph", "air", path=str(hidden))
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "apt-get install --no-install-recommends gnuradio" in refused.err
    assert airdp("flowgraph", "--json", path=str(hidden)).code == 0


@needs_gnuradio
def test_it_can_only_compile(command: Command) -> None:
    made = command("flowgraph", "air", "--transmitters", "2", "--compile-only")
    assert made.code == 0
    program = Path(made.out.strip())
    assert program.name == "air.py"
    assert program.read_text().count("channels.channel_model(") == 2
    assert command("flowgraph", "air", "--transmitters", 2, "--compile-only", "--json").json["program"] == str(program)


@needs_gnuradio
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_it_runs_says_where_and_ends_with_a_signal(streams: Streams, number: signal.Signals, code: int) -> None:
    with started("client_tx", *settings(streams), "--set", "tx_gain_db=-20") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(f"client_tx: binds {streams.address('out')} (samples_out); connects to ")
        assert re.search(r"control at http://airdp:[\w-]{32,}@127.0.0.1:\d+", line)
        assert line.endswith("; stop with Ctrl-C\n")
        feed, tap = streams.feed("in"), streams.tap("out")
        feed.send(np.ones(1000))
        assert tap.take(1000) == pytest.approx(0.1, abs=1e-7)
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, out, err) == (code, "", "")


@needs_gnuradio
def test_where_it_is_as_json_and_that_it_gets_no_louder(streams: Streams) -> None:
    """Than it is drawn, where it was started without a gain."""
    with started("client_tx", *settings(streams), "--json") as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said["binds"] == {"samples_out": streams.address("out")}
        assert said["connects"] == {"samples_in": streams.address("in")}
        with ServerProxy(said["control"]) as control:
            control.set_tx_gain_db(-3.0)
            control.set_tx_gain_db(0.0)
            with pytest.raises(Fault, match=r"tx_gain_db is 0\.1: this start allows -inf to 0"):
                control.set_tx_gain_db(0.1)
            assert control.get_tx_gain_db() == 0.0
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0


@needs_gnuradio
@pytest.mark.parametrize("noise", ["host", "gnuradio"])
def test_noise_without_privacy_is_said_to_be_that(streams: Streams, noise: str) -> None:
    with started("jammer_tx", "--noise", noise, *settings(streams)) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("jammer_tx: ")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
        assert ("no privacy may be claimed from it" in err) == (noise == "gnuradio")


@needs_gnuradio
def test_a_graph_that_ends_by_itself_is_an_error_with_its_reason(streams: Streams) -> None:
    with started("client_tx", *settings(streams)) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        # No whole number of samples.
        streams.feed("in").socket.send(b"\xf0\x5f\x01" + bytes(16) + b"seven b")
        _, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 2
        assert err.startswith("airdp: error: client_tx ended: ")
        assert "Incompatible vector sizes" in err
        assert err.count("\n") == 1


@needs_gnuradio
def test_a_device_that_is_not_there_is_an_error(command: Command, streams: Streams) -> None:
    refused = command("flowgraph", "ps_rx", "--device", "pluto", "--set", "pluto_uri=ip:127.0.0.1:1", *monitor(streams))
    assert refused.code == 2
    assert refused.err == "airdp: error: ps_rx ended: RuntimeError: Unable to create context\n"


def monitor(streams: Streams) -> list[str]:
    return [*settings(streams), "--set", f"monitor_out={streams.address('monitor')}"]


@needs_gnuradio
def test_an_address_in_use_is_an_error(command: Command, streams: Streams) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        refused = command("flowgraph", "client_tx", *settings(streams), "--set", f"control_port={port}")
    assert refused.code == 2
    assert f"http://127.0.0.1:{port} (control_address, control_port): already in use" in refused.err


@needs_gnuradio
def test_edit_opens_the_drawing_itself(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = tmp_path / "said"
    companion = tmp_path / "gnuradio-companion"
    companion.write_text(f'#!/bin/sh\necho "$@" > {said}\n')
    companion.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":99")
    assert command("flowgraph", "air", "--edit").code == 0
    assert said.read_text().strip() == str(REPOSITORY / "flowgraphs" / "air.grc")
    companion.write_text("#!/bin/sh\nexit 3\n")
    refused = command("flowgraph", "air", "--edit")
    assert refused.code == 2
    assert "gnuradio-companion ended with code 3" in refused.err
