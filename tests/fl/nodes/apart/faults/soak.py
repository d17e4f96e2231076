"""Faults at random, one after the other, in runs of real processes.

    python -m tests.fl.nodes.apart.faults.soak --faults 500

Nodes and server are processes of their own that come back when they end, as services do. Between them is a meddler, and
in each of them a witness who writes down every burst before it is on the air. Whenever the server has stopped, however,
and at the end, all books are compared with that. Runs are short, and are resumed until they are finished.
"""

import argparse
import json
import math
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from phy.errors import AirdpError
from tests.fl.nodes.apart.faults.books import Books
from tests.fl.nodes.apart.faults.meddler import CUT, DOUBLE, DROP, LATE, PASS, SHUFFLE, Meddler
from tests.fl.nodes.apart.faults.witness import arm, disarm, set_right
from tests.fl.nodes.apart.site import Site, forkserver, free_port, sections, serve_run, site

UPLINKS = 25
ANSWER_S = 2.0
HANG_S = 90.0
"""Without a new row in the ledger or a stop of the run. An uplink has two attempts; each waits for nodes that are not
there, for the answer of one that is silent, and for nobody else: about six times ANSWER_S; then it is given up. The
next server waits for 30 s for all to join."""
STILL_AIR = {
    "lab": {"tx_gain_db": -10.0},
    "medium": {"fading": "static", "gain_db": -10.0},
}
"""Channels that stand still, and radios that can be turned up."""
IMPATIENT = {**STILL_AIR, "lab": {**STILL_AIR["lab"], "timeout_s": 0.6}}


