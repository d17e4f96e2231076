"""What a run rests on is in its folder, and a run does not go on with anything else."""

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from fl.errors import RunFolderError
from fl.run import run
from fl.run.config import parse_config
from fl.run.course.metrics import UplinkMetrics
from fl.run.course.result import FINISHED
from fl.run.folder import RunFolder
from fl.run.inputs import gather
from fl.versions import source_commit, versions
from hardware.lab.file import find_lab, load_lab, parse_lab
from tests.fl.nodes.small_runs import small_run

Snapshot = Callable[[Path], dict[str, str]]
Tiny = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")

MODULE = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 10))
"""


class StopError(BaseException):
    """The run is stopped from outside."""


def stop_after_one(sections: dict[str, Any], folder: Path) -> None:
    def stop(metrics: UplinkMetrics) -> None:
        raise StopError

    with pytest.raises(StopError):
        run(sections, folder, on_uplink=stop)


def refused(sections: dict[str, Any], folder: Path, snapshot: Snapshot, reason: str) -> str:
    before = snapshot(folder)
    with pytest.raises(RunFolderError, match=reason) as caught:
        run(sections, folder, resume=True)
    assert snapshot(folder) == before
    return str(caught.value)


@pytest.fixture
def lab_file(tmp_path: Path) -> Path:
    path = tmp_path / "lab.toml"
    shutil.copy(find_lab("loopback").source, path)
    return path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def sections_of(lab_file: Path) -> dict[str, Any]:
    return small_run(str(lab_file), clients=5, uplinks=2)


def test_the_folder_holds_the_lab_as_it_was_resolved(tmp_path: Path, lab_file: Path) -> None:
    sections = sections_of(lab_file)
    folder = run({**sections, "radio": {**sections["radio"], "backend": "loopback"}}, tmp_path / "run").out
    held = parse_lab(tomllib.loads((folder / "lab.toml").read_text()), str(lab_file))
    assert held == load_lab(lab_file)
    assert RunFolder(folder).read_json("inputs.json") == {"sha256": {}}


def test_the_fingerprint_is_of_contents(tmp_path: Path, lab_file: Path) -> None:
    def fingerprint() -> str:
        return gather(parse_config(sections_of(lab_file)), nn.Identity()).fingerprint()

    before = fingerprint()
    edit(lab_file, "sample_rate_hz = 5e6", "sample_rate_hz = 5_000_000.0")
    lab_file = lab_file.rename(tmp_path / "elsewhere.toml")
    assert fingerprint() == before
    edit(lab_file, "noise_var_complex = 1e-5", "noise_var_complex = 2e-5")
    assert fingerprint() != before


def test_a_run_without_radios_has_no_lab(tmp_path: Path, tiny: Tiny) -> None:
    folder = run(tiny(), tmp_path / "run").out
    assert not (folder / "lab.toml").exists()


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("noise_var_complex = 1e-5", "noise_var_complex = 2e-5", "medium.noise_var_complex"),
        ("tx_gain_db = 0.0\nrx_gain_db = 0.0", "tx_gain_db = -1.0\nrx_gain_db = 0.0", "radio.client-1.tx_gain_db"),
        ('name = "loopback"', 'name = "elsewhere"', "lab.name"),
        ("max_rx_gain_db = 40.0", "max_rx_gain_db = 41.0", "limits.max_rx_gain_db"),
        ("dac_bits = 14\n", "", "medium.dac_bits"),
        ('clock = "shared"', 'clock = "free-running"', "lab.clock"),
    ],
)
def test_a_run_does_not_go_on_in_another_lab(
    tmp_path: Path, lab_file: Path, snapshot: Snapshot, old: str, new: str, key: str
) -> None:
    sections = sections_of(lab_file)
    stop_after_one(sections, tmp_path / "run")
    edit(lab_file, old, new)
    said = refused(sections, tmp_path / "run", snapshot, "another lab")
    assert key in said
    assert str(lab_file) in said
    assert "\n" not in said


def test_another_backend_in_the_lab_file_is_another_lab(tmp_path: Path, lab_file: Path, snapshot: Snapshot) -> None:
    stop_after_one(sections_of(lab_file), tmp_path / "run")
    edit(lab_file, 'backend = "loopback"', 'backend = "gnuradio"')
    assert "lab.backend" in refused(sections_of(lab_file), tmp_path / "run", snapshot, "another lab")


def test_comments_and_order_of_a_lab_file_do_not_count(tmp_path: Path, lab_file: Path) -> None:
    stop_after_one(sections_of(lab_file), tmp_path / "run")
    edit(lab_file, "sample_rate_hz = 5e6\ncenter_hz = 2.45e9", "# the same\ncenter_hz = 2450e6\nsample_rate_hz = 5e6")
    assert run(sections_of(lab_file), tmp_path / "run", resume=True).status == FINISHED


def test_a_radio_folder_that_does_not_say_its_lab_is_refused(
    tmp_path: Path, lab_file: Path, snapshot: Snapshot
) -> None:
    stop_after_one(sections_of(lab_file), tmp_path / "run")
    (tmp_path / "run" / "lab.toml").unlink()
    refused(sections_of(lab_file), tmp_path / "run", snapshot, r"lab\.toml is missing.*earlier version")
    (tmp_path / "run" / "lab.toml").write_text("[lab\n")
    refused(sections_of(lab_file), tmp_path / "run", snapshot, r"lab\.toml is damaged")
    for content in ("radio = [1]\n", "radio = 1\n"):
        (tmp_path / "run" / "lab.toml").write_text(content)
        refused(sections_of(lab_file), tmp_path / "run", snapshot, "another lab")


def gains_run(tiny: Tiny, path: Path) -> dict[str, Any]:
    return tiny(channel={"fading": "file", "path": str(path)}, uplink={"uplinks": 2})


def test_the_content_of_a_gains_file_counts(tmp_path: Path, tiny: Tiny, snapshot: Snapshot) -> None:
    path = tmp_path / "gains.csv"
    text = "uplink,transmitter,re,im\n1,0,1.0,0.0\n1,1,0.5,0.5\n1,2,0.0,0.8\n"
    path.write_text(text)
    stop_after_one(gains_run(tiny, path), tmp_path / "run")
    path.write_text(text.replace("0.8", "0.9"))
    refused(gains_run(tiny, path), tmp_path / "run", snapshot, r"another content of channel\.path")
    path.write_text(text)
    (tmp_path / "run" / "inputs.json").rename(tmp_path / "kept.json")
    refused(gains_run(tiny, path), tmp_path / "run", snapshot, r"inputs\.json is missing")
    (tmp_path / "run" / "inputs.json").write_text("[]")
    refused(gains_run(tiny, path), tmp_path / "run", snapshot, r"inputs\.json is damaged")
    (tmp_path / "kept.json").replace(tmp_path / "run" / "inputs.json")
    assert run(gains_run(tiny, path), tmp_path / "run", resume=True).status == FINISHED


def test_the_source_of_a_module_counts(
    tmp_path: Path, tiny: Tiny, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net_of_inputs.py"
    path.write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    sections = tiny(model={"module": "net_of_inputs:Net"}, uplink={"uplinks": 2})
    stop_after_one(sections, tmp_path / "run")
    path.write_text(MODULE.replace("nn.ReLU()", "nn.Tanh()"))
    monkeypatch.delitem(sys.modules, "net_of_inputs")
    refused(sections, tmp_path / "run", snapshot, r"another content of model\.module")
    path.write_text(MODULE)
    assert run(sections, tmp_path / "run", resume=True).status == FINISHED


def test_a_folder_from_before_that_rests_on_no_file_goes_on(tmp_path: Path, tiny: Tiny) -> None:
    sections = tiny(uplink={"uplinks": 2})
    stop_after_one(sections, tmp_path / "run")
    (tmp_path / "run" / "inputs.json").unlink()
    assert run(sections, tmp_path / "run", resume=True).status == FINISHED


def test_radios_that_cannot_be_opened_leave_no_folder(tmp_path: Path, lab_file: Path) -> None:
    edit(lab_file, 'backend = "loopback"', 'backend = "pluto"')
    with pytest.raises(Exception, match="ps") as caught:
        run(sections_of(lab_file), tmp_path / "run")
    assert type(caught.value).__module__.startswith("hardware.")
    assert not (tmp_path / "run").exists()


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_commit_of_the_sources_and_whether_they_were_changed(tmp_path: Path) -> None:
    path = tmp_path / "package" / "module.py"
    path.parent.mkdir()
    path.write_text("x = 1\n")
    assert source_commit(path) is None
    git(tmp_path, "init", "-q")
    # As an environment that lies in the repository of something else.
    assert source_commit(tmp_path / "package" / "other.py") is None
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    source_commit.cache_clear()
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert source_commit(path) == {"commit": commit, "changed": False}
    (tmp_path / "notes.txt").write_text("not tracked\n")
    path.write_text("x = 2\n")
    source_commit.cache_clear()
    assert source_commit(path) == {"commit": commit, "changed": True}


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    source_commit.cache_clear()
    assert versions()["source"] is None
    monkeypatch.undo()
    source_commit.cache_clear()
    assert versions()["source"] == source_commit()
