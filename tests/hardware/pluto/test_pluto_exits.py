"""However a program ends, its transmitters are left parked and without a buffer, and the interpreter ends in peace."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.hardware.plutos import Bench

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


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench"))
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("way", "number", "code"),
    [
        ("exception", None, 1),
        ("forget", None, 0),
        ("wait", signal.SIGINT, -signal.SIGINT),
        ("wait", signal.SIGTERM, 128 + signal.SIGTERM),
    ],
)
def test_every_exit(bench: Bench, tmp_path: Path, way: str, number: signal.Signals | None, code: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", str(program), way, str(bench.lab_file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(REPOSITORY)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "sending\n"
    if number is not None:
        process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "Fatal Python error" not in said
    assert "Exception ignored" not in said
    bench.assert_silent()
