"""Benchmarks: ours and a reference, alternating in one process, so that a busy machine slows both."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from ctypes.util import find_library
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.fft
import torch
from numpy.typing import NDArray

from fl.errors import DataError
from fl.experiment.arithmetic import flops_per_uplink, multiply
from fl.experiment.assemble import assemble
from fl.experiment.gnuradio_speed import DIRECTIONS, ModemWork, ZeromqWork, time_modems, zeromq_routes
from fl.experiment.paper_uplink import paper_config, timed_uplinks
from fl.learning import autograd, mlp
from fl.learning.batches import epoch_orders
from fl.learning.data.emnist import load_emnist
from fl.learning.data.partition import partition_by_class
from fl.learning.model import MLP, build_mlp, flatten
from fl.learning.workforce import cores, in_order, single_threaded_torch
from fl.nodes.air import AirFormat
from fl.nodes.radio_uplink import RadioPower, RadioUplink
from fl.privacy.clipping import clip_update
from fl.streams import Stream, generator
from fl.uplink.contract import UplinkPlan
from fl.uplink.jammer import FactorOn, JammerRole
from fl.uplink.modes import Backoff, Rescale
from flowgraphs.errors import FlowgraphError
from flowgraphs.runtime import gnuradio_python
from hardware.lab import find_lab, open_lab, parse_lab
from hardware.pluto_context import INSTALL as INSTALL_LIBIIO
from hardware.virtual_pluto.throughput import USB_RATE_HZ, Throughput, measure_throughput
from phy.numerology import Numerology

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Measurement:
    """Seconds are medians; the ratio is the median of the pairs' ratios, below 1 where ours is faster."""

    workload: str
    reference: str
    ours_s: float
    reference_s: float
    ratio: float
    ratio_min: float
    ratio_max: float
    repeats: int
    facts: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Flat and JSON-ready."""
        data = asdict(self)
        return {**data.pop("facts"), **data}


def compare(
    ours: Callable[[], object],
    other: Callable[[], object],
    repeats: int,
    before: Callable[[], object] = lambda: None,
    **about: Any,
) -> Measurement:
    """Time both once to warm up, then in alternation; `before` is called ahead of each pair and not timed."""
    pairs: list[tuple[float, float]] = []
    for number in range(repeats + 1):
        before()
        pair = (_seconds(ours), _seconds(other))
        if number:
            pairs.append(pair)
    return _measurement(pairs, **about)


def _measurement(pairs: Sequence[tuple[float, float]], **about: Any) -> Measurement:
    ratios = [own / theirs for own, theirs in pairs]
    return Measurement(
        ours_s=statistics.median(own for own, _ in pairs),
        reference_s=statistics.median(theirs for _, theirs in pairs),
        ratio=statistics.median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
        repeats=len(pairs),
        **about,
    )


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@dataclass(frozen=True)
class LocalRound:
    """One round: 50 clients with five classes each, 10,000 images, 20 epochs, batch 64, the 784-196-10 MLP."""

    clients: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    start: Vector
    model: MLP
    data: str
    epochs: int = 20
    mu: float = 0.0

    @classmethod
    def reference_workload(cls, mu: float = 0.0) -> "LocalRound":
        """EMNIST a-j where it is found, else images of the same shape and sparsity made up; training costs the same."""
        try:
            dataset = load_emnist(None, 10_000, 0.1, generator(1, Stream.DATA))
            x, y, data = dataset.train_x, dataset.train_y, "EMNIST a-j"
        except DataError:
            rng = generator(1, Stream.DATA)
            x = rng.random((10_000, 784), dtype=np.float32) * (rng.random((10_000, 784)) < 0.3)
            y, data = rng.integers(10, size=10_000), "made-up images (EMNIST not found: set AIRDP_DATA)"
        partition = partition_by_class(y, 50, 5, 0.5, generator(1, Stream.PARTITION))
        model = build_mlp(784, 196, 10, seed=1)
        clients = tuple(
            (torch.from_numpy(x[index].astype(np.float32)), torch.from_numpy(y[index])) for index in partition.clients
        )
        return cls(clients=clients, start=flatten(model), model=model, data=data, mu=mu)

    def _update(self, trainer: Callable[..., Vector], client: int) -> Vector:
        x, y = self.clients[client]
        orders = epoch_orders(len(y), self.epochs, generator(1, Stream.LOCAL, 1, client))
        return trainer(self.model, self.start, x, y, orders, batch_size=64, lr=0.05, momentum=0.5, mu=self.mu)

    def ours(self) -> list[Vector]:
        """Hand-written gradients on one thread per core."""
        return list(in_order(lambda client: self._update(mlp.sgd_update, client), range(len(self.clients)), cores()))

    def plain(self) -> list[Vector]:
        """Client after client with autograd, PyTorch's own threads."""
        return [self._update(autograd.sgd_update, client) for client in range(len(self.clients))]


