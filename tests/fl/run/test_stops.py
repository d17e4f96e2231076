"""Signals at random moments of a payload over virtual Plutos, and what their air saw beside what the ledger says.

AIRDP_STOPS=200 sets the number of signals, AIRDP_STOPS_SEED which moments they come at; what they did is in the log
(`-o log_cli=true --log-cli-level=INFO`).
"""

import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from numpy.typing import NDArray

from fl.privacy.ledger import LedgerContents, read_ledger
from hardware.air.medium import Medium
from hardware.lab.file import find_lab, parse_lab
from hardware.virtual.iiod.emulator import Emulator
from hardware.virtual.iiod.radio import VirtualRadio
from tests.conftest import REPOSITORY
from tests.fl.nodes.small_runs import pluto_run
from tests.hardware.plutos import wait_for

STOPS, SEED = (
    int(os.environ.get(name, default)) for name, default in (("AIRDP_STOPS", "8"), ("AIRDP_STOPS_SEED", "11"))
)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
SLOW, DELAY_S = "client-1", 0.004
"""Whatever is set on this radio is set so much later."""
MUTED_DB = -60.0
# Slow, so that a busy machine comes to stop radios while they still have something to send.
RATE_HZ = 1e6
UPLINKS = 2
BLOCK = 2048
# A burst of noise has zeros in it, and radios are aligned to a sample or so.
GAP_SAMPLES = 32
LOG = logging.getLogger(__name__)

