"""Python programs of these packages that run as processes of their own, and end with the one that started them.

Such a program ends when its standard input does. Whoever started it holds the other end, which closes with that
process, however it ends.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO


def child_environment() -> dict[str, str]:
    """This process's environment, with the place that these packages are imported from, however it was found."""
    above = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([above, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def start_module(
    module: str, arguments: Sequence[str], stderr: IO[str] | int, descriptors: Sequence[int] = ()
) -> "subprocess.Popen[str]":
    """`python -m module arguments`, with pipes to its standard input and from its output.

    descriptors: those that it gets besides, under the same numbers.
    """
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        pass_fds=descriptors,
        text=True,
        env=child_environment(),
        # Ctrl-C is for the one who started it, and who still needs it: to park radios, to write the last page.
        start_new_session=True,
    )


def end_module(process: "subprocess.Popen[str]", within_s: float) -> None:
    """End its standard input, upon which it ends; one that does not is killed."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
