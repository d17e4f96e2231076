"""A small part of the soak (`tests.fl.run.faults.soak`): kills among a run's operations on files, and at random."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.fl.run.faults.soak import BrokenError, Scene
from tests.fuzz.test_readers import small_ledger

KILLS = 40


@pytest.mark.timeout(300)
def test_kills_among_all_operations_on_files() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fl.run.faults.soak", "--kills", str(KILLS), "--stride", "29"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"(\d+) uplinks sent, (\d+) charged, no row lost", done.stdout)
    assert found is not None, done.stdout
    assert 0 < int(found[1]) <= int(found[2])


def test_the_soak_notices_a_lost_row_and_an_uncharged_uplink(tmp_path: Path) -> None:
    """It can fail."""
    scene = Scene(tmp_path)
    scene.out.mkdir()
    small_ledger(scene.out / "ledger.jsonl")
    scene.witness.write_text("1\n2\n")
    scene.check()
    scene.witness.write_text("1\n2\n2\n")
    with pytest.raises(BrokenError, match=r"uplinks \[2\] were sent and are not charged"):
        scene.check()
    scene.witness.unlink()
    rows = scene.ledger.splitlines(keepends=True)
    (scene.out / "ledger.jsonl").write_bytes(b"".join(rows[:-1]))
    with pytest.raises(BrokenError, match="a row of the ledger was lost"):
        scene.check()
