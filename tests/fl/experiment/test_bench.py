"""Benchmarks: what is compared with what, and what is reported. Times themselves are not tested."""

import itertools
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fl.experiment import bench, gnuradio_speed, gnuradio_worker
from fl.experiment.arithmetic import plain_flops
from fl.experiment.assemble import assemble
from fl.experiment.bench import BENCHMARKS, LocalRound, Measurement, compare
from fl.experiment.config import load_config, parse_config
from fl.experiment.gnuradio_speed import ModemWork, SampleRoute, ZeromqWork
from fl.experiment.paper_uplink import paper_config
from fl.learning.data.partition import partition_by_class
from fl.learning.model import build_mlp, flatten
from fl.learning.workforce import cores
from flowgraphs import runtime
from flowgraphs.errors import FlowgraphError
from flowgraphs.runtime import gnuradio_python
from phy.modem import demodulate, modulate
from tests.conftest import Outcome
from tests.gnuradio_needed import needs_gnuradio


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Callable[[], None]]:
    """`clock(seconds)` makes work that takes that long, on a clock that only such work moves."""
    now = 0.0
    monkeypatch.setattr(bench.time, "perf_counter", lambda: now)

    def work_of(*durations: float) -> Callable[[], None]:
        remaining = itertools.cycle(durations)

        def work() -> None:
            nonlocal now
            now += next(remaining)

        return work

    return work_of


ABOUT = {"workload": "w", "reference": "r"}


def test_a_ratio_is_ours_over_the_reference(clock: Callable[..., Callable[[], None]]) -> None:
    measured = compare(clock(1.0), clock(4.0), 3, **ABOUT)
    assert (measured.ours_s, measured.reference_s, measured.ratio, measured.repeats) == (1.0, 4.0, 0.25, 3)
    assert (measured.ratio_min, measured.ratio_max) == (0.25, 0.25)


def test_medians_and_spread_are_of_pairs_and_the_first_pair_is_warm_up(
    clock: Callable[..., Callable[[], None]],
) -> None:
    ours, other = clock(100.0, 1.0, 2.0, 9.0), clock(1.0, 10.0, 10.0, 10.0)
    measured = compare(ours, other, 3, **ABOUT)
    assert measured.ours_s == 2.0
    assert measured.ratio == pytest.approx(0.2)
    assert (measured.ratio_min, measured.ratio_max) == (pytest.approx(0.1), pytest.approx(0.9))


def test_the_two_alternate() -> None:
    order: list[str] = []
    compare(lambda: order.append("ours"), lambda: order.append("other"), 3, **ABOUT)
    assert order == ["ours", "other"] * 4


def test_an_error_in_the_work_comes_out() -> None:
    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        compare(fail, fail, 1, **ABOUT)


def test_what_is_reported(clock: Callable[..., Callable[[], None]]) -> None:
    said = compare(clock(1.0), clock(2.0), 2, **ABOUT, facts={"cores": 2}).to_json()
    assert said == {
        "workload": "w",
        "reference": "r",
        "cores": 2,
        "repeats": 2,
        "ours_s": 1.0,
        "reference_s": 2.0,
        "ratio": 0.5,
        "ratio_min": 0.5,
        "ratio_max": 0.5,
    }


def small_workload(mu: float = 0.0) -> LocalRound:
    rng = np.random.default_rng(1)
    x, y = rng.random((120, 30), dtype=np.float32), rng.integers(10, size=120)
    model = build_mlp(30, 12, 10, seed=1)
    parts = partition_by_class(y, 4, 5, 0.5, rng).clients
    clients = tuple((torch.from_numpy(x[index]), torch.from_numpy(y[index])) for index in parts)
    return LocalRound(clients=clients, start=flatten(model), model=model, data="small", epochs=2, mu=mu)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("mu", [0.0, 0.1])
