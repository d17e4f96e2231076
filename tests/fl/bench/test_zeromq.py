"""The benchmark of samples on their way by ZeroMQ: they arrive, and where they do not, that is said."""

import math
from pathlib import Path

import pytest

from fl.bench import zeromq as bench
from fl.bench.zeromq import SampleRoute, ZeromqWork, zeromq
from fl.learning.workforce import cores
from flowgraphs.errors import FlowgraphError
from tests.gnuradio_needed import needs_gnuradio


@needs_gnuradio
def test_samples_travel_through_gnuradio_and_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "WORK", ZeromqWork(samples=10_000, message_samples=1000))
    said = zeromq(2).to_json()
    assert (said["repeats"], said["cores"]) == (2, cores())
    assert "10 messages of 1000 samples" in said["workload"]
    for key in ("msps", "pyzmq_alone_msps", "ours_s", "reference_s", "ratio"):
        assert 0 < said[key] < math.inf


def test_samples_that_nobody_passes_on_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_TIMEOUT_MS", 100)
    work = ZeromqWork(samples=2000, message_samples=1000)
    with (
        SampleRoute(work, f"ipc://{tmp_path}/in", f"ipc://{tmp_path}/out") as route,
        pytest.raises(FlowgraphError, match=r"no samples came for 0\.1 s, 2000 are missing"),
    ):
        route.transfer()
