"""Compiling: every variant does, once, without a display, and nothing is left in the tree."""

import importlib.util
import itertools
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import flowgraphs.build
from flowgraphs.build import INSTALL, build, cache_folder
from flowgraphs.errors import FlowgraphError
from flowgraphs.runtime import gnuradio_python
from flowgraphs.source import FOLDER
from tests.gnuradio_needed import needs_gnuradio

DEVICES = ("zeromq", "pluto", "uhd")
VARIANTS: list[tuple[str, dict[str, str], int | None, str]] = [
    *(("client_tx", {"device": device}, None, "sink") for device in DEVICES),
    *(("ps_rx", {"device": device}, None, "source") for device in DEVICES),
    *(
        ("jammer_tx", {"device": device, "noise": noise}, None, "sink")
        for device, noise in itertools.product(DEVICES, ("host", "gnuradio"))
    ),
    *(("air", {}, transmitters, "") for transmitters in (1, 4, 6)),
    ("ps_monitor", {}, None, ""),
]
MADE_BY = {"zeromq": "zeromq.pu", "pluto": "iio.fmcomms2_", "uhd": "uhd.usrp_"}


@needs_gnuradio
@pytest.mark.parametrize(("name", "choices", "transmitters", "role"), VARIANTS)
def test_every_variant_compiles_without_a_display(
    name: str,
    choices: dict[str, str],
    transmitters: int | None,
    role: str,
    monkeypatch: pytest.MonkeyPatch,
    snapshot: Callable[[Path], dict[str, str]],
) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    before = {path: digest for path, digest in snapshot(FOLDER).items() if "__pycache__" not in path}
    program = build(name, choices, transmitters)
    after = {path: digest for path, digest in snapshot(FOLDER).items() if "__pycache__" not in path}
    assert after == before
    assert program.is_relative_to(cache_folder())
    assert program.with_suffix(".grc").is_file()
    code = program.read_text()
    compile(code, str(program), "exec")
    if "device" in choices:
        blocks = [line for line in code.splitlines() if f"self.device_{choices['device']}_{role} = " in line]
        assert len(blocks) == 1
        assert MADE_BY[choices["device"]] in blocks[0]
        others = [device for device in DEVICES if device != choices["device"]]
        assert not [device for device in others if f"self.device_{device}_" in code]
    if "noise" in choices:
        assert ("analog.noise_source_c(analog.GR_GAUSSIAN" in code) == (choices["noise"] == "gnuradio")
    if transmitters is not None:
        assert code.count("channels.channel_model(") == transmitters
        # Each of these is called when its parameter is set while the graph runs.
        for number in range(1, transmitters + 1):
            for call in ("set_k(10", "set_dly(", "set_taps(", "set_frequency_offset("):
                block = {"set_k(10": "gain", "set_dly(": "delay"}.get(call, "channel")
                assert f"self.{block}_{number}.{call}" in code


@needs_gnuradio
def test_what_is_compiled_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    program = build("client_tx")
    calls: list[list[str]] = []
    run = flowgraphs.build._run

    def counted(command: list[str]) -> str:
        calls.append(command)
        return run(command)

    monkeypatch.setattr(flowgraphs.build, "_run", counted)
    assert build("client_tx") == program
    assert not [command for command in calls if command[0].endswith("grcc")]
    # Another GNU Radio has another compiler: what it makes is kept apart.
    monkeypatch.setattr(
        flowgraphs.build, "_run", lambda command: "3.99" if "--version" in command else counted(command)
    )
    assert build("client_tx").parent != program.parent
    assert [command for command in calls if command[0].endswith("grcc")]


@needs_gnuradio
def test_two_that_compile_at_once_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: build("client_tx"), range(2))
    assert first == second
    assert [path.name for path in cache_folder().iterdir()] == [first.parent.name]
    assert sorted(path.name for path in first.parent.iterdir()) == ["client_tx.grc", "client_tx.py", "client_tx.sha256"]


@pytest.mark.parametrize("harm", ["empty", "zeros", "cut", "no seal"])
def test_a_cached_program_that_is_not_whole_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    """As a power cut or a full disk can leave it: an empty program would end every later run without a reason."""

    def compiler(command: list[str]) -> str:
        if "--output" in command:
            (Path(command[2]) / "client_tx.py").write_text("a program\n")
        return "3.10"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(flowgraphs.build, "_tool", lambda name: name)
    monkeypatch.setattr(flowgraphs.build, "_run", compiler)
    program = build("client_tx")
    if harm == "no seal":
        program.with_suffix(".sha256").unlink()
    else:
        program.write_bytes({"empty": b"", "zeros": bytes(10), "cut": b"a pro"}[harm])
    assert build("client_tx") == program
    assert program.read_text() == "a program\n"


@needs_gnuradio
def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(FlowgraphError, match=r"client_tx cannot be compiled into .*file.* set XDG_CACHE_HOME"):
        build("client_tx")


@needs_gnuradio
def test_a_graph_that_does_not_compile_gives_grccs_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    broken = (FOLDER / "client_tx.grc").read_text().replace("10 ** (tx_gain_db / 20)", "10 ** (no_such_name / 20)")
    monkeypatch.setattr(flowgraphs.build, "variant", lambda *_: broken)
    with pytest.raises(FlowgraphError, match=r"grcc failed: .*no_such_name"):
        build("client_tx")
    assert list(cache_folder().iterdir()) == []


def test_without_gnu_radio_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_, **__: None)
    monkeypatch.setattr("flowgraphs.runtime.SYSTEM_PYTHON", "/no/such/python")
    gnuradio_python.cache_clear()
    try:
        for ask in (lambda: build("client_tx"), gnuradio_python):
            with pytest.raises(FlowgraphError, match=INSTALL):
                ask()
    finally:
        gnuradio_python.cache_clear()
    assert INSTALL == "apt-get install --no-install-recommends gnuradio"


@needs_gnuradio
def test_the_python_that_is_found_can_import_gnu_radio() -> None:
    subprocess.run([gnuradio_python(), "-c", "from gnuradio import gr, zeromq"], check=True)
