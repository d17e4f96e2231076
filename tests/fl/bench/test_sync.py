"""The benchmark of synchronisation: both sides find the same preamble. Times themselves are not tested."""

import math
from pathlib import Path

import numpy as np
import pytest

from fl.bench import gnuradio_worker
from fl.bench import sync as bench
from fl.bench.sync import CFO_CYCLES_PER_SAMPLE, SyncWork, sync
from tests.gnuradio_needed import needs_gnuradio

SMALL = SyncWork(samples=50_000)


def test_ours_finds_the_frame() -> None:
    found = SMALL.find(SMALL.frame())
    assert found is not None
    assert found.start_sample == SMALL.air.margin_samples
    # Ten times what noise of -20 dB leaves to 512 samples.
    assert found.cfo_cycles_per_sample == pytest.approx(CFO_CYCLES_PER_SAMPLE, abs=3e-5)


@needs_gnuradio
def test_gnuradio_finds_it_once_a_frame(tmp_path: Path) -> None:
    from gnuradio import blocks

    frame, frames = SMALL.frame(), 5
    np.tile(frame, frames).tofile(tmp_path / "frames")
    settings = {"fft_size": 512, "cp_samples": 64, "frame_file": str(tmp_path / "frames"), "repeat": False}
    graph, counted, _ = gnuradio_worker.synchroniser(settings)
    marks = blocks.vector_sink_b()
    graph.connect(counted, marks)
    graph.run()
    places = np.flatnonzero(marks.data())
    assert len(places) == frames
    assert np.ptp(np.diff(places)) <= 64
    assert abs(np.diff(places).mean() - frame.size) < 32


@needs_gnuradio
def test_both_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "WORK", SMALL)
    said = sync(1).to_json()
    assert "GNU Radio 3." in said["reference"]
    assert "processor time" in said["workload"]
    for key in ("msps", "gnuradio_msps", "ratio", "ratio_wall", "ratio_cpu"):
        assert 0 < said[key] < math.inf
