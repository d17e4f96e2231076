"""Runs that are killed again and again, thousands of times: `python -m tests.fl.run.faults.soak --kills 10000`.

One process has everything imported and the data ready. Each start of a run is a fork of it, which is killed by SIGKILL,
at an operation on files (before it, after it, in the middle of a write) or at a random moment, and taken up by the next
fork until it is done. First every operation of a fresh run and of a run that is taken up has its turn, then chance.

After each kill: no row of the ledger is lost, everything that was sent is charged, and processes that the run had
started have ended. After each run: its model is bit for bit that of a run without kills (where the jammer's noise comes
from a seed), its folder has the same files, and nothing is left beside it or in the temporary folder.
"""

import argparse
import gc
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import tomli_w

from fl.errors import LedgerError
from fl.privacy.ledger import read_ledger
from fl.run.folder import RunFolder
from hardware.lab.file import find_lab
from tests.fl.run.faults.file_operations import AFTER, FileOperations, Moment

SYMBOL: dict[str, Any] = {
    "name": "victim",
    "data": {"set": "synthetic", "synthetic_max_client_samples": 30},
    "partition": {"kind": "natural", "clients": 3},
    "model": {"hidden": 4},
    "local": {"epochs": 1, "workers": 1},
    "uplink": {"uplinks": 3},
    "power": {"channel_epsilon": 50.0},
    "jammer": {"role": "rotating"},
}
SHORT = {"quiet_samples": 8192, "first_quiet_samples": 65536, "sounding_symbols": 8}
"""Samples of an uplink over radios."""
RADIO: dict[str, Any] = {
    **SYMBOL,
    "partition": {"kind": "natural", "clients": 5},
    "uplink": {"kind": "radio", "uplinks": 2},
    "radio": {"lab": "loopback", "record": "last", **SHORT},
    "jammer": {"role": "dedicated"},
}
PLUTO: dict[str, Any] = {
    **RADIO,
    "partition": {"kind": "natural", "clients": 3},
    "radio": {"lab": "pluto-virtual", "record": "last", **SHORT},
}
GNU_RADIO: dict[str, Any] = {**PLUTO, "radio": {"lab": "gnuradio", "record": "last", **SHORT}}
CONFIGS = {"symbol": SYMBOL, "radio": RADIO, "pluto-virtual": PLUTO, "gnuradio": GNU_RADIO}
UNREPEATABLE = ("pluto-virtual", "gnuradio")
"""Their jammer's noise is the operating system's: no two runs have the same model."""
FINISHED, KILLED = "finished", "killed"
_ABOUT_A_RUN = 1.3
"""Random moments are drawn from this many times the length of a run: some come too late."""
_REPORT_EVERY = 500
_END_S = 20.0
TEMPORARY = "temporary"
_PATIENCE_S = 120.0
"""That radios have for an answer: what is looked for is no matter of how busy the machine is."""


class BrokenError(Exception):
    """Something that must hold after a kill does not."""


@dataclass
class Scene:
    """Where a run is, and who has seen what it sent. before: the ledger when it was last looked at."""

    home: Path
    before: bytes = b""

    @property
    def out(self) -> Path:
        return self.home / "run"

    @property
    def witness(self) -> Path:
        return self.home / "witness"

    @property
    def ledger(self) -> bytes:
        path = self.out / "ledger.jsonl"
        return path.read_bytes() if path.exists() else b""

    @property
    def sent(self) -> list[int]:
        """Uplinks, as often as they were sent."""
        return [int(line) for line in self.witness.read_text().split()] if self.witness.exists() else []

    def check(self) -> None:
        """What must hold at any time."""
        ledger = self.ledger
        if not ledger.startswith(self.before):
            raise BrokenError("a row of the ledger was lost")
        self.before = ledger[: ledger.rfind(b"\n") + 1]
        try:
            contents = read_ledger(self.out / "ledger.jsonl")
        except LedgerError as error:
            if not self.out.exists() and not self.sent:
                return
            if "is truncated" not in str(error):
                raise
            # The rows before the torn one count.
            whole = self.home / "whole-rows"
            whole.write_bytes(self.before)
            contents = read_ledger(whole)
        missing = Counter(self.sent) - Counter(mechanism.uplink for mechanism in contents.mechanisms)
        if missing:
            raise BrokenError(f"uplinks {sorted(missing)} were sent and are not charged")