# Runs are forked from it, so that importing costs its time once. The witness says what the air is about to carry; it is
# written by who sends, before the first sample leaves.
NURSERY = """
import json, os, sys, time
import fl.run.figures
import fl.run.runner
from fl.nodes.coordinator import Coordinator
from fl.run import run
from hardware.pluto.context import PlutoContext

ask, carry = PlutoContext.ask, Coordinator.carry


def slow_ask(self, doing, call):
    # Its streams keep up: in lockstep everybody would wait for them.
    if self.name == order["slow"] and doing.startswith("setting"):
        time.sleep(order["delay_s"])
    return ask(self, doing, call)


def mark(letter, uplink):
    os.pwrite(witness, b"%c%07d" % (letter, uplink), 0)


def watched(self, current):
    mark(ord("P"), current.plan.uplink)
    received = carry(self, current)
    mark(ord("D"), current.plan.uplink)
    return received


PlutoContext.ask, Coordinator.carry = slow_ask, watched
fl.run.figures.draw_run = lambda folder: None
for line in sys.stdin:
    order = json.loads(line)
    pid = os.fork()
    if not pid:
        said = os.open(order["said"], os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1)
        os.dup2(said, 2)
        witness = os.open(order["witness"], os.O_WRONLY)
        run(order["config"], order["folder"])
        sys.exit(0)
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


@dataclass
class Air:
    """What left the antennas while payloads were on the air: samples by uplink and radio, that were not zero and not
    sent by a radio at its lowest gain.

    Until the signal comes, time waits for the server to receive. From then on it goes on by itself and with the
    wall clock, so that what happens to radios one after the other happens at different samples.
    """

    witness: int
    sent: dict[int, dict[str, list[NDArray[np.int64]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    pid: int = 0
    number: int = 0
    target: int = 0
    moment: int = 0
    armed: bool = False
    stopped_at: tuple[int, float] | None = None

    def see(self, medium: Medium, name: str, samples: NDArray[np.complex64], start_sample: int) -> None:
        said = os.pread(self.witness, 8, 0)
        if said[:1] != b"P":
            return
        uplink = int(said[1:])
        if medium.settings(name).tx_gain_db > MUTED_DB:
            radiated = start_sample + np.flatnonzero(samples)
            if radiated.size:
                self.sent[uplink][name].append(radiated)
        if self.armed and uplink == self.target and self.payload_samples(uplink) >= self.moment:
            self.armed, self.stopped_at = False, (start_sample, time.monotonic())
            os.kill(self.pid, self.number)

    @property
    def goes_on(self) -> bool:
        return self.stopped_at is not None

    def is_ahead(self, sample: int) -> bool:
        """Whether it is too early for this sample."""
        if self.stopped_at is None:
            return False
        first, started_s = self.stopped_at
        return sample - first > RATE_HZ * (time.monotonic() - started_s)

    def payload_samples(self, uplink: int) -> int:
        return sum(part.size for part in self.sent[uplink]["client-2"])

    def without_noise(self, uplink: int) -> int:
        """Samples of clients at which the jammer sent nothing."""
        radios = dict(self.sent[uplink])
        jammed = np.unique(np.concatenate([*radios.pop("jammer", []), np.zeros(0, np.int64)]))
        count = 0
        for parts in radios.values():
            own = np.concatenate([*parts, np.zeros(0, np.int64)])
            # Both neighbours in what the jammer sent are near, or one of them is.
            after = np.searchsorted(jammed, own)
            padded = np.concatenate([[-(10**9)], jammed, [10**12]])
            gap = np.minimum(own - padded[after], padded[after + 1] - own)
            count += int(np.count_nonzero(gap > GAP_SAMPLES))
        return count


@dataclass
class Scene:
    """A lab of virtual Plutos in this process, and a process that runs are forked from."""

    folder: Path
    lab_file: Path
    emulator: Emulator
    nursery: "subprocess.Popen[str]"
    air: Air

    def stop_a_run(self, number: int, trial: int, target: int, moment: int) -> tuple[Path, int, str]:
        """Its folder, its wait status, and what it said."""
        folder, said = self.folder / f"run-{trial}", self.folder / f"said-{trial}"
        os.pwrite(self.air.witness, b"-0000000", 0)
        self.air.sent.clear()
        self.air.stopped_at = None
        self.air.number, self.air.target, self.air.moment = number, target, moment
        order = {
            "config": pluto_run(
                str(self.lab_file),
                model={"hidden": 800},
                uplink={"uplinks": UPLINKS},
                radio={"attempts": 1, "diagnosis": False},
            ),
            "folder": str(folder),
            "said": str(said),
            "witness": str(self.folder / "witness"),
            "slow": SLOW,
            "delay_s": DELAY_S,
        }
        assert self.nursery.stdin is not None
        assert self.nursery.stdout is not None
        self.nursery.stdin.write(json.dumps(order) + "\n")
        self.nursery.stdin.flush()
        self.air.pid = int(self.nursery.stdout.readline())
        self.air.armed = True
        status = int(self.nursery.stdout.readline())
        # What the radios had queued is gone when their connections are.
        wait_for(lambda: not any(radio.connections for radio in self.emulator.status()))
        return folder, status, said.read_text()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    tables = find_lab("pluto-virtual").to_tables()
    tables["lab"].update(backend="pluto")
    # A radio holds most of a payload when it is told to stop, as real ones do.
    tables["pluto"].update(buffer_samples=BLOCK, kernel_buffers=16)
    (tmp_path / "witness").write_bytes(b"-0000000")
    with witness(tmp_path / "witness") as descriptor:
        air, send = Air(descriptor), Medium.send

        def watched(medium: Medium, name: str, samples: NDArray[np.complex64], start_sample: int) -> None:
            send(medium, name, samples, start_sample)
            air.see(medium, name, samples, start_sample)

        monkeypatch.setattr(Medium, "send", watched)
        with Emulator(parse_lab(tables), seed=3) as emulator, nursery() as process:
            monkeypatch.setattr(VirtualRadio, "can_go_on", property(pace(air, emulator)))
            for radio in tables["radio"]:
                radio["address"] = emulator.uris[radio["name"]]
            lab_file = tmp_path / "lab.toml"
            lab_file.write_text(tomli_w.dumps(tables))
            with ticking(air, emulator):
                yield Scene(tmp_path, lab_file, emulator, process, air)


def pace(air: Air, emulator: Emulator) -> Callable[[VirtualRadio], bool]:
    """Whether time goes on as far as a radio is concerned."""
    can_go_on: Any = VirtualRadio.can_go_on
    radios = emulator._virtual.radios.values()

    def goes_on(radio: VirtualRadio) -> bool:
        if air.is_ahead(radio.counter):
            return False
        # With all senders gone nobody sets the pace, and receivers would hear for ever.
        heard_in_vain = air.goes_on and radio.listens and any(other.tx is not None for other in radios)
        return heard_in_vain or bool(can_go_on.fget(radio))

    return goes_on


@contextmanager
def ticking(air: Air, emulator: Emulator) -> Iterator[None]:
    """Time that goes on by itself does so within the block."""
    over = threading.Event()

    def tick() -> None:
        virtual = emulator._virtual
        while not over.wait(0.001):
            if air.goes_on:
                with virtual.turn():
                    virtual.run(virtual.radios["ps"])

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def witness(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


@contextmanager
def nursery() -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-c", NURSERY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def jammed_in(contents: LedgerContents) -> dict[int, bool]:
    """Whether the ledger counts the jammer's noise, by uplink."""
    return {mechanism.uplink: mechanism.alpha_cj > 0 for mechanism in contents.mechanisms}