def _local_round(repeats: int, mu: float = 0.0) -> Measurement:
    work = LocalRound.reference_workload(mu)
    pairs = list(zip(work.ours(), work.plain(), strict=True))
    difference = max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)
    return compare(
        work.ours,
        work.plain,
        repeats,
        workload=f"50 clients, 10,000 images, 20 epochs, batch 64, 784-196-10, mu {mu:g}, {work.data}",
        reference=f"plain PyTorch loop, {torch.get_num_threads()} threads",
        facts={"largest_relative_difference": difference, "cores": cores()},
    )


def _paper_uplink(repeats: int) -> Measurement:
    with TemporaryDirectory() as name:
        scratch = Path(name)
        config, data = paper_config(scratch, repeats + 1)
        flops = flops_per_uplink(assemble(config))
        with single_threaded_torch():
            pairs = timed_uplinks(config, scratch / "one", 1, between=lambda: multiply(flops))
        together = timed_uplinks(config, scratch / "all", cores())
    own_cpu, bound_cpu = ([pair[side].cpu for pair in pairs] for side in (0, 1))
    return _measurement(
        [(own.wall, bound.wall) for own, bound in pairs],
        workload=f"config emnist: training, air, ledger, scores and checkpoint of one uplink on one core, {data}",
        reference=f"large sgemm on one core of the plain algorithm's {flops / 1e9:.4g} GFLOP",
        facts={
            "ratio_cpu": statistics.median(own / bound for own, bound in zip(own_cpu, bound_cpu, strict=True)),
            "ours_cpu_s": statistics.median(own_cpu),
            "sgemm_gflop_per_cpu_s": flops / 1e9 / statistics.median(bound_cpu),
            "cores": cores(),
            "ours_all_cores_s": statistics.median(own.wall for own, _ in together),
        },
    )


class RadioWork:
    """One uplink with the paper's d = 155,830, sample by sample: Rayleigh fading and noise, nothing else."""

    def __init__(self, clients: int, stack: ExitStack) -> None:
        lab = parse_lab(
            {
                "lab": {
                    "backend": "loopback",
                    "sample_rate_hz": 5e6,
                    "center_hz": 2.45e9,
                    "tx_gain_db": 0.0,
                    "rx_gain_db": 0.0,
                },
                "limits": {"band_hz": [2.44e9, 2.46e9], "max_tx_gain_db": 0.0},
                "radio": [{"name": "ps", "role": "ps"}, {"name": "client", "role": "client", "count": clients}],
                "medium": {"fading": "rayleigh", "noise_var_complex": 1e-5},
            }
        )
        self.air = AirFormat(Numerology(), 155_830)
        self.uplink = RadioUplink(
            stack.enter_context(open_lab(lab, seed=1)),
            self.air,
            np.full(clients, 200),
            1.0,
            radio_power(alpha_u=2.0),
            record_bounded=False,
            streams=partial(generator, 1),
        )
        self.update = clip_update(generator(1, Stream.DATA).standard_normal(155_830, dtype=np.float32), 1.0)
        self.clients, self.number = clients, 0

    def plan(self) -> UplinkPlan:
        """Sound and plan the next uplink."""
        self.number += 1
        return self.uplink.plan(self.number)

    def exchange(self, plan: UplinkPlan) -> object:
        """From updates at the clients to their sum at the server."""
        return self.uplink.exchange_stream(plan, ((client, self.update) for client in plan.senders))


