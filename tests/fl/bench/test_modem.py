"""The benchmark of the modem: GNU Radio does the same work as ours. Times themselves are not tested."""

import math
import os
import time

import numpy as np
import pytest

from fl.bench import gnuradio_worker
from fl.bench import modem as bench
from fl.bench.gnuradio_side import worker
from fl.bench.modem import ModemWork, modem
from flowgraphs.errors import FlowgraphError
from phy.modem import demodulate, modulate
from tests.gnuradio_needed import needs_gnuradio

SMALL = ModemWork(samples=64_000, packet_symbols=10, gnuradio_packet_symbols=5)


@needs_gnuradio
def test_both_modems_are_timed_on_one_core_that_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "WORK", SMALL)
    before = os.sched_getaffinity(0)
    said = modem(2).to_json()
    assert os.sched_getaffinity(0) == before
    assert said["repeats"] == 2
    assert "GNU Radio 3." in said["reference"]
    for direction in ("modulate", "demodulate"):
        for key in ("msps", "gnuradio_msps", "ratio_wall", "ratio_cpu"):
            assert 0 < said[f"{key}_{direction}"] < math.inf
    assert "processor time" in said["workload"]
    for key in ("ours_s", "reference_s", "ratio", "ratio_min", "ratio_max"):
        assert 0 < said[key] < math.inf


@needs_gnuradio
@pytest.mark.parametrize("direction", ["modulate", "demodulate"])
def test_gnuradios_side_of_the_modem_does_the_same_work_as_ours(direction: str) -> None:
    """GNU Radio's FFTs have no factor: its results are sqrt(256) = 16 times ours."""
    from gnuradio import blocks

    numerology, symbols = SMALL.numerology, SMALL.gnuradio_packet_symbols
    settings = SMALL.settings(core=0)
    if direction == "modulate":
        graph, block, per_item = gnuradio_worker.transmitter(settings)
        cells = np.array(gnuradio_worker.random_samples(symbols * 192), np.complex64)
        expected = modulate(cells.reshape(symbols, 192), numerology)
    else:
        graph, block, per_item = gnuradio_worker.receiver(settings)
        samples = np.array(gnuradio_worker.random_samples(symbols * 320), np.complex64)
        expected = demodulate(samples, numerology).reshape(-1)
    assert expected.size * per_item == symbols * 320
    sink = blocks.vector_sink_c()
    graph.connect(block, sink)
    graph.start()
    deadline_s = time.monotonic() + 60
    # Not the block's own count: what it has written may not have been read.
    while sink.nitems_read(0) < 3 * expected.size:
        assert time.monotonic() < deadline_s
        time.sleep(0.002)
    graph.stop()
    graph.wait()
    made = np.array(sink.data()[: 3 * expected.size]).reshape(3, -1) / 16
    assert np.linalg.norm(made - expected) < 1e-5 * np.linalg.norm(expected) * math.sqrt(3)


@needs_gnuradio
def test_a_gnuradio_side_that_ends_says_why() -> None:
    with (
        pytest.raises(FlowgraphError, match="has ended: KeyError: 'unheard-of'"),
        worker("modem", SMALL.settings(core=max(os.sched_getaffinity(0)))) as (_, ask),
    ):
        ask(work="unheard-of", samples=1)
