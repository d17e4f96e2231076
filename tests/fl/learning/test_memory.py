"""Freed memory stays with the process that trains."""

import subprocess
import sys

import pytest

from fl.learning.memory import keep_freed_memory

FAULTS = """
import resource, sys
import numpy as np
from fl.learning.memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def made(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        # Eight of 8 MB at a time, written to.
        [np.ones(2_000_000, np.float32) for _ in range(8)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
made(2)
print(made(10))
"""


@pytest.mark.skipif(not keep_freed_memory(), reason="the C library is not glibc")
def test_arrays_that_are_made_again_cost_no_new_pages() -> None:
    """Activations of a step come and go together. The system counts the pages that it had to clear for them."""
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True).stdout)
        for how in ("kept", "as it is")
    )
    assert kept < 50 < given_back