def radio_power(alpha_u: float) -> RadioPower:
    """No jammer, a fixed alpha_u."""
    return RadioPower(
        alpha_u=alpha_u,
        channel_sigma=1.0,
        backoff=Backoff.WORST_CASE,
        rescale=Rescale.RESCALED,
        jammer_role=JammerRole.NONE,
        jammer_sigma=1.0,
        factor=1.0,
        factor_on=FactorOn.AMPLITUDE,
        max_phase_error_rad=0.1,
        attempts=3,
    )


def _radio_uplink(repeats: int) -> Measurement:
    with ExitStack() as stack:
        work = RadioWork(50, stack)
        symbols, size = work.air.grid.symbols, work.air.numerology.fft_size
        grids = np.ones((work.clients, symbols, size), np.complex64)

        def bare() -> None:
            for grid in grids:
                scipy.fft.ifft(grid, norm="ortho", workers=1)
            scipy.fft.fft(grids[0], norm="ortho", workers=1)

        plans = [work.plan()]
        # Planned between the timed calls: a plan is good for one exchange.
        return compare(
            lambda: work.exchange(plans[0]),
            bare,
            # Tens of milliseconds each: more pairs make the median steady.
            8 * repeats,
            before=lambda: plans.__setitem__(0, work.plan()),
            workload="50 clients, d = 155,830, Rayleigh, noise: whitening, precoding, OFDM, air, receiver, accounting",
            reference=f"its {work.clients + 1} x {symbols} FFTs of {size} points, scipy.fft, complex64, one worker",
            facts=_radio_facts(),
        )


def _radio_facts() -> dict[str, Any]:
    """Peak memory of a process that makes one uplink, for 10 and 200 clients, and the overhead of sounding."""
    peaks = {clients: _peak_mib(clients) for clients in (10, 200)}
    overheads = _overheads(uplinks=100)
    return {
        "peak_mib_10_clients": round(peaks[10], 1),
        "peak_mib_200_clients": round(peaks[200], 1),
        "peak_growth": round(peaks[200] / peaks[10] - 1, 4),
        "overhead_samples_mean": float(np.mean(overheads)),
        "overhead_samples_p99": float(np.percentile(overheads, 99)),
    }


def _peak_mib(clients: int) -> float:
    """Largest resident memory of a fresh process that plans and exchanges one uplink, in MiB."""
    script = f"from fl.experiment.bench import one_uplink; print(one_uplink({clients}))"
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return float(outcome.stdout)


def one_uplink(clients: int) -> float:
    """Make one uplink; the process's largest resident memory until now in MiB."""
    with ExitStack() as stack:
        work = RadioWork(clients, stack)
        work.exchange(work.plan())
    # Not getrusage: its peak is inherited from the process that started this one.
    status = Path("/proc/self/status").read_text()
    return float(status.split("VmHWM:")[1].split()[0]) / 1024


def _overheads(uplinks: int) -> list[int]:
    """Samples without payload of each uplink, soundings that were given up included: 5 clients, digits' d."""
    lab = find_lab("loopback-harsh")
    air = AirFormat(Numerology(), 14_710)
    with open_lab(lab, seed=1) as radios:
        uplink = RadioUplink(
            radios, air, np.full(5, 287), 1.0, radio_power(0.5), record_bounded=False, streams=partial(generator, 1)
        )
        senders = len(lab.clients)
        given_up = air.sounding_phase_samples(senders)
        return [
            air.overhead_samples(senders) + uplink.plan(number).postponed * given_up for number in range(1, uplinks + 1)
        ]


