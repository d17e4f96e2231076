"""The folder of a run as a stranger could have packed it: with pipes, devices, links and files without an end in it."""

import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fl.errors import DataError, RunFolderError, UntrustedCodeError
from fl.import_path import code_of, trusted_code
from fl.learning.data.own import load_huggingface, load_torchvision
from fl.nodes.journal.log import NAME, RunLog
from fl.run import run
from fl.run.captures import CaptureFolder
from fl.run.folder import RunFolder
from fl.sweep.plan import PLAN_FILE, SweepFolder, load_plan
from hardware.foundation.durable import AppendOnlyFile, append_durably, write_atomically
from hardware.recording.sigmf_files import Reserved
from tests.conftest import Outcome
from tests.fl.nodes.small_runs import small_run
from tests.fl.run.faults.test_foreign_folders import NET

Command = Callable[..., Outcome]
ENDLESS = 1 << 40
EVERY = ("ledger", "report", "replay")
READERS = {
    "captures": ("replay",),
    "radio": ("inspect",),
    "audit": ("audit",),
    "lab.toml": ("replay",),
    **dict.fromkeys(["config.toml", "ledger.jsonl", "metrics.jsonl"], EVERY),
}
"""Of each file or folder, which commands read it; `ledger` where none is named."""


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def endless(path: Path) -> None:
    """Nothing on the disk, and a thousand gigabytes to read."""
    path.touch()
    os.truncate(path, ENDLESS)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over simulated radios that has every kind of file, with a model whose code is beside it."""
    folder = tmp_path_factory.mktemp("stranger") / "run"
    (folder.parent / "stranger_radio_nets.py").write_text(NET.format(trace=str(folder.parent / "imported")))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder.parent)
        patch.setattr("fl.run.figures.draw_run", lambda folder: None)
        patch.setattr("time.sleep", lambda seconds: None)
        run(
            small_run(
                "loopback",
                clients=5,
                uplinks=1,
                model={"module": "stranger_radio_nets:Net"},
                radio={"record": "all"},
                local={"mode": "record"},
                audit={"canaries": 2},
            ),
            folder,
        )
    sys.modules.pop("stranger_radio_nets")
    (folder.parent / "imported").unlink()
    return folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "copy"))


def names_of(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("odd", [pipe, endless])
@pytest.mark.usefixtures("one_thread")
def test_no_reader_waits_or_fills_the_memory(
    command: Command, folder: Path, tmp_path: Path, odd: Callable[[Path], None]
) -> None:
    """Each file in turn: a reader that does not need it goes on, one that does says so in one line."""
    refused = 0
    for name in names_of(folder):
        kept = tmp_path / "kept"
        (folder / name).rename(kept)
        odd(folder / name)
        for reader in READERS.get(name.parts[0], ("ledger",)):
            options = ["--out", tmp_path / "page.html", "--no-bound"] if reader == "report" else []
            outcome = command(reader, folder, *options)
            assert outcome.code in (0, 2), (name, reader, outcome.err)
            assert "Traceback" not in outcome.err, (name, reader)
            refused += outcome.code == 2
        (folder / name).unlink()
        kept.rename(folder / name)
    assert refused > len(names_of(folder)) // 2, refused


@pytest.mark.parametrize("reader", ["ledger", "inspect", "replay", "audit"])
def test_radio_runs_are_read_without_their_code(
    command: Command, recorded: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """To the end, and the code could have been imported."""
    monkeypatch.syspath_prepend(recorded.parent)
    assert command(reader, recorded).code == 0
    assert not (recorded.parent / "imported").exists()


def test_a_report_writes_nothing_through_links(command: Command, folder: Path, tmp_path: Path) -> None:
    own, elsewhere = tmp_path / "own file", tmp_path / "elsewhere"
    own.write_text("mine")
    elsewhere.mkdir()
    (folder / ".report.html.tmp").symlink_to(own)
    assert command("report", folder, "--no-bound").code == 0
    assert own.read_text() == "mine"
    shutil.rmtree(folder / "report-files")
    (folder / "report-files").symlink_to(elsewhere)
    refused = command("report", folder, "--no-bound")
    assert refused.code == 2
    assert "is a link" in refused.err
    assert list(elsewhere.iterdir()) == []


def test_no_file_of_a_folder_is_written_through_a_link(tmp_path: Path) -> None:
    own = tmp_path / "own file"
    own.write_text("mine")
    for name in ("metrics.jsonl", ".r.sigmf-data.reserved", ".x.tmp"):
        (tmp_path / name).symlink_to(own)
    with pytest.raises(OSError, match="symbolic links"):
        append_durably(tmp_path / "metrics.jsonl", b"x")
    with pytest.raises(OSError, match="symbolic links"):
        AppendOnlyFile(tmp_path / "metrics.jsonl")
    Reserved(tmp_path / "r", 8).give_up()
    write_atomically(tmp_path / "x", b"x")
    assert own.read_text() == "mine"
    assert (tmp_path / "x").read_bytes() == b"x"
    assert not (tmp_path / "x").is_symlink()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["captures", "figures", "audit", "figures/round-0001"])
def test_nothing_is_written_or_removed_behind_a_folder_that_is_a_link(
    command: Command, folder: Path, tmp_path: Path, name: str
) -> None:
    """Where a run is taken up, or its pictures are drawn, in the folder that somebody else has packed."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".profile").write_text("mine")
    if (folder / name).exists():
        shutil.rmtree(folder / name)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to(elsewhere)
    for line in (["inspect", folder], ["run", folder / "config.toml", "--out", folder, "--resume"]):
        refused = command(*line)
        assert refused.code == 2
        assert f"{name} is a link, which may lead anywhere" in refused.err
    assert [path.name for path in elsewhere.iterdir()] == [".profile"]
    assert command("inspect", folder, "--out", tmp_path / "pictures").code == 0


