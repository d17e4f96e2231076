"""The examples run as they are, from another folder than the repository's, and leave what they say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run_example(name: str, tmp_path: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(400)
def test_own_loop(tmp_path: Path) -> None:
    said = run_example("own_loop.py", tmp_path, "loop")
    lines = [line for line in said.splitlines() if line.startswith("accuracy")]
    assert len(lines) == 4
    # Chance is 10 %, and the noise for epsilon 5 costs a few percent of about 93 %.
    assert float(lines[-1].split()[1]) > 75
    assert "(paper-claim)" in lines[-1]
    assert (tmp_path / "loop" / "ledger.jsonl").exists()
