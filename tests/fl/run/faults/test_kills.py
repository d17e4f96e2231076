"""A run in a process of its own, killed by SIGKILL at random moments until it is done.

AIRDP_KILLS=100 sets the number of kills; what they hit is in the log (`-o log_cli=true --log-cli-level=INFO`).
"""

import json
import logging
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fl.errors import LedgerError
from fl.privacy.accountant import Accountant
from fl.privacy.ledger import LedgerContents, read_ledger
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.statement import state_privacy
from fl.run import run
from fl.run.folder import RunFolder

KILLS = int(os.environ.get("AIRDP_KILLS", "8"))
UPLINKS = max(30, 2 * KILLS)
CONFIG: dict[str, Any] = {
    "name": "victim",
    "data": {"set": "synthetic", "synthetic_max_client_samples": 60},
    "partition": {"kind": "natural", "clients": 4},
    "model": {"hidden": 12},
    "local": {"epochs": 2},
    "uplink": {"uplinks": UPLINKS},
    "power": {"channel_epsilon": 50.0},
    "jammer": {"role": "rotating"},
}
# The witness is written by the one who sends, before the first sample leaves, and knows nothing of the ledger.
VICTIM = """
import json, os, sys
from fl.run import run
from fl.uplink.symbol import SymbolUplink

folder, witness, config = sys.argv[1:]
exchange = SymbolUplink.exchange


def watched(self, plan, updates, authorise):
    def send():
        authorise()
        descriptor = os.open(witness, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, b"%d\\n" % plan.uplink)
        os.close(descriptor)

    return exchange(self, plan, updates, send)


SymbolUplink.exchange = watched
print(run(json.loads(config), folder, resume=True).model_sha256)
"""
REPOSITORY = Path(__file__).resolve().parents[4]
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scene:
    folder: Path
    witness: Path

    @property
    def ledger(self) -> bytes:
        path = self.folder / "ledger.jsonl"
        return path.read_bytes() if path.exists() else b""

    @property
    def ledger_size(self) -> int:
        path = self.folder / "ledger.jsonl"
        return path.stat().st_size if path.exists() else 0

    @property
    def sent(self) -> list[int]:
        """Numbers of the uplinks that were sent, as often as they were."""
        return [int(line) for line in self.witness.read_text().splitlines()] if self.witness.exists() else []

    @property
    def finished_uplinks(self) -> int:
        checkpoint = RunFolder(self.folder).load_checkpoint()
        return checkpoint.uplink if checkpoint else 0

    @contextmanager
    def victim(self) -> Iterator[subprocess.Popen[str]]:
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", VICTIM, self.folder, self.witness, json.dumps(CONFIG)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def wait_until(process: subprocess.Popen[str], condition: Any, seconds: float = 60) -> bool:
    """Whether `condition()` came true before the process ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        if process.poll() is not None:
            assert process.returncode == 0, process.communicate()[1]
            return False
        time.sleep(0.001)
    raise TimeoutError("the victim does not get anywhere")


def kill_while_starting(scene: Scene, draw: random.Random) -> bool:
    """From before the first import until shortly after the ledger is opened."""
    with scene.victim() as process:
        time.sleep(draw.uniform(0.0, 2.5))
        return process.poll() is None


def kill_while_working(scene: Scene, draw: random.Random) -> bool:
    """After a few rows of the ledger, anywhere in the uplink that follows: training, sending, writing."""
    before, row_bytes = scene.ledger_size, 600
    with scene.victim() as process:
        # About two rows an uplink, and no faster than the run lasts for all kills.
        rows = draw.randint(1, 2 * max(2, UPLINKS // KILLS))
        if not wait_until(process, lambda: scene.ledger_size > before + row_bytes * rows):
            return False
        time.sleep(draw.uniform(0.0, 0.04))
        return process.poll() is None


def kill_while_drawing(scene: Scene, draw: random.Random) -> bool:
    """After the last uplink: figures, result."""
    before = scene.ledger_size
    with scene.victim() as process:
        if not wait_until(process, lambda: scene.ledger_size > before and scene.finished_uplinks == UPLINKS):
            return False
        time.sleep(draw.uniform(0.0, 1.5))
        return process.poll() is None


def what_was_hit(scene: Scene, before: bytes) -> str:
    if not scene.folder.exists():
        return "before there was a folder"
    if scene.ledger == before:
        return "before the ledger was opened"
    rows = [json.loads(line) for line in scene.ledger.splitlines()]
    if rows[-1]["kind"] != "authorise":
        return "figures" if scene.finished_uplinks == UPLINKS else "training"
    if scene.finished_uplinks == rows[-1]["mechanism"]["uplink"]:
        return "between checkpoint and account"
    return "between authorise and checkpoint"


def epsilon_of(mechanisms: list[RoundMechanism], contents: LedgerContents) -> float:
    header = contents.header
    return state_privacy(
        mechanisms, header.sizes_array, label=header.label, neighbours=header.neighbours, delta=header.delta
    ).epsilon[Accountant.EXACT]


def assert_never_less_than_sent(scene: Scene) -> None:
    """Every transmission has a row, written before it, and the epsilon of the rows covers all transmissions."""
    if not scene.folder.exists():
        assert scene.sent == []
        return
    try:
        contents = read_ledger(scene.folder / "ledger.jsonl")
    except LedgerError as error:
        # A row torn by the kill; the rows before it count.
        assert "is truncated" in str(error)  # noqa: PT017
        return
    assert contents.authorised >= len(scene.sent)
    charged = Counter(mechanism.uplink for mechanism in contents.mechanisms)
    assert not Counter(scene.sent) - charged
    # What was sent had its jammer; a row that was never accounted for counts without it.
    of = {mechanism.uplink: mechanism for mechanism in sorted(contents.mechanisms, key=lambda one: one.sigma)}
    if scene.sent:
        sent = [of[uplink] for uplink in scene.sent]
        assert epsilon_of(list(contents.mechanisms), contents) >= epsilon_of(sent, contents) * (1 - 1e-12)


@pytest.mark.timeout(90 + 15 * KILLS)
@pytest.mark.usefixtures("no_figures")
def test_a_run_survives_being_killed_at_random_moments(tmp_path: Path) -> None:
    whole = run(CONFIG, tmp_path / "whole")
    scene = Scene(tmp_path / "run", tmp_path / "witness")
    draw = random.Random(20)
    drawing = max(1, KILLS // 10)
    hit: Counter[str] = Counter()
    killed = attempts = 0
    started = time.monotonic()
    while killed < KILLS:
        attempts += 1
        assert attempts < 3 * KILLS + 10, f"only {killed} kills found the run alive: {hit}"
        if killed >= KILLS - drawing:
            kill = kill_while_drawing
        else:
            kill = kill_while_starting if draw.random() < 0.2 else kill_while_working
        before = scene.ledger
        alive = kill(scene, draw)
        assert scene.ledger.startswith(before), "a row of the ledger was lost"
        assert_never_less_than_sent(scene)
        if alive:
            killed += 1
            hit[what_was_hit(scene, before)] += 1
    with scene.victim() as process:
        out, err = process.communicate(timeout=90)
    assert (process.returncode, err) == (0, "")

    assert out.strip() == whole.model_sha256
    checkpoint, expected = (RunFolder(path).load_checkpoint() for path in (scene.folder, whole.out))
    assert checkpoint is not None
    assert expected is not None
    assert checkpoint.model.tobytes() == expected.model.tobytes()
    assert [row["uplink"] for row in RunFolder(scene.folder).metrics()] == list(range(1, UPLINKS + 1))
    contents = read_ledger(scene.folder / "ledger.jsonl")
    assert_never_less_than_sent(scene)
    assert sorted(set(scene.sent)) == list(range(1, UPLINKS + 1))
    # The run was really disturbed: it was opened again and again, not killed only before it began.
    assert contents.resumes > KILLS // 3
    assert hit["training"] + hit["between authorise and checkpoint"] + hit["between checkpoint and account"] > 0
    result = json.loads((scene.folder / "result.json").read_text())
    assert result["transmissions_charged"] == contents.authorised
    assert result["epsilon"]["exact"] == pytest.approx(epsilon_of(list(contents.mechanisms), contents), rel=1e-12)
    LOG.info(
        "%d kills in %.0f s over %d starts, hit: %s; %d uplinks, %d sent, %d charged; epsilon %.4f of %.4f unkilled",
        killed,
        time.monotonic() - started,
        attempts + 1,
        dict(hit),
        UPLINKS,
        len(scene.sent),
        contents.authorised,
        result["epsilon"]["exact"],
        whole.privacy[0].epsilon[Accountant.EXACT],
    )
