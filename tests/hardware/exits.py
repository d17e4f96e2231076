"""Programs that send bursts over the radios of a lab, and end in every way that there is."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY

PROGRAM = """
import sys
import numpy as np
from hardware.lab.file import find_lab
from hardware.lab.opened import open_lab

def work(lab):
    lab.ready()
    burst = np.full(3000, 0.5, np.complex64)
    for number in range(3 if way != "wait" else 1 << 30):
        start = lab.start_sample()
        for radio in (*lab.clients, lab.jammer):
            radio.transmit(burst, start)
        lab.ps.receive(3000, start)
        if number == 1:
            print("sending", flush=True)
    if way == "exception":
        raise RuntimeError("boom")

way, file = sys.argv[1:]
manager = open_lab(find_lab(file), 1)
if way == "forget":
    work(manager.__enter__())
else:
    with manager as lab:
        work(lab)
"""

EXITS = [
    ("exception", None, 1),
    ("forget", None, 0),
    ("wait", signal.SIGINT, -signal.SIGINT),
    ("wait", signal.SIGTERM, 128 + signal.SIGTERM),
]
"""What the program does, the signal that ends it, and its exit code."""


def leave(folder: Path, lab_file: Path, way: str, number: signal.Signals | None, code: int) -> None:
    """Run the program until it sends, end it, and see how it ended."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", str(program), way, str(lab_file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "sending\n", process.communicate(timeout=240)[1]
    if number is not None:
        process.send_signal(number)
    _, said = process.communicate(timeout=240)
    assert process.returncode == code, said
    assert "Fatal Python error" not in said
    assert "Exception ignored" not in said
