"""What virtual USRPs have done before they listen: nobody waits for it while a client waits for an answer."""

import subprocess
import sys

from tests.conftest import REPOSITORY

RECEIVE = """
import sys, time
from hardware.lab.file import find_lab
from hardware.virtual.usrp2.emulator import Emulator

with Emulator(find_lab("usrp-virtual"), seed=1) as emulator:
    loaded = set(sys.modules)
    box = emulator._virtual.radios["ps"]
    with emulator._virtual.lock:
        # At once, so many samples.
        box.rx[0].command(1 << 31 | 40_000, 0)
    while box.streamed_samples < 40_000:
        time.sleep(0.01)
    print(*sorted(set(sys.modules) - loaded))
"""


def test_the_first_samples_load_nothing_and_compile_nothing() -> None:
    """In a new process. numba alone takes half a second, and libuhd waits for one."""
    done = subprocess.run(
        [sys.executable, "-c", RECEIVE], check=False, capture_output=True, text=True, timeout=100, cwd=REPOSITORY
    )
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stdout + done.stderr