def test_both_sides_do_the_same_work(mu: float) -> None:
    work = small_workload(mu)
    ours, plain = work.ours(), work.plain()
    assert len(ours) == len(plain) == 4
    for a, b in zip(ours, plain, strict=True):
        assert np.linalg.norm(a - b) <= 1e-4 * np.linalg.norm(b)
        assert np.linalg.norm(b) > 0


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", ["local-round", "local-round-proximal"])
def test_the_local_round_reports_its_keys(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    asked: list[float] = []

    def workload(mu: float = 0.0) -> LocalRound:
        asked.append(mu)
        return small_workload(mu)

    monkeypatch.setattr(LocalRound, "reference_workload", staticmethod(workload))
    said = BENCHMARKS[name](2).to_json()
    assert {"ratio", "ours_s", "reference_s", "reference", "workload", "repeats", "ratio_min", "ratio_max"} <= set(said)
    assert said["repeats"] == 2
    assert said["cores"] == cores()
    assert 0 <= said["largest_relative_difference"] < 1e-3
    assert said["ratio"] > 0
    assert math.isfinite(said["ratio"])
    assert asked == [0.1 if name.endswith("proximal") else 0.0]


@pytest.mark.usefixtures("no_figures", "no_waiting")
def test_the_papers_uplink_is_timed_as_a_whole_against_sgemm(
    tiny: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 samples of digits instead of 10,000 images."""
    config = parse_config(tiny(uplink={"stop_after": 3}))
    spent: list[float] = []
    threads: list[int] = []

    def multiply(flops: float) -> None:
        spent.append(flops)
        threads.append(torch.get_num_threads())
        time.sleep(0.01)

    monkeypatch.setattr(bench, "paper_config", lambda scratch, uplinks: (config, f"{uplinks} uplinks of digits"))
    monkeypatch.setattr(bench, "multiply", multiply)
    said = BENCHMARKS["paper-uplink"](2).to_json()
    assert said["repeats"] == 2
    assert "3 uplinks of digits" in said["workload"]
    # Once per uplink of the first run, also for the one that warms up.
    assert spent == [plain_flops(samples=300, epochs=2, features=64, hidden=16, classes=10)] * 3
    assert set(threads) == {1}
    assert said["reference_s"] >= 0.01
    assert 0 < said["ours_cpu_s"] < math.inf
    assert said["ours_all_cores_s"] > 0


def test_the_papers_config_needs_no_emnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRDP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config, data = paper_config(tmp_path, 100)
    assert "made-up" in data
    assert (config.uplink.uplinks, config.last_uplink) == (100, 100)
    parts = assemble(config)
    assert (len(parts.clients), parts.sizes.sum(), parts.start.size) == (50, 10_000, 155_830)
    assert (parts.local.epochs, parts.local.batch_size, len(parts.dataset.test_y)) == (20, 16, 1_916)
    assert config.digest() != load_config("emnist").digest()
    monkeypatch.setenv("AIRDP_DATA", str(tmp_path / "images.npz"))
    config, data = paper_config(tmp_path, 6)
    assert (data, config.data.path, config.uplink.uplinks, config.last_uplink) == ("EMNIST a-j", "", 80, 6)


def test_the_command(command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    made = Measurement("work", "plain", 1.0, 2.0, 0.5, 0.4, 0.6, 7)
    asked: list[int] = []
    monkeypatch.setattr(
        bench, "BENCHMARKS", {"one": lambda repeats: asked.append(repeats) or made, "two": lambda _: made}
    )
    outcome = command("bench", "one", "--repeats", 7, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.json == {"one": made.to_json()}
    assert asked == [7]
    assert set(command("bench", "--json").json) == {"one", "two"}
    text = command("bench", "two")
    assert (text.code, text.err) == (0, "")
    for part in ("two", "0.500", "0.400 - 0.600", "plain"):
        assert part in text.out


def test_the_shipped_workload_is_the_issues() -> None:
    """K = 50, 10,000 images, 20 epochs, the 784-196-10 MLP."""
    work = LocalRound.reference_workload()
    assert len(work.clients) == 50
    assert sum(len(y) for _, y in work.clients) == 10_000
    assert (work.epochs, work.start.size) == (20, 155_830)
    assert {x.shape[1] for x, _ in work.clients} == {784}
    assert all(len(torch.unique(y)) == 5 for _, y in work.clients)


SMALL_MODEM = ModemWork(samples=64_000, packet_symbols=10, gnuradio_packet_symbols=5)
SMALL_ZEROMQ = ZeromqWork(samples=10_000, message_samples=1000)


@pytest.fixture
def small_gnuradio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "MODEM_WORK", SMALL_MODEM)
    monkeypatch.setattr(bench, "ZEROMQ_WORK", SMALL_ZEROMQ)


@needs_gnuradio
@pytest.mark.usefixtures("small_gnuradio")
def test_both_modems_are_timed_on_one_core_that_is_given_back() -> None:
    before = os.sched_getaffinity(0)
    said = BENCHMARKS["modem"](2).to_json()
    assert os.sched_getaffinity(0) == before
    assert said["repeats"] == 2
    assert "GNU Radio 3." in said["reference"]
    for direction in ("modulate", "demodulate"):
        for key in ("msps", "gnuradio_msps", "ratio", "ratio_cpu"):
            assert 0 < said[f"{key}_{direction}"] < math.inf
    for key in ("ours_s", "reference_s", "ratio", "ratio_min", "ratio_max"):
        assert 0 < said[key] < math.inf


@needs_gnuradio
@pytest.mark.parametrize("direction", ["modulate", "demodulate"])
def test_gnuradios_side_of_the_modem_does_the_same_work_as_ours(direction: str) -> None:
    """GNU Radio's FFTs have no factor: its results are sqrt(256) = 16 times ours."""
    from gnuradio import blocks

    numerology, symbols = SMALL_MODEM.numerology, SMALL_MODEM.gnuradio_packet_symbols
    settings = SMALL_MODEM.settings(core=0)
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
@pytest.mark.usefixtures("small_gnuradio")
def test_samples_travel_through_gnuradio_and_without_it() -> None:
    said = BENCHMARKS["zeromq"](2).to_json()
    assert (said["repeats"], said["cores"]) == (2, cores())
    assert "10 messages of 1000 samples" in said["workload"]
    for key in ("msps", "pyzmq_alone_msps", "ours_s", "reference_s", "ratio"):
        assert 0 < said[key] < math.inf


def test_samples_that_nobody_passes_on_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gnuradio_speed, "_TIMEOUT_MS", 100)
    work = ZeromqWork(samples=2000, message_samples=1000)
    with (
        SampleRoute(work, f"ipc://{tmp_path}/in", f"ipc://{tmp_path}/out") as route,
        pytest.raises(FlowgraphError, match=r"no samples came for 0\.1 s, 2000 are missing"),
    ):
        route.transfer()


@needs_gnuradio
def test_a_gnuradio_side_that_ends_says_why() -> None:
    with (
        pytest.raises(FlowgraphError, match="has ended: KeyError: 'unheard-of'"),
        gnuradio_speed.worker("modem", SMALL_MODEM.settings(core=max(os.sched_getaffinity(0)))) as (_, ask),
    ):
        ask(work="unheard-of", samples=1)


def test_without_gnuradio_its_benchmarks_are_skipped_or_refused(
    command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    install = "apt-get install --no-install-recommends gnuradio"
    gnuradio_python.cache_clear()
    monkeypatch.setattr(runtime, "SYSTEM_PYTHON", "/nonexistent/python3")
    find = runtime.importlib.util.find_spec
    monkeypatch.setattr(
        runtime.importlib.util, "find_spec", lambda name, *rest: None if name == "gnuradio" else find(name, *rest)
    )
    made = Measurement("work", "plain", 1.0, 2.0, 0.5, 0.4, 0.6, 7)
    # What can run is not measured here: only which of them would be.
    monkeypatch.setattr(bench, "find_library", lambda name: "libiio.so.0")
    monkeypatch.setattr(bench, "BENCHMARKS", dict.fromkeys(BENCHMARKS, lambda repeats: made))
    for name in ("modem", "zeromq"):
        refused = command("bench", name)
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.count("\n") == 1
        assert name in refused.err
        assert install in refused.err
    outcome = command("bench", "--json")
    assert outcome.code == 0
    assert set(outcome.json) == set(BENCHMARKS) - {"modem", "zeromq"}
    skipped = outcome.err.splitlines()
    assert [line.split()[0] for line in skipped] == ["modem", "zeromq"]
    assert all(install in line for line in skipped)


def test_without_libiio_its_benchmark_is_skipped_or_refused(
    command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Measurement("work", "plain", 1.0, 2.0, 0.5, 0.4, 0.6, 7)
    monkeypatch.setattr(bench, "find_library", lambda name: None)
    monkeypatch.setattr(bench, "BENCHMARKS", {"virtual-pluto": lambda repeats: made, "other": lambda repeats: made})
    refused = command("bench", "virtual-pluto")
    assert refused.code == 2
    assert "libiio is not installed: sudo apt-get install" in refused.err
    outcome = command("bench", "--json")
    assert set(outcome.json) == {"other"}
    assert "virtual-pluto is skipped" in outcome.err
