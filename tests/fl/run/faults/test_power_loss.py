"""A power cut at any moment of a run, on a disk that keeps only what it was told to keep, and any part of the rest.

The model: what a file holds is certain once the file was synced, and which files a folder has once the folder was.
Before every sync, and before and after every change of a folder, the power may go. Then each folder has either what it
had when it was synced or what it has now, and each file what it had when it was synced, what it has now, or what it has
now with zeros in some of its blocks.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fl.errors import LedgerError, RunFolderError
from fl.privacy.ledger import Ledger, read_ledger
from fl.run import run
from fl.run.course.result import RunResult
from fl.run.folder import RunFolder
from fl.uplink.contract import Aggregate, Updates, UplinkPlan
from fl.uplink.symbol import SymbolUplink

pytestmark = pytest.mark.usefixtures("no_figures", "one_thread")
OUT = Path("new") / "parents" / "run"
Tree = dict[Path, bytes | None]
"""By path: what a file holds, None for a folder."""
BLOCKS: dict[str, Callable[[bytes, bytes], bytes]] = {
    "as synced": lambda synced, now: synced,
    "as it is": lambda synced, now: now,
    "zeros for what is new": lambda synced, now: synced + bytes(max(0, len(now) - len(synced))),
    "zeros behind": lambda synced, now: _half(synced, now, first=True),
    "zeros in front": lambda synced, now: _half(synced, now, first=False),
}


def _half(synced: bytes, now: bytes, *, first: bool) -> bytes:
    new = now[len(synced) :]
    half = len(new) // 2
    return synced + (new[:half] + bytes(len(new) - half) if first else bytes(half) + new[half:])


@dataclass
class Disk:
    """What is certain. files: content by inode. folders: entries (name, inode) by inode. sent: uplinks until now."""

    root: Path
    files: dict[int, bytes] = field(default_factory=dict)
    folders: dict[int, dict[str, int]] = field(default_factory=dict)
    states: dict[str, tuple[Tree, list[int]]] = field(default_factory=dict)
    sent: list[int] = field(default_factory=list)

    def synced(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            self.folders[path.stat().st_ino] = {entry.name: entry.stat().st_ino for entry in path.iterdir()}
        elif path.is_relative_to(self.root):
            self.files[path.stat().st_ino] = path.read_bytes()

    def cut(self) -> None:
        """Note every state in which the power may leave the disk now."""
        now = {path.stat().st_ino: path for path in (self.root, *self.root.rglob("*"))}
        for folders in ("as synced", "as they are"):
            for of in BLOCKS.values():
                tree = dict(self._tree(self.root.stat().st_ino, Path(), now, folders == "as they are", of))
                self.states.setdefault(f"{sorted(tree.items())}{self.sent}", (tree, list(self.sent)))

    def _tree(
        self, inode: int, path: Path, now: dict[int, Path], current: bool, of: Callable[[bytes, bytes], bytes]
    ) -> Iterator[tuple[Path, bytes | None]]:
        entries = self.folders.get(inode, {})
        if current and inode in now:
            entries = {entry.name: entry.stat().st_ino for entry in now[inode].iterdir()}
        for name, child in entries.items():
            if child in self.folders or (child in now and now[child].is_dir()):
                yield path / name, None
                yield from self._tree(child, path / name, now, current, of)
            else:
                held = now[child].read_bytes() if child in now else self.files.get(child, b"")
                yield path / name, of(self.files.get(child, b""), held)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    root = tmp_path / "disk"
    root.mkdir()
    disk = Disk(root)
    disk.folders[root.stat().st_ino] = {}

    def watched(name: str) -> None:
        original = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            disk.cut()
            result = original(*arguments, **named)
            if name == "fsync":
                disk.synced(arguments[0])
            disk.cut()
            return result

        monkeypatch.setattr(os, name, call)

    for name in ("fsync", "rename", "replace", "mkdir", "unlink"):
        watched(name)
    exchange = SymbolUplink.exchange

    def send(self: SymbolUplink, plan: UplinkPlan, updates: Updates, authorise: Callable[[], None]) -> Aggregate:
        def authorised() -> None:
            authorise()
            disk.sent.append(plan.uplink)
            disk.cut()

        return exchange(self, plan, updates, authorised)

    monkeypatch.setattr(SymbolUplink, "exchange", send)
    return disk


def lay_out(tree: Tree, root: Path) -> Path:
    root.mkdir(parents=True)
    for path, content in tree.items():
        if content is None:
            (root / path).mkdir(exist_ok=True)
        else:
            (root / path).write_bytes(content)
    return root / OUT


def outcome(out: Path, sent: list[int]) -> str:
    """What a run that is taken up in this state finds, once that was checked against what was sent."""
    folder = RunFolder(out)
    if not out.exists():
        assert not sent, "the whole ledger is gone, and the next run would start with nothing charged"
        return "nothing there"
    try:
        config, checkpoint = folder.config(), folder.load_checkpoint()
        head = None if checkpoint is None else checkpoint.ledger_head
        Ledger.open(folder.ledger_path, config_sha256=config.digest(), seen=head).close()
    except (LedgerError, RunFolderError) as error:
        # Refused, now and for ever: nothing more is sent.
        return f"refused: {type(error).__name__}"
    charged = Counter(mechanism.uplink for mechanism in read_ledger(folder.ledger_path).mechanisms)
    assert not Counter(sent) - charged
    # Whatever is left of its last line, nothing keeps the run from going on.
    folder.metrics()
    return "recovered"


def test_no_power_cut_loses_what_was_sent(
    tmp_path: Path, tiny: Callable[..., dict[str, Any]], disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections = tiny(uplink={"uplinks": 10})
    with monkeypatch.context():
        whole: RunResult = run(sections, disk.root / OUT)
    states, disk.states = list(disk.states.values()), {}
    monkeypatch.undo()
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    assert disk.sent == list(range(1, 11))
    outcomes: Counter[str] = Counter()
    places = []
    for number, (tree, sent) in enumerate(states):
        out = lay_out(tree, tmp_path / str(number))
        outcomes[outcome(out, sent)] += 1
        places.append(out)
    assert len(states) > 300, outcomes
    assert set(outcomes) == {"nothing there", "recovered"}, outcomes
    for out in places[:: len(places) // 5]:
        assert run(sections, out, resume=True).model_sha256 == whole.model_sha256


def test_the_model_shows_a_parent_that_was_not_synced(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can fail: without syncs of new parents, a run that was sent can vanish."""
    (disk.root / "new").mkdir()
    (disk.root / "new" / "run").mkdir()
    descriptor = os.open(disk.root / "new", os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    disk.sent.append(1)
    disk.cut()
    assert any(Path("new/run") not in tree and sent for tree, sent in disk.states.values())
