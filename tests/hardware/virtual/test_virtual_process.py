"""Virtual radios as processes: the module, the command, and what becomes of them when their parent dies."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console

from fl.cli.labs.emulate import _emulating, status_table
from fl.cli.main import main
from hardware.lab.file import find_lab
from hardware.pluto.connect import connect_plutos
from hardware.radio.errors import HardwareError
from hardware.virtual.iiod.emulator import Emulator
from hardware.virtual.process import emulator_process
from tests.hardware.virtual.iiod.raw_client import RawClient, address, make_lab

ROOT = Path(__file__).parents[3]
MODULE = [sys.executable, "-m", "hardware.virtual", "pluto-virtual"]
COMMAND = [sys.executable, "-c", "import sys; from fl.cli.main import main; sys.exit(main())", "emulate"]


def soon(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def listens(uri: str) -> bool:
    try:
        socket.create_connection(address(uri), 5).close()
    except ConnectionError:
        return False
    return True


def test_the_module_says_where_it_listens_and_ends_on_a_signal() -> None:
    with subprocess.Popen([*MODULE, "loopback"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        uris = json.loads(process.stdout.readline())["uris"]
        assert next(iter(uris)) == "ps"
        with RawClient(uris["jammer"]) as client:
            assert client.read("ad9361-phy INPUT voltage0 sampling_frequency") == "30720000"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    assert not listens(uris["ps"])


def test_the_module_ends_with_its_standard_input() -> None:
    command = [*MODULE, "loopback", "--exit-with-stdin", "--port", "30777", "--paced"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        uris = json.loads(process.stdout.readline())["uris"]
        assert all(uri.endswith(":30777") for uri in uris.values())
        process.stdin.close()
        assert process.wait(60) == 0


def test_it_dies_with_a_parent_that_is_killed() -> None:
    script = textwrap.dedent(
        """
        import json, time
        from hardware.lab.file import find_lab
        from hardware.virtual.process import emulator_process
        with emulator_process("pluto-virtual", find_lab("loopback"), seed=1) as server:
            print(json.dumps(server.uris), flush=True)
            time.sleep(60)
        """
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        uris = json.loads(parent.stdout.readline())
        assert listens(uris["ps"])
        parent.kill()
    soon(lambda: not listens(uris["ps"]))


@pytest.mark.parametrize(
    ("backend", "port", "reason"),
    [
        ("pluto-virtual", 0, "the port is 0"),
        ("loopback", None, "'loopback' has no virtual radios"),
        ("nothing", None, "backend 'nothing' is not one of"),
    ],
)
def test_a_process_that_cannot_start_says_why(backend: str, port: int | None, reason: str) -> None:
    with pytest.raises(HardwareError, match=reason), emulator_process(backend, make_lab(), seed=1, port=port):
        pass


def test_a_process_that_is_killed_before_it_answers_is_named_as_such(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    with (
        pytest.raises(HardwareError, match=r"did not start: it was killed by SIGKILL"),
        emulator_process("pluto-virtual", make_lab(), seed=1),
    ):
        pass


def test_a_process_that_is_killed_later_is_named_by_who_needs_it() -> None:
    lab = find_lab("pluto-virtual")

    def use_and_kill() -> None:
        with emulator_process("pluto-virtual", lab, seed=1) as served, ExitStack() as stack:
            radios = connect_plutos(lab, served.uris, stack)
            os.kill(served.pid, signal.SIGKILL)
            radios["ps"].configure(lab.ps.settings)

    with pytest.raises(HardwareError, match=r"emulator of .*pluto-virtual.* was killed by SIGKILL: its radios"):
        use_and_kill()


def test_the_command_for_machines_ends_on_sigterm_as_every_command() -> None:
    with subprocess.Popen(
        [*COMMAND, "loopback", "--json"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        answer = json.loads(process.stdout.readline())
        assert answer["mode"] == "lockstep"
        assert listens(answer["uris"]["ps"])
        process.send_signal(signal.SIGTERM)
        rest, problems = process.communicate(timeout=240)
        assert (process.returncode, rest, problems) == (143, "", "")


def test_the_command_for_people_ends_on_ctrl_c_as_it_should() -> None:
    with subprocess.Popen(
        [*COMMAND, "loopback", "--paced"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(8)]
        assert lines[0].startswith("ps: ip:127.")
        assert lines[-1].startswith("paced; try `iio_info -u ip:127.")
        process.send_signal(signal.SIGINT)
        rest, problems = process.communicate(timeout=240)
        assert (process.returncode, rest, problems) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nothing"], "no lab 'nothing'"),
        (["loopback", "--port", "0"], "the port is 0"),
        (["loopback", "--backend", "pluto"], "--backend pluto has no virtual radios"),
        (["loopback", "--backend", "pluto-virtal"], "did you mean 'pluto-virtual'?"),
        (["loopback", "--as", "toaster"], "--as toaster: there are virtual devices of the kinds pluto, usrp"),
        (["loopback", "--as", "usrp", "--backend", "pluto-virtual"], "give one of them"),
    ],
)
def test_the_command_refuses_in_one_line(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulate", *arguments]) == 2
    problem = capsys.readouterr().err
    assert problem.count("\n") == 1
    assert reason in problem


@pytest.mark.parametrize(
    ("lab", "serving"),
    [
        ("usrp", "usrp-virtual"),
        ("usrp-virtual", "usrp-virtual"),
        ("pluto", "pluto-virtual"),
        ("loopback", "pluto-virtual"),
    ],
)
def test_radios_are_served_as_what_they_are_in_the_lab_unless_something_else_is_asked_for(
    lab: str, serving: str
) -> None:
    assert _emulating(find_lab(lab), None, None).name == serving
    assert _emulating(find_lab(lab), None, "usrp").name == "usrp-virtual"


def test_the_live_table_tells_what_each_radio_does() -> None:
    with Emulator(make_lab(1), seed=1) as emulator, RawClient(emulator.uris["ps"]) as client:
        before = emulator.status()
        client.open_rx(10_000)
        client.read_words(60_000)
        console = Console(width=80, file=io.StringIO(), force_terminal=False)
        console.print(status_table(before, emulator.status(), 0.01, 0.0))
    assert isinstance(console.file, io.StringIO)
    rows = [line.replace("│", " ").split() for line in console.file.getvalue().splitlines() if "│" in line]
    # Ten blocks in a hundredth of a second; four of them wait to be read.
    assert rows == [
        ["ps", "1", "1", "+", "0", "10.00", "0", "0", "0.003"],
        ["client-1", "0", "0", "+", "0", "0.00", "0", "0", "0.003"],
    ]


def test_emulators_side_by_side_have_different_addresses() -> None:
    with Emulator(make_lab(), seed=1) as one, Emulator(make_lab(), seed=1) as two:
        assert not set(one.uris.values()) & set(two.uris.values())


def test_addresses_can_be_chosen_and_a_taken_one_is_refused() -> None:
    # A block that no other process of this machine chooses by itself.
    base = f"127.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}.0"
    with Emulator(make_lab(1), seed=1, host_base=base) as emulator:
        first, second = emulator.uris.values()
        assert (first, second) == (f"ip:{base[:-1]}1", f"ip:{base[:-1]}2")
        with pytest.raises(HardwareError, match="cannot listen on port 30431"):
            Emulator(make_lab(1), seed=1, host_base=base)
        with Emulator(make_lab(1), seed=1, host_base=base, port=30432) as other:
            assert other.uris["ps"] == f"{first}:30432"
    with Emulator(make_lab(1), seed=1, host_base=base):
        pass


@pytest.mark.parametrize("base", ["localhost", "127.0.0", "300.0.0.0"])
def test_an_address_that_is_none_is_refused(base: str) -> None:
    with pytest.raises(HardwareError, match="expected an address"):
        Emulator(make_lab(), seed=1, host_base=base)