def test_neither_a_sweep_nor_a_loop_goes_on_behind_a_link(command: Command, tmp_path: Path, tiny_file: Path) -> None:
    from fl import open_uplink

    plan = load_plan(str(tiny_file))
    trial = SweepFolder(tmp_path / "sweep").run_folder(plan.points[0], 1).path
    for made in (trial.parent, tmp_path / "elsewhere"):
        made.mkdir(parents=True)
    RunFolder(tmp_path / "sweep").write_json(PLAN_FILE, plan.to_json())
    trial.symlink_to(tmp_path / "elsewhere")
    refused = command("sweep", tiny_file, "--out", tmp_path / "sweep", "--resume")
    assert refused.code == 2
    assert "trial-01 is a link" in refused.err
    with (
        pytest.raises(RunFolderError, match="is a link"),
        open_uplink("quickstart", sizes=[5, 5], coordinates=3, out=tmp_path / "sweep", resume=True),
    ):
        pass


def test_only_what_a_crash_has_left_is_removed_from_captures(folder: Path) -> None:
    for name in (".gitignore", ".uplink-0001-1.jsonl.tmp", ".uplink-0001-1-ps.sigmf-data.reserved"):
        (folder / "captures" / name).write_text("x")
    before = sorted(path.name for path in (folder / "captures").glob("[!.]*"))
    CaptureFolder.of(folder).clean()
    assert sorted(path.name for path in (folder / "captures").iterdir()) == [".gitignore", *before]


@pytest.mark.parametrize("odd", [pipe, device])
def test_what_grows_is_appended_to_files_only(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    """A pipe that nobody reads keeps nobody waiting. The log, on which nothing rests, is given up."""
    odd(tmp_path / NAME)
    with pytest.raises(OSError, match=r"not a file|symbolic links|No such device"):
        append_durably(tmp_path / NAME, b"x")
    log = RunLog(tmp_path)
    log.open()
    log.say("message", text="x")
    assert not stat.S_ISREG((tmp_path / NAME).lstat().st_mode)


@pytest.mark.parametrize("odd", [pipe, device])
def test_what_is_no_file_is_not_replaced_by_one(
    command: Command, folder: Path, tmp_path: Path, odd: Callable[[Path], None]
) -> None:
    """As `--out /dev/null` would, where this user may write there."""
    odd(tmp_path / "page.html")
    before = (tmp_path / "page.html").lstat()
    refused = command("report", folder, "--no-bound", "--out", tmp_path / "page.html")
    assert refused.code == 2
    assert "is not a file" in refused.err
    with pytest.raises(FileExistsError, match="is not replaced"):
        write_atomically(tmp_path / "page.html", b"x")
    assert (tmp_path / "page.html").lstat() == before


def test_a_terminal_gets_no_orders_from_a_file(command: Command, folder: Path) -> None:
    config = folder / "config.toml"
    config.write_text('"\\u001b]0;title\\u0007\\u202e" = 1\n' + config.read_text())
    refused = command("report", folder)
    assert refused.code == 2
    assert "]0;title" in refused.err
    assert not {"\x1b", "\x07", "\u202e"} & set(refused.err)


def test_a_terminal_is_not_flooded_by_a_file(command: Command, folder: Path) -> None:
    ledger = folder / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"sizes":', f'"{"x" * 100_000}":1,"sizes":', 1))
    config = folder / "config.toml"
    config.write_text(f"{'x' * 100_000} = 1\n" + config.read_text())
    for reader in ("ledger", "report"):
        refused = command(reader, folder)
        assert refused.code == 2
        assert len(refused.err) < 5000


def test_names_in_tables_give_none_either(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table

    from fl.cli.output import RESULTS, plain

    table = Table("radio", title="\x1b[2J lab")
    table.add_row("a\x9bb\tc")
    RESULTS.print(table)
    plain("\x1b]0;title\x07 and more")
    said = "".join(capsys.readouterr())
    assert "lab" in said
    assert "title" in said
    assert not set(said) & {"\x1b", "\x07", "\x9b"}


@pytest.fixture
def loaders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Packages of these names that only note that they were called, whether the real ones are installed or not."""
    called: list[str] = []

    class Pickled:
        def __init__(self, **_: Any) -> None:
            called.append("torchvision")
            raise ValueError("nothing there")

    def load(path: str) -> None:
        called.append("datasets")
        raise ValueError("nothing there")

    vision, sets, face = ModuleType("torchvision"), ModuleType("torchvision.datasets"), ModuleType("datasets")
    vars(sets)["Pickled"], vars(vision)["datasets"], vars(face)["load_from_disk"] = Pickled, sets, load
    for module in (vision, sets, face):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return called


def test_loaders_that_may_unpack_code_need_trust(loaders: list[str], tmp_path: Path) -> None:
    """Some sets of torchvision are pickles, and with `download` its classes write where the config says."""
    with code_of(tmp_path):
        with pytest.raises(UntrustedCodeError, match="torchvision:Pickled"):
            load_torchvision("Pickled", str(tmp_path), {"download": True})
        with pytest.raises(UntrustedCodeError, match="huggingface"):
            load_huggingface(tmp_path, {})
        assert loaders == []
        with trusted_code(), pytest.raises(DataError, match="nothing there"):
            load_torchvision("Pickled", str(tmp_path), {})
    assert loaders == ["torchvision"]
    with pytest.raises(DataError, match="has no data set"):
        load_torchvision("Pickled.__init__", str(tmp_path), {})