@pytest.mark.timeout(120 + 15 * STOPS)
def test_nobody_is_heard_without_the_noise_that_the_ledger_counts(scene: Scene) -> None:
    draw = random.Random(SEED)
    what: Counter[str] = Counter()
    unprotected = 0
    whole = payload_samples_of(scene)
    started = time.monotonic()
    for trial in range(STOPS):
        number = SIGNALS[trial % len(SIGNALS)]
        # Before the first sample, within the payload, and up to its last.
        target, moment = draw.randint(1, UPLINKS), round(draw.uniform(-0.05, 1.0) * whole)
        folder, status, said = scene.stop_a_run(number, trial, target, moment)
        place = f"trial {trial}, {number.name} at {moment} of {whole} samples of uplink {target}: {said}"
        assert not scene.air.armed, place
        assert status != 0, place
        contents = read_ledger(folder / "ledger.jsonl")
        counted = jammed_in(contents)
        for uplink in scene.air.sent:
            bare = scene.air.without_noise(uplink)
            if counted[uplink]:
                assert bare == 0, place
            if number is not signal.SIGKILL:
                # Stopped in order: not even where it would be paid for.
                assert bare == 0, place
            unprotected += bare
        assert counted == {**dict.fromkeys(range(1, target), True), target: contents.unaccounted == 0}, place
        assert contents.unaccounted <= 1, place
        what[f"{number.name}, {'accounted' if counted[target] else 'cut off'}"] += 1
    assert sum(count for name, count in what.items() if "cut off" in name) > STOPS // 2, what
    LOG.info(
        "%d stops in %.0f s: %s; %d samples without noise, all of them after SIGKILL and charged without it",
        STOPS,
        time.monotonic() - started,
        dict(what),
        unprotected,
    )


def payload_samples_of(scene: Scene) -> int:
    """How long a payload is, from a run that nobody stops; and that a whole one is seen, and covered."""
    folder, status, said = scene.stop_a_run(signal.SIGINT, 10**6, UPLINKS + 1, 0)
    assert status == 0, said
    assert jammed_in(read_ledger(folder / "ledger.jsonl")) == dict.fromkeys(range(1, UPLINKS + 1), True)
    assert [scene.air.without_noise(uplink) for uplink in range(1, UPLINKS + 1)] == [0] * UPLINKS
    scene.air.armed = False
    return scene.air.payload_samples(1)


def test_a_client_without_noise_is_seen() -> None:
    """The measure itself: 100 samples outside of the jammer's burst, in front of it and behind."""
    air = Air(witness=0)
    air.sent[1]["jammer"] = [np.arange(1000, 2000, 2)]
    air.sent[1]["client-1"] = [np.arange(1000, 2000)]
    assert air.without_noise(1) == 0
    air.sent[1]["client-2"] = [np.arange(1000 - GAP_SAMPLES - 40, 1998 + GAP_SAMPLES + 61)]
    assert air.without_noise(1) == 100
    del air.sent[1]["jammer"]
    assert air.without_noise(1) == 1000 + air.payload_samples(1)
