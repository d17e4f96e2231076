"""The OFDM modulator and demodulator against GNU Radio's, on one core."""

import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fl.bench.gnuradio_side import worker
from fl.bench.measure import Measurement, Seconds
from phy.modem import demodulate, modulate
from phy.numerology import Numerology

DIRECTIONS = ("modulate", "demodulate")


@contextmanager
def one_core() -> Iterator[int]:
    """This thread on one core, and which; what it starts inherits that."""
    before = os.sched_getaffinity(0)
    core = max(before)
    os.sched_setaffinity(0, {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True)
class ModemWork:
    """Samples to be modulated, and as many to be demodulated. packet_symbols: of the paper's uplink.

    gnuradio_packet_symbols: with which GNU Radio is fastest; its five buffers leave the cache sooner than our two.
    """

    samples: int = 40_000_000
    packet_symbols: int = 406
    gnuradio_packet_symbols: int = 203
    numerology: Numerology = field(default_factory=Numerology)

    def settings(self, core: int) -> dict[str, Any]:
        """For `gnuradio_worker`."""
        return {
            "core": core,
            "fft_size": self.numerology.fft_size,
            "cp_samples": self.numerology.cp_samples,
            "carriers": self.numerology.used_subcarriers.tolist(),
            "packet_symbols": self.gnuradio_packet_symbols,
        }

    def ours(self) -> dict[str, Callable[[], Seconds]]:
        """By direction: what the samples take, packet after packet from one array to another."""
        rng = np.random.default_rng(1)
        shape = (self.packet_symbols, self.numerology.data_subcarriers)
        cells = (0.1 * (rng.standard_normal(shape) + 1j * rng.standard_normal(shape))).astype(np.complex64)
        samples = modulate(cells, self.numerology)
        works: dict[str, Callable[[], object]] = {
            "modulate": lambda: modulate(cells, self.numerology, out=samples),
            "demodulate": lambda: demodulate(samples, self.numerology),
        }
        packets = max(1, round(self.samples / samples.size))

        def timed(work: Callable[[], object]) -> Seconds:
            begun = Seconds.now()
            for _ in range(packets):
                work()
            took = Seconds.now().since(begun)
            part = self.samples / (packets * samples.size)
            return Seconds(took.wall * part, took.cpu * part)

        return {direction: partial(timed, work) for direction, work in works.items()}


@dataclass(frozen=True)
class ModemTimes:
    """One (ours, GNU Radio's) for each repetition, by direction."""

    gnuradio_version: str
    pairs: dict[str, list[tuple[Seconds, Seconds]]]


def time_modems(work: ModemWork, repeats: int) -> ModemTimes:
    """Ours and GNU Radio's in alternation on one and the same core; the first of each warms up and is left out."""
    pairs: dict[str, list[tuple[Seconds, Seconds]]] = {direction: [] for direction in DIRECTIONS}
    with one_core() as core, worker("modem", work.settings(core)) as (version, ask):
        ours = work.ours()
        for _ in range(repeats + 1):
            for direction in DIRECTIONS:
                own = ours[direction]()
                theirs = ask(work=direction, samples=work.samples)
                pairs[direction].append((own, Seconds(theirs["wall_s"], theirs["cpu_s"])))
    return ModemTimes(version, {direction: timed[1:] for direction, timed in pairs.items()})


def rates(samples: int, pairs: list[tuple[Seconds, Seconds]]) -> dict[str, float]:
    """Of (ours, GNU Radio's): million samples a second of the processor, and both ratios."""
    own, theirs = (statistics.median(pair[side].cpu for pair in pairs) for side in (0, 1))
    return {
        "msps": round(samples / own / 1e6, 1),
        "gnuradio_msps": round(samples / theirs / 1e6, 1),
        "ratio_wall": statistics.median(own.wall / theirs.wall for own, theirs in pairs),
        "ratio_cpu": statistics.median(own.cpu / theirs.cpu for own, theirs in pairs),
    }


WORK = ModemWork()


def modem(repeats: int) -> Measurement:
    """Both directions together, by processor time; each has its own ratio among the facts, and that on the wall."""
    work = WORK
    times = time_modems(work, repeats)
    facts: dict[str, Any] = {}
    for direction, pairs in times.pairs.items():
        facts |= {f"{name}_{direction}": value for name, value in rates(work.samples, pairs).items()}
    numerology = work.numerology
    both = zip(*(times.pairs[direction] for direction in DIRECTIONS), strict=True)
    return Measurement.of(
        [(sum(own.cpu for own, _ in pair), sum(theirs.cpu for _, theirs in pair)) for pair in both],
        workload=f"OFDM modulator and demodulator, {work.samples / 1e6:g} million samples each, on one core, "
        f"processor time: FFT {numerology.fft_size}, prefix {numerology.cp_samples}, {numerology.data_subcarriers} "
        "subcarriers",
        reference=f"gr-digital's blocks, GNU Radio {times.gnuradio_version}, all threads on the same core: allocator, "
        "FFT, prefixer; prefix removal, FFT, serializer",
        facts=facts,
    )