@dataclass
class Soak:
    """home: for its folders. length_s: of a run that is not killed, as seen last."""

    config: dict[str, Any]
    home: Path
    draw: random.Random
    repeatable: bool = True
    hit: Counter[str] = field(default_factory=Counter)
    killed: int = 0
    runs: int = 0
    sent: int = 0
    charged: int = 0
    length_s: float = 0.1
    fresh: list[Moment] = field(default_factory=list)
    again: list[Moment] = field(default_factory=list)

    def prepare(self) -> None:
        """A run without kills, what it does to files, and a folder of one that was cut off while it sent."""
        self.scene = Scene(self._place("whole"))
        self.fresh = self._moments(self.scene)
        checkpoint = RunFolder(self.scene.out).load_checkpoint()
        if checkpoint is None:
            raise BrokenError("the run without kills has no checkpoint")
        self.model, self.files = checkpoint.model.tobytes(), _files(self.scene.out)
        self.cut = Scene(self._place("cut"))
        rows = [number for number, moment in enumerate(self.fresh) if moment.when == AFTER]
        self._start(self.cut, self.fresh[rows[len(rows) // 2]])
        copy = Scene(self._place("copy"))
        shutil.copytree(self.cut.home, copy.home, dirs_exist_ok=True)
        self.again = self._moments(copy)

    def every_operation(self, stride: int) -> Iterator[Callable[[], None]]:
        """A run for each moment of a fresh run, and of one that is taken up, or for every `stride`-th of them."""
        for moment in self.fresh[::stride]:
            yield lambda moment=moment: self._run(Scene(self._place("run")), iter([moment]))  # type: ignore[misc]
        for moment in self.again[::stride]:
            yield lambda moment=moment: self._run(self._cut_off(), iter([moment]))  # type: ignore[misc]

    def by_chance(self) -> None:
        """A run that is killed until it is done, at operations or at moments, as chance has it."""
        most = self.fresh[-1].operation
        at_operations = self.draw.random() < 0.5

        def moments() -> Iterator[Moment | float]:
            for _ in range(self.draw.randint(1, 12)):
                if at_operations:
                    yield Moment(self.draw.randint(1, most), self.draw.choice(["before", "half", "after"]))
                else:
                    yield self.draw.uniform(0.0, _ABOUT_A_RUN * self.length_s)

        self._run(Scene(self._place("run")), moments())

    def _run(self, scene: Scene, kills: Iterator[Moment | float]) -> None:
        for at in kills:
            if self._start(scene, at) == FINISHED:
                break
            self.killed += 1
            self.hit[_what_was_hit(scene)] += 1
        self._start(scene, None)
        self._check_whole(scene)
        self.runs += 1
        self.sent += len(scene.sent)
        shutil.rmtree(scene.home)

    def _start(self, scene: Scene, at: Moment | float | None) -> str:
        """Start the run, or take it up, and kill it: at a moment among its operations, or after some seconds."""
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            _go_on(self.config, scene, at if isinstance(at, Moment) else None)
        if isinstance(at, float):
            time.sleep(at)
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        _wait_for_the_rest(self.home)
        scene.check()
        if os.WIFEXITED(status):
            if os.WEXITSTATUS(status) != 0:
                raise BrokenError(f"a start failed: {(scene.home / 'error').read_text()}")
            self.length_s += 0.2 * (time.monotonic() - started - self.length_s)
            return FINISHED
        return KILLED

    def _check_whole(self, scene: Scene) -> None:
        folder = RunFolder(scene.out)
        checkpoint, contents = folder.load_checkpoint(), read_ledger(folder.ledger_path)
        self.charged += contents.authorised
        beside = {path.name for path in scene.home.iterdir()}
        uplinks = list(range(1, self.config["uplink"]["uplinks"] + 1))
        held = {
            "the model is another": checkpoint is not None
            and (not self.repeatable or checkpoint.model.tobytes() == self.model),
            "metrics are missing or twice": [row["uplink"] for row in folder.metrics()] == uplinks,
            "an uplink was never sent": sorted(set(scene.sent)) == uplinks,
            "result.json does not count as the ledger": (
                folder.read_json("result.json")["transmissions_charged"] == contents.authorised
            ),
            f"the folder has other files: {_files(scene.out)}": _files(scene.out) == self.files,
            f"something is left beside it: {beside}": beside <= {"run", "witness", "whole-rows"},
            "something is left in the temporary folder": not list((self.home / TEMPORARY).iterdir()),
        }
        wrong = [what for what, holds in held.items() if not holds]
        if wrong:
            raise BrokenError("; ".join(wrong))

    def _moments(self, scene: Scene) -> list[Moment]:
        child = os.fork()
        if child == 0:
            _go_on(self.config, scene, Moment(0, AFTER))
        if os.waitpid(child, 0)[1]:
            raise BrokenError((scene.home / "error").read_text())
        names: list[str] = json.loads((scene.home / "operations").read_text())
        return FileOperations(names=names).moments()

    def _cut_off(self) -> Scene:
        scene = Scene(self._place("run"))
        shutil.copytree(self.cut.home, scene.home, dirs_exist_ok=True)
        return scene

    def _place(self, name: str) -> Path:
        path = self.home / name
        path.mkdir()
        return path


def _wait_for_the_rest(home: Path) -> None:
    """Until no process is there that a run in this folder has started."""
    deadline = time.monotonic() + _END_S
    while living := [one.pid for one in psutil.process_iter() if str(home) in " ".join(_words(one))]:
        if time.monotonic() > deadline:
            raise BrokenError(f"processes {living} go on without their run")
        time.sleep(0.01)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _go_on(config: dict[str, Any], scene: Scene, moment: Moment | None) -> None:
    """The child: the run, until it ends. Never returns. A moment of number 0 only counts."""
    code = 1
    try:
        from fl.run import run

        tempfile.tempdir = str(scene.home.parent / TEMPORARY)
        _witness(scene.witness)
        operations = FileOperations(moment)
        if moment is not None:
            operations.watch()
        run(config, scene.out, resume=True)
        if moment == Moment(0, AFTER):
            (scene.home / "operations").write_text(json.dumps(list(operations.names)))
        code = 0
    except BaseException:
        (scene.home / "error").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def _witness(path: Path) -> None:
    """From now on the one who sends notes every uplink before it leaves, and knows nothing of the ledger."""
    from fl.nodes.radio_uplink import RadioUplink
    from fl.uplink.symbol import SymbolUplink

    write, open_, close = os.write, os.open, os.close
    for uplink in (SymbolUplink, RadioUplink):
        exchange = uplink.exchange

        def watched(self: Any, plan: Any, updates: Any, authorise: Any, exchange: Any = exchange) -> Any:
            def send() -> Any:
                row = authorise()
                descriptor = open_(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                write(descriptor, b"%d\n" % plan.uplink)
                close(descriptor)
                return row

            return exchange(self, plan, updates, send)

        uplink.exchange = watched  # type: ignore[method-assign,assignment]


def _files(folder: Path) -> set[str]:
    """Names in a folder, but those of captures and of noise: an uplink may be charged, these lost by the kill.

    What a kill has left among them has a name that begins with a dot.
    """
    names = (path.relative_to(folder) for path in folder.rglob("*"))
    kept = (name for name in names if name.parent.name != "captures" or name.name.startswith("."))
    return {str(name) for name in kept} - {"noise.jsonl"}


def _what_was_hit(scene: Scene) -> str:
    if not scene.out.exists():
        return "before there was a folder"
    rows = [json.loads(line)["kind"] for line in scene.before.splitlines()]
    if scene.ledger != scene.before:
        return "in the middle of a row"
    done = {"open": "before the first uplink", "resume": "after it was taken up", "account": "after an account"}
    return done.get(rows[-1], "between authorise and account")


def make_ready(config: dict[str, Any], home: Path) -> None:
    """Import and load what every start needs, by one run in this process; without pictures, which no ledger rests on.

    With one worker a run starts no threads, which a fork would not take along.
    """
    import torch

    import fl.run.charging
    import fl.run.figures
    from fl.run import run

    torch.set_num_threads(1)
    fl.run.figures.draw_run = lambda folder: None
    fl.run.charging.versions = lambda: {"python": "x", "packages": {}}  # type: ignore[attr-defined]
    # Drivers of radios have threads of their own: a run over them happens in forks only.
    run(SYMBOL if config in (PLUTO, GNU_RADIO) else config, home / "first")
    (home / TEMPORARY).mkdir()
    _count_threads()
    # What is here now is never collected, so that forks need not copy the pages in which its counters are.
    gc.collect()
    gc.freeze()


def patient(config: dict[str, Any], home: Path) -> dict[str, Any]:
    """The same over radios of a lab that waits for longer."""
    if config["uplink"].get("kind") != "radio":
        return config
    tables: dict[str, Any] = find_lab(config["radio"]["lab"]).to_tables()
    tables["lab"]["timeout_s"] = _PATIENCE_S
    path = home / "lab.toml"
    path.write_text(tomli_w.dumps(tables))
    return {**config, "radio": {**config["radio"], "lab": str(path)}}


def _count_threads() -> None:
    if threading.active_count() > 1:
        raise BrokenError(f"threads are left that no fork would have: {threading.enumerate()}")


def soak(kind: str, kills: int, seed: int, home: Path, stride: int = 1, most_s: float = math.inf) -> Soak:
    """Every operation, then chance, until there were as many kills, or that much time is gone."""
    make_ready(CONFIGS[kind], home)
    made = Soak(patient(CONFIGS[kind], home), home, random.Random(seed), kind not in UNREPEATABLE)
    made.prepare()
    started, said = time.monotonic(), 0
    every = made.every_operation(stride)
    while made.killed < kills and time.monotonic() - started < most_s:
        next(every, made.by_chance)()
        if made.killed - said >= _REPORT_EVERY:
            said = made.killed
            _say(f"{made.killed} kills, {made.runs} runs, {time.monotonic() - started:.0f} s")
    return made


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--uplink", choices=CONFIGS, default="symbol")
    parser.add_argument("--stride", type=int, default=1, help="every which moment among a run's file operations")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no run is begun after that")
    given = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as home:
        made = soak(given.uplink, given.kills, given.seed, Path(home), given.stride, given.seconds)
    _say(
        f"{made.killed} kills in {time.monotonic() - started:.0f} s, {given.uplink}, seed {given.seed}: "
        f"{made.fresh[-1].operation} operations of a fresh run, {made.again[-1].operation} of one that is taken up\n"
        f"{made.runs} runs{', all with the model of the run without kills' if made.repeatable else ''}; "
        f"{made.sent} uplinks sent, "
        f"{made.charged} charged, no row lost\nhit: {dict(made.hit)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
