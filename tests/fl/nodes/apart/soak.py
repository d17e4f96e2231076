"""Faults at random, one after the other, in runs of real processes: `python -m tests.fl.nodes.apart.soak --faults 100`.

After each stop of the run, and at the end: no row of the server's ledger is lost, every transmission of a client is on
a row of it, and every run ends or names its reason and goes on.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fl.nodes.apart.comparison import compare
from fl.privacy.ledger import read_ledger
from fl.run.runner import FINISHED, UplinkMetrics
from phy.errors import AirdpError
from tests.fl.nodes.apart.site import Site, sections, site

UPLINKS = 100_000
QUIET_S = (0.2, 6.0)
LONGEST_STOP_S = 120.0
"""For a run that is stuck: the longest time-out of a link is 10 s, and an uplink has two attempts."""


class CrashError(BaseException):
    """The server is gone, without a word."""


@dataclass
class Soak:
    here: Site
    rng: random.Random
    faults: int
    done: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    uplinks: int = 0
    crash: bool = False
    over: bool = False
    rows_seen: int = 0
    last_progress: float = field(default_factory=time.monotonic)
    longest_s: float = 0.0

    def inject(self) -> None:
        """One fault after the other, in a thread of its own."""
        kinds: dict[str, Callable[[str], None]] = {
            "client killed and started anew": self._kill,
            "jammer killed and started anew": lambda _: self._kill("jammer"),
            "node frozen for up to 3 s": self._freeze,
            "node told to end (SIGTERM) and started anew": self._terminate,
            "server gone and resumed": self._crash,
        }
        while sum(self.done.values()) < self.faults:
            time.sleep(self.rng.uniform(*QUIET_S))
            kind = self.rng.choice(list(kinds))
            name = self.rng.choice([one.name for one in self.here.lab.clients] + ["jammer"])
            kinds[kind](name)
            self.done[kind] += 1
        self.over = True

    def _kill(self, name: str) -> None:
        self._end(name, signal.SIGKILL)

    def _terminate(self, name: str) -> None:
        self._end(name, signal.SIGTERM)

    def _end(self, name: str, number: int) -> None:
        self.here.signal(name, number)
        self.here.processes[name].join(20)
        self.here.start(name)

    def _freeze(self, name: str) -> None:
        self.here.signal(name, signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.1, 3.0))
        self.here.signal(name, signal.SIGCONT)

    def _crash(self, name: str) -> None:
        self.crash = True
        while self.crash and not self.over:
            time.sleep(0.05)

    def on_uplink(self, metrics: UplinkMetrics) -> None:
        self.longest_s = max(self.longest_s, time.monotonic() - self.last_progress)
        self.last_progress, self.uplinks = time.monotonic(), metrics.uplink
        if self.crash:
            self.crash = False
            raise CrashError
        if self.over:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Nothing lost, nothing sent that was not charged."""
        server = read_ledger(self.here.folder / "run" / "ledger.jsonl")
        if server.authorised < self.rows_seen:
            raise AssertionError(f"{self.rows_seen - server.authorised} rows of the ledger are lost")
        self.rows_seen = server.authorised
        for folder in self.here.states():
            found = compare(server, folder)
            if found.under_counted or found.sent > server.authorised:
                raise AssertionError(f"{folder}: {found.unknown} transmissions are not in the server's ledger")

    def go(self) -> None:
        threading.Thread(target=self.inject, daemon=True).start()
        chosen = sections(uplinks=UPLINKS, privacy={"epsilon": 1e6})
        resume = False
        while not self.over:
            try:
                result = self.here.run(chosen, resume=resume, on_uplink=self.on_uplink, wait_s=60.0)
                self.ended[result.status] += 1
                if result.status == FINISHED:
                    break
            except CrashError:
                self.ended["server gone"] += 1
            except KeyboardInterrupt:
                self.ended["enough faults"] += 1
            except AirdpError as error:
                self.ended[f"named: {type(error).__name__}"] += 1
            self.crash = False
            resume = (self.here.folder / "run" / "ledger.jsonl").exists()
            if resume:
                self.check()
        self.check()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    import fl.nodes.apart.uplink
    import fl.run.figures

    # Clients that are told to leave would end with every crash of the server.
    fl.nodes.apart.uplink.ApartUplink.leave = lambda self: None  # type: ignore[method-assign]
    fl.run.figures.draw_run = lambda folder: None
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="airdp-soak-") as folder, site(Path(folder)) as here:
        here.start_all()
        soak = Soak(here, random.Random(options.seed), options.faults)
        soak.go()
        said = {
            "faults": dict(soak.done),
            "stops": dict(soak.ended),
            "uplinks": soak.uplinks,
            "transmissions_charged": soak.rows_seen,
            "longest_s_between_uplinks": round(soak.longest_s, 1),
            "seconds": round(time.monotonic() - started),
        }
        print(json.dumps(said, indent=1))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
