"""The folder of a run may be a stranger's: reading it runs none of the code that it names."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fl.errors import ModelError, UntrustedCodeError
from fl.import_path import code_of, trusted_code
from fl.learning.model import import_module
from fl.run import run
from fl.run.bound import estimate_constants
from fl.run.folder import RunFolder
from tests.conftest import Outcome

Command = Callable[..., Outcome]
pytestmark = pytest.mark.usefixtures("no_figures", "one_thread", "no_waiting")
NET = """
from pathlib import Path
from torch import nn
Path({trace!r}).touch()

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(64, 10))
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "was imported"


@pytest.fixture
def folder(tmp_path: Path, trace: Path, tiny: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of a model by import path, as a stranger would send it; the model's code is there, and not yet imported."""
    (tmp_path / "stranger_nets.py").write_text(NET.format(trace=str(trace)))
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "run"
    run(tiny(model={"module": "stranger_nets:Net"}, uplink={"uplinks": 2}), out)
    forget(trace)
    return out


def forget(trace: Path) -> None:
    sys.modules.pop("stranger_nets", None)
    trace.unlink(missing_ok=True)


def test_a_bound_asks_for_trust_and_shows_what_would_be_imported(
    command: Command, folder: Path, trace: Path, snapshot: Callable[[Path], dict[str, str]]
) -> None:
    before = snapshot(folder)
    refused = command("bound", folder)
    assert refused.code == 2
    assert "model.module = 'stranger_nets:Net'" in refused.err
    assert "--trust" in refused.err
    assert not trace.exists()
    assert snapshot(folder) == before
    assert command("bound", folder, "--trust", "--json").code == 0
    assert trace.exists()


def test_a_report_has_all_but_the_bound(command: Command, folder: Path, trace: Path) -> None:
    assert command("report", folder, "--json").code == 0
    assert "stranger_nets:Net" in (folder / "report.html").read_text()
    assert "--trust" in (folder / "report.html").read_text()
    assert not trace.exists()
    assert command("report", folder, "--trust", "--json").code == 0
    assert trace.exists()


@pytest.mark.parametrize("reader", ["ledger", "report", "bound", "inspect", "replay", "audit"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", {"module": "subprocess:check_output", "arguments": {"args": ["touch", "TRACE"]}}),
        ("data", {"set": "subprocess:check_output", "arguments": {"args": ["touch", "TRACE"]}}),
        ("algorithm", {"name": "subprocess:check_output", "arguments": {"args": ["touch", "TRACE"]}}),
        ("local", {"loss": "stranger_nets:Net"}),
        ("local", {"optimiser": "stranger_nets:Net"}),
    ],
)
def test_no_reader_runs_what_a_config_names(
    command: Command, folder: Path, trace: Path, reader: str, key: str, value: dict[str, Any]
) -> None:
    """As with `subprocess:check_output`, which would run a command; that fails where the model is built, not before."""
    import tomli_w

    config = RunFolder(folder).config().model_dump(mode="json")
    told = json.loads(json.dumps(value).replace("TRACE", str(trace)))
    config[key] = {**config[key], **told}
    (folder / "config.toml").write_text(tomli_w.dumps(config))
    outcome = command(reader, folder)
    assert "Traceback" not in outcome.err
    assert not trace.exists()


def test_the_library_asks_too(folder: Path, trace: Path) -> None:
    with pytest.raises(UntrustedCodeError, match="stranger_nets:Net"):
        estimate_constants(RunFolder(folder))
    assert not trace.exists()
    with trusted_code():
        assert estimate_constants(RunFolder(folder)).points > 0
    assert trace.exists()


def test_other_threads_do_not_slip_through(folder: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with code_of(folder), ThreadPoolExecutor(1) as pool, pytest.raises(UntrustedCodeError):
        pool.submit(import_module, "stranger_nets:Net", {}, 0).result()


@pytest.mark.parametrize("path", ["subprocess:check_output", "os:system", "builtins:exec", "collections:OrderedDict"])
def test_a_run_calls_nothing_but_a_module_class(path: str, trace: Path) -> None:
    with pytest.raises(ModelError, match=r"expected a class that derives from torch\.nn.*not called"):
        import_module(path, {"args": ["touch", str(trace)]}, 0)
    assert not trace.exists()