@dataclass
class Soak:
    here: Site
    meddler: Meddler
    rng: random.Random
    done: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    runs: list[Books] = field(default_factory=list)
    server: BaseProcess | None = None
    held: set[str] = field(default_factory=set)
    writes: bool = False
    over: bool = False
    moved_at: float = 0.0
    size: int = 0
    longest_s: float = 0.0
    liars: int = 0

    @property
    def books(self) -> Books:
        return self.runs[-1]

    @property
    def names(self) -> list[str]:
        return [*(radio.name for radio in self.here.lab.clients), "jammer"]

    def chosen(self) -> dict[str, Any]:
        rise = {"attempts": 2, "max_gain_rise_db": 3.0, "first_quiet_samples": 8192}
        return sections(uplinks=UPLINKS, radio=rise, privacy={"epsilon": 5.0})

    def supervise(self) -> None:
        """Start what has ended; look at the books whenever the server has."""
        for name in self.names:
            process = self.here.processes.get(name)
            if name not in self.held and (process is None or not process.is_alive()):
                if process is not None:
                    self.ends[_ending(process.exitcode)] += 1
                self.here.start(name)
        if self.server is None or not self.server.is_alive():
            self._server_ended()
        size = self.ledger_size()
        if size != self.size:
            self._moved()
            self.size, self.writes = size, True
        if time.monotonic() > self.moved_at + HANG_S:
            raise AssertionError(f"nothing has moved for {HANG_S:g} s")

    def ledger_size(self) -> int:
        ledger = self.here.folder / self.books.out / "ledger.jsonl"
        return ledger.stat().st_size if ledger.exists() else 0

    def _moved(self) -> None:
        now = time.monotonic()
        self.longest_s = max(self.longest_s, now - self.moved_at) if self.moved_at else 0.0
        self.moved_at = now

    def _server_ended(self) -> None:
        finished = True
        if self.server is not None:
            self._moved()
            self.stops[self._last_words(self.server.exitcode)] += 1
            finished = self.server.exitcode == 0
            if (self.here.folder / self.books.out / "ledger.jsonl").exists():
                self.look()
        if self.over:
            return
        if finished:
            self.runs.append(Books(self.here.folder, f"run-{len(self.runs) + 1}"))
        out = self.books.out
        resume = (self.here.folder / out / "ledger.jsonl").exists()
        self.server = forkserver().Process(
            target=serve_run,
            args=(str(self.here.folder), self.here.port, self.chosen(), out, resume, ANSWER_S),
            daemon=True,
        )
        self.size, self.writes = self.ledger_size(), False
        self.server.start()
        self.moved_at = self.moved_at or time.monotonic()

    def _last_words(self, code: int | None) -> str:
        if code == 0:
            return "finished"
        if code is not None and code < 0:
            return "killed"
        said = (self.here.folder / "server.log").read_text().splitlines()
        if code not in (2, 130) or not said or not said[-1].startswith("ended: "):
            raise AssertionError(f"the server has ended with {code}, without a reason:\n" + "\n".join(said[-40:]))
        return "named: " + said[-1].split()[1].rstrip(":")

    def look(self) -> None:
        """All books; a client may be writing in its own for a moment longer than the server lives."""
        for tries in range(20):
            try:
                self.books.check()
                return
            except (AirdpError, AssertionError):
                if tries == 19:
                    raise
                time.sleep(0.1)

    def pause(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let things go on for so long, or until something is true; whether it is."""
        deadline = time.monotonic() + seconds
        while not until():
            if time.monotonic() > deadline:
                return False
            self.supervise()
            time.sleep(0.02)
        return True

    def faults(self) -> dict[str, Callable[[str], bool]]:
        """Each with whether it has come to pass."""
        return {
            "node killed": lambda name: self._end(name, signal.SIGKILL),
            "node told to end": lambda name: self._end(name, signal.SIGTERM),
            "node away for a while": lambda name: self._end(name, signal.SIGKILL, self.rng.uniform(0.5, 4.0)),
            "node frozen": self._freeze,
            "node cut off, silently": lambda name: self._meddle(name, DROP, self.rng.uniform(0.2, 4.0)),
            "node cut off, hung up on": lambda name: self._meddle(name, CUT, self.rng.uniform(0.05, 2.0)),
            "messages late": lambda name: self._meddle(name, LATE, 1.0),
            "messages doubled": lambda name: self._meddle(name, DOUBLE, 1.0),
            "messages reordered": lambda name: self._meddle(name, SHUFFLE, 1.0),
            "old messages repeated": self._repeat,
            "server killed": lambda _: self._stop_server(signal.SIGKILL),
            "server interrupted": lambda _: self._stop_server(signal.SIGINT),
            "server frozen": lambda _: self._freeze_server(),
            "jammer gone between PLAN and TRANSMIT": lambda _: self._jammer_after_plan(),
            "jammer gone in the payload": lambda _: self._once("jammer", do="cut", part=self.rng.uniform(0.0, 1.0)),
            "a client that lies": self._lie,
            "a sample counter that jumps": self._count,
            "a clock that jumps": self._clock,
        }

    def _end(self, name: str, number: int, away_s: float = 0.0) -> bool:
        if away_s:
            self.held.add(name)
        self.here.signal(name, number)
        self.here.processes[name].join(20)
        self.pause(away_s)
        self.held.discard(name)
        return True

    def _freeze(self, name: str) -> bool:
        self.here.signal(name, signal.SIGSTOP)
        self.pause(self.rng.choice([0.2, 0.5, 1.0, 2.0, 6.0]))
        self.here.signal(name, signal.SIGCONT)
        return True

    def _meddle(self, name: str, way: str, seconds: float) -> bool:
        wire = self.meddler.wires[name]
        wire.way, before = way, wire.passed
        self.pause(seconds)
        # While a server starts there is nothing to do it to.
        happened = way == CUT or self.pause(60.0, until=lambda: wire.passed > before)
        wire.way = PASS
        return happened

    def _repeat(self, name: str) -> bool:
        self.meddler.wires[name].repeats = 100
        return self.pause(10.0, until=lambda: self.meddler.wires[name].repeats == 0)

    def _stop_server(self, number: int) -> bool:
        # A process that is still being made has nobody yet who could end it with a word: it has once it writes rows.
        if not self.pause(60.0, until=lambda: self.writes):
            return False
        if self.server is not None and self.server.pid is not None and self.server.is_alive():
            os.kill(self.server.pid, number)
            self.server.join(60)
            if self.server.is_alive():
                raise AssertionError(f"the server has gone on for 60 s after {signal.Signals(number).name}")
            return True
        return False

    def _freeze_server(self) -> bool:
        pid = None if self.server is None else self.server.pid
        if pid is None:
            return False
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.rng.choice([0.2, 0.5, 1.0, 2.0, 6.0]))
        os.kill(pid, signal.SIGCONT)
        return True

    def _once(self, name: str, **what: Any) -> bool:
        arm(self.here.folder, name, **what)
        path = self.here.folder / "armed" / name
        self.pause(30.0, until=lambda: not path.exists())
        return not disarm(self.here.folder, name)

    def _jammer_after_plan(self) -> bool:
        self.pause(5.0, until=self.here.processes["jammer"].is_alive)
        return self._once("server", do="die", pid=self.here.processes["jammer"].pid)

    def _lie(self, name: str) -> bool:
        """It is seen, whatever happens meanwhile: in the payload, or when it sounds next. Then it is set right."""
        name = self.rng.choice([one for one in self.names if one != "jammer"])
        seen = self.stops["named: DishonestError"]
        if not self._once(name, do="lie", db=6.0):
            return False
        if not self.pause(HANG_S, until=lambda: self.stops["named: DishonestError"] > seen):
            raise AssertionError(f"'{name}' sends with 6 dB more than it announces, and nobody sees it")
        self.liars += 1
        set_right(self.here.folder, name)
        self._end(name, signal.SIGKILL)
        return True

    def _count(self, name: str) -> bool:
        return self._once(name, do="count", samples=self.rng.choice([-3, 5, 200, -4000, 10**6]))

    def _clock(self, name: str) -> bool:
        what = self.rng.choice([{"wall_s": 86400.0}, {"wall_s": -86400.0}, {"steady_s": 20.0}])
        return self._once(self.rng.choice([name, "server"]), do="clock", **what)

    def go(self, faults: int, seconds: float = math.inf) -> None:
        """So many faults, each kind as often as the others, or as many as there is time for."""
        started = time.monotonic()
        self.start()
        turn: list[str] = []
        while sum(self.done.values()) < faults and time.monotonic() < started + seconds:
            turn = turn or self.rng.sample(list(self.faults()), len(self.faults()))
            self.inject(turn.pop())
        self.finish()

    def start(self) -> None:
        """Nodes and the first run's server."""
        self._server_ended()
        self.supervise()

    def inject(self, kind: str) -> bool:
        """One fault of that kind, and some time after it; whether it has come to pass."""
        happened = self.faults()[kind](self.rng.choice(self.names))
        (self.done if happened else self.missed)[kind] += 1
        print(f"{sum(self.done.values())} {kind}{'' if happened else ' (not)'}", flush=True)  # noqa: T201
        if self.rng.random() < 0.5:
            self.pause(HANG_S, until=_grown(self, 1))
        else:
            self.pause(self.rng.uniform(0.0, 0.3))
        return happened

    def finish(self) -> None:
        """The last run goes to its end, without faults."""
        self.over = False
        number = len(self.runs)
        while len(self.runs) == number:
            self.pause(1.0)
        self.over = True
        if self.server is not None:
            self.server.kill()
            self.server.join(20)
        for books in self.runs[:-1]:
            books.check()

    def said(self) -> dict[str, Any]:
        finished = self.runs[:-1]
        return {
            "faults": sum(self.done.values()),
            "by_kind": dict(sorted(self.done.items())),
            "did_not_come_to_pass": dict(sorted(self.missed.items())),
            "liars_seen": self.liars,
            "stops_of_the_server": dict(sorted(self.stops.items())),
            "ends_of_nodes": dict(sorted(self.ends.items())),
            "runs_finished": len(finished),
            "uplinks_finished": UPLINKS * len(finished),
            "transmissions_charged": sum(books.charged for books in finished),
            "bursts_of_clients": sum(books.sent for books in finished),
            "longest_s_without_a_row_or_a_stop": round(self.longest_s, 1),
        }


def _grown(soak: Soak, rows: int) -> Callable[[], bool]:
    """Whether the ledger has so many rows more, or the run another server."""
    server, start = soak.server, soak.size
    return lambda: soak.server is not server or soak.size > start + 800 * rows


def _ending(code: int | None) -> str:
    if code in (0, 2):
        return "left" if code == 0 else "with a word"
    if code is not None and (code < 0 or code > 128):
        return signal.Signals(-code if code < 0 else code - 128).name
    raise AssertionError(f"a node has ended with {code}: see its log")


def require_no_traceback(folder: Path) -> None:
    for log in folder.glob("*.log"):
        found = re.search(r"Traceback.*", log.read_text(), re.DOTALL)
        if found:
            raise AssertionError(f"{log.name}: {found.group()[:3000]}")


@contextmanager
def soaking(folder: Path, seed: int) -> Iterator[Soak]:
    """Nodes, their air and a meddler, before anything is started."""
    rng = random.Random(seed)
    with site(folder, changes=IMPATIENT) as here:
        here.watched = True
        names = [radio.name for radio in here.lab.radios if radio.name != "ps"]
        with Meddler(here.folder / "keys", here.server, {name: free_port() for name in names}, rng) as meddler:
            here.changes = {name: {"server": meddler.endpoint(name)} for name in names}
            soak = Soak(here, meddler, rng)
            try:
                yield soak
                require_no_traceback(folder)
            finally:
                if soak.server is not None:
                    soak.server.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no new fault after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for logs and books, instead of a temporary one")
    options = parser.parse_args()
    started = time.monotonic()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="airdp-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    with soaking(folder, options.seed) as soak:
        try:
            soak.go(options.faults, options.seconds)
        finally:
            said = {**soak.said(), "seconds": round(time.monotonic() - started), "seed": options.seed}
            print(json.dumps(said, indent=1))  # noqa: T201
    if options.keep is None:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
