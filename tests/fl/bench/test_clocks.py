"""The benchmark of free-running clocks: both airs carry the bursts. Times themselves are not tested."""

import numpy as np
import pytest

from fl.bench.clocks import PPM, ClockWork
from hardware.lab.clock import ClockMode


def test_crystals_are_what_differs() -> None:
    free, shared = (ClockWork(mode, senders=3, samples=20_000) for mode in (ClockMode.FREE_RUNNING, ClockMode.SHARED))
    heard = {}
    for name, work in (("free", free), ("shared", shared)):
        work.send()
        heard[name], _ = work.medium.listen("ps", 20_000, 1000)
    np.testing.assert_allclose(heard["shared"], 3 * shared.burst, rtol=1e-5)
    # The middle crystal is right; the others are 49 kHz off.
    assert np.linalg.norm(heard["free"] - heard["shared"]) > 0.2 * np.linalg.norm(heard["shared"])
    assert free.medium.cfo_hz("client-2", "ps") == pytest.approx(2.45e9 * PPM * 1e-6)