def _virtual_pluto(repeats: int) -> Measurement:
    """Four virtual Plutos that stream through libiio, against what a real one sustains over USB 2."""
    setups = {"uplink": ((1, 2, 3), (0,)), "duplex": (range(4), range(4))}
    runs: dict[str, list[Throughput]] = {name: [] for name in setups}
    for _ in range(repeats):
        for name, (senders, receivers) in setups.items():
            runs[name].append(measure_throughput(senders, receivers))
    ours_s = [run.elapsed_s for run in runs["duplex"]]
    reference_s = runs["duplex"][0].samples / USB_RATE_HZ
    rates = {name: statistics.median(run.rate_hz for run in runs[name]) / 1e6 for name in setups}
    return Measurement(
        workload="4 virtual Plutos that send and receive, blocks of 32768, Rayleigh, noise, server and clients here",
        reference=f"a real Pluto over USB 2: {USB_RATE_HZ / 1e6:g} MS/s",
        ours_s=statistics.median(ours_s),
        reference_s=reference_s,
        ratio=statistics.median(ours_s) / reference_s,
        ratio_min=min(ours_s) / reference_s,
        ratio_max=max(ours_s) / reference_s,
        repeats=repeats,
        facts={
            "msps_4_send_and_receive": round(rates["duplex"], 2),
            "msps_3_send_1_receives": round(rates["uplink"], 2),
            "cores_at_4_msps_4_send_and_receive": round(
                statistics.median(run.cpu_s_per_sample for run in runs["duplex"]) * USB_RATE_HZ, 2
            ),
            "cores": cores(),
        },
    )


MODEM_WORK = ModemWork()
ZEROMQ_WORK = ZeromqWork()


def _modem(repeats: int) -> Measurement:
    """Both directions together; each has its own ratio among the facts."""
    work = MODEM_WORK
    times = time_modems(work, repeats)
    facts: dict[str, Any] = {}
    for direction, pairs in times.pairs.items():
        own, theirs = (statistics.median(pair[side].wall for pair in pairs) for side in (0, 1))
        facts |= {
            f"msps_{direction}": round(work.samples / own / 1e6, 1),
            f"gnuradio_msps_{direction}": round(work.samples / theirs / 1e6, 1),
            f"ratio_{direction}": statistics.median(own.wall / theirs.wall for own, theirs in pairs),
            f"ratio_cpu_{direction}": statistics.median(own.cpu / theirs.cpu for own, theirs in pairs),
        }
    numerology = work.numerology
    both = zip(*(times.pairs[direction] for direction in DIRECTIONS), strict=True)
    return _measurement(
        [(sum(own.wall for own, _ in pair), sum(theirs.wall for _, theirs in pair)) for pair in both],
        workload=f"OFDM modulator and demodulator, {work.samples / 1e6:g} million samples each, on one core: "
        f"FFT {numerology.fft_size}, prefix {numerology.cp_samples}, {numerology.data_subcarriers} subcarriers",
        reference=f"gr-digital's blocks, GNU Radio {times.gnuradio_version}, all threads on the same core: allocator, "
        "FFT, prefixer; prefix removal, FFT, serializer",
        facts=facts,
    )


def _zeromq(repeats: int) -> Measurement:
    """Through a flowgraph and back, against pyzmq alone."""
    work = ZEROMQ_WORK
    with zeromq_routes(work) as (version, relayed, direct):
        measured = compare(
            relayed.transfer,
            direct.transfer,
            repeats,
            workload=f"pyzmq, PULL source and PUSH sink of GNU Radio {version} with tags, pyzmq: "
            f"{work.messages} messages of {work.message_samples} samples",
            reference="the same messages from PUSH to PULL, pyzmq alone",
            facts={"cores": cores()},
        )
    samples = work.messages * work.message_samples / 1e6
    rates = {"msps": samples / measured.ours_s, "pyzmq_alone_msps": samples / measured.reference_s}
    return replace(measured, facts={**{key: round(rate, 1) for key, rate in rates.items()}, **measured.facts})


BENCHMARKS: dict[str, Callable[[int], Measurement]] = {
    "local-round": _local_round,
    "local-round-proximal": lambda repeats: _local_round(repeats, mu=0.1),
    "paper-uplink": _paper_uplink,
    "radio-uplink": _radio_uplink,
    "virtual-pluto": _virtual_pluto,
    "modem": _modem,
    "zeromq": _zeromq,
}


def missing(name: str) -> str:
    """What must be installed before a benchmark can run, and how; nothing where it can."""
    if name == "virtual-pluto" and not find_library("iio"):
        return f"libiio is not installed: {INSTALL_LIBIIO}"
    if name in {"modem", "zeromq"}:
        try:
            gnuradio_python()
        except FlowgraphError as error:
            return str(error)
    return ""
