"""Programs as processes that are forked from one: where its socket is, and what is left of it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

# Without PyTorch, which this is not about and takes seconds to load. `len` is the program: three arguments, code 3.
STARTING = """
import multiprocessing.forkserver, os, signal, sys
from pathlib import Path
multiprocessing.forkserver.ForkServer.set_forkserver_preload = lambda self, names: None
from fl.processes.started import start_program

if __name__ == "__main__":
    process = start_program(len, ["a", "b", "c"], Path(sys.argv[1]))
    process.join(60)
    print(process.exitcode, flush=True)
    if len(sys.argv) > 2:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("depth", [0, 10])
def test_its_socket_fits_and_what_a_kill_leaves_goes(tmp_path: Path, depth: int) -> None:
    """A Unix socket's path has 107 bytes at most (unix(7)); of a temporary folder beyond that /tmp takes its place."""
    script = tmp_path / "starting.py"
    script.write_text(STARTING)
    # The paths of pytest's own folders are too long already.
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        temporary = Path(short, *["a" * 12] * depth)
        temporary.mkdir(parents=True, exist_ok=True)

        def start(*more: str) -> tuple[int, str]:
            done = subprocess.run(
                [sys.executable, str(script), str(tmp_path / "log"), *more],
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(temporary)},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.stderr == ""
            return done.returncode, done.stdout

        if not depth:
            assert start("killed") == (-9, "3\n")
            assert [path.name.partition(".")[0] for path in temporary.iterdir()] == ["airdp-forks"]
        assert start() == (0, "3\n")
        assert list(temporary.iterdir()) == []
