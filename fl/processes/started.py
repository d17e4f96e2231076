"""Node programs as processes of this machine, forked from one that has everything imported.

PyTorch takes seconds and some 200 MB to load: fifty nodes share what one has loaded, and begin at once.
"""

import functools
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing import util
from multiprocessing.process import BaseProcess
from pathlib import Path

from hardware.foundation.scratch import scratch_folder

Program = Callable[[list[str]], int]
"""The command line: arguments to exit code."""
_AFTER_ITS_OWN = -101
"""Multiprocessing removes its temporary folder with the priority -100."""


def start_program(program: Program, arguments: Sequence[str], log: Path) -> BaseProcess:
    """`program` with these arguments; what it says goes to `log`."""
    _make_place()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fl.processes.preloaded"])
    process = context.Process(target=_program, args=(program, list(arguments), str(log)))
    process.start()
    return process


@functools.cache
def _make_place() -> None:
    """Have multiprocessing keep its socket where paths are short enough for one, and where nothing outlives a kill."""
    kept = ExitStack()
    folder = kept.enter_context(scratch_folder("forks", sockets=True))
    util.Finalize(None, kept.close, exitpriority=_AFTER_ITS_OWN)
    usual, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        util.get_temp_dir()
    finally:
        tempfile.tempdir = usual


def _program(program: Program, arguments: list[str], log: str) -> None:
    # Ctrl-C is for the one who started it: clients must fall silent before the jammer does.
    os.setsid()
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except FileNotFoundError:
        # The lab was taken down, its folder with it, while this process was being forked.
        sys.exit(1)
    for number in (1, 2):
        os.dup2(descriptor, number)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(program(arguments))


def _end_with_parent() -> None:
    """Who started this process may be killed, and then takes nothing down: a radio would stay on without anybody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
