"""Commands whose output goes nowhere, to a reader that leaves, or to a full disk; and with few files to open."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, START

ACCOUNT = "account --rounds 80 --samples 10000 --sigma 7.41e-4 --delta 1e-5"


def shell(line: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """`airdp` in the line is the command."""
    command = f"airdp() {{ {sys.executable} -c '{START}' \"$@\"; }}; {line}"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "80"}
    return subprocess.run(
        ["bash", "-c", command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&- <&-"])
def test_streams_that_are_closed(tmp_path: Path, closed: str) -> None:
    done = shell(f"airdp {ACCOUNT} {closed}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.timeout(300)
def test_a_run_with_closed_streams_and_few_files_to_open(tmp_path: Path, tiny_file: Path) -> None:
    """No file gets the number of a closed stream: what is printed would be written into it."""
    done = shell(
        f"ulimit -n 40; airdp run {tiny_file} --set uplink.uplinks=1 --out run >&- 2>&- <&- && airdp ledger run",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_too_few_files_to_open(tmp_path: Path, tiny_file: Path) -> None:
    done = shell(f"ulimit -n 6; airdp run {tiny_file} --out run", tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "ulimit -n" in done.stderr


@pytest.mark.parametrize("line", ["configs", f"{ACCOUNT} --json"])
def test_a_reader_that_leaves(tmp_path: Path, line: str) -> None:
    done = shell(f"airdp {line} | true; echo ${{PIPESTATUS[0]}}", tmp_path)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_output_to_a_full_disk(tmp_path: Path) -> None:
    done = shell("airdp configs > /dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "airdp: error: cannot write the output: No space left on device; make room there, or choose a folder on "
        "another disk\n"
    )
