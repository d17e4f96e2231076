"""Whether modules can be imported, asked of a Python process: finding a module says nothing about what it links to.

What crashes or hangs there ends nobody else.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence

IMPORT_TIMEOUT_S = 120.0
"""For all modules of one call together; PyTorch alone takes seconds, and more on a busy machine."""

_CHILD = """
import importlib, json, os, sys
say = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
names, path = json.loads(sys.argv[1])
sys.path[:] = path or sys.path
for name in names:
    problem = ""
    try:
        importlib.import_module(name)
    except BaseException as error:
        problem = f"{type(error).__name__}: {error}"
    print(json.dumps([name, problem]), file=say, flush=True)
os._exit(0)
"""


def import_problems(
    names: Sequence[str], python: str = sys.executable, timeout_s: float = IMPORT_TIMEOUT_S
) -> dict[str, str]:
    """For each module why `python` cannot import it; empty where it can. One process imports them one after the other.

    Where that ends in the middle of one, this one is to blame, and another process goes on behind it.
    """
    found: dict[str, str] = {}
    while remaining := [name for name in names if name not in found]:
        answered, ended = _import(remaining, python, timeout_s)
        found |= answered
        blamed = next((name for name in remaining if name not in found), None)
        if blamed is not None:
            found[blamed] = ended
    return found


def _import(names: Sequence[str], python: str, timeout_s: float) -> tuple[dict[str, str], str]:
    """What was said about modules, and how the process ended."""
    path = sys.path if python == sys.executable else None
    command = [python, "-c", _CHILD, json.dumps([list(names), path])]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=timeout_s)
        said, ended = done.stdout, _how_it_ended(done.returncode)
    except subprocess.TimeoutExpired as error:
        said, ended = error.stdout or b"", f"importing it did not end within {timeout_s:g} s"
    except OSError as error:
        said, ended = b"", f"{python} cannot be started: {error.strerror}"
    return dict(json.loads(line) for line in said.splitlines()), ended


def _how_it_ended(code: int) -> str:
    if code < 0:
        return f"importing it ended Python with {signal.Signals(-code).name}"
    return f"importing it ended Python with exit code {code}"
