"""Synchronisation (detection, time, frequency offset) against GNU Radio's, on one core."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.bench.gnuradio_side import worker
from fl.bench.measure import Measurement, Seconds
from fl.bench.modem import one_core, rates
from fl.nodes.air_format import AirFormat
from phy.fading import circular_noise
from phy.frame import sounding_samples
from phy.impairments import rotate
from phy.numerology import Numerology
from phy.preamble import HALVES
from phy.sync import Detection, detect

CFO_CYCLES_PER_SAMPLE = 3e-4
SNR_DB = 20.0


@dataclass(frozen=True)
class SyncWork:
    """Frames one after the other, each a sounding's slot as a run has it: a preamble, symbols, a gap, and noise."""

    samples: int = 10_000_000
    air: AirFormat = field(default_factory=lambda: AirFormat(Numerology(), 155_830))

    def frame(self) -> NDArray[np.complex64]:
        """One slot; the sounding begins in the middle of its gap."""
        sent = sounding_samples(self.air.sounding)
        slot = circular_noise(self.air.slot_samples, 0.5 * 10 ** (-SNR_DB / 10), np.random.default_rng(1))
        slot[self.air.margin_samples :][: sent.size] += rotate(sent, CFO_CYCLES_PER_SAMPLE, 0)
        return slot

    def find(self, frame: NDArray[np.complex64]) -> Detection | None:
        """As the server looks for a sounding."""
        return detect(frame, self.air.sounding_numerology)

    def ours(self, frame: NDArray[np.complex64]) -> Seconds:
        """What the samples take, frame after frame."""
        frames = max(1, round(self.samples / frame.size))
        begun = Seconds.now()
        for _ in range(frames):
            self.find(frame)
        took, part = Seconds.now().since(begun), self.samples / (frames * frame.size)
        return Seconds(took.wall * part, took.cpu * part)

    @contextmanager
    def gnuradio(self, core: int, frame: NDArray[np.complex64]) -> Iterator[tuple[str, Callable[[], Seconds]]]:
        """GNU Radio's version, and what it takes for as many samples of the same frame."""
        with TemporaryDirectory() as folder:
            file = Path(folder) / "frame.cf32"
            frame.tofile(file)
            numerology = self.air.numerology
            settings: dict[str, Any] = {
                "core": core,
                # To Schmidl and Cox a preamble of two equal halves is one symbol.
                "fft_size": HALVES * numerology.fft_size,
                "cp_samples": numerology.cp_samples,
                "frame_file": str(file),
            }
            with worker("sync", settings) as (version, ask):

                def theirs() -> Seconds:
                    took = ask(work="synchronise", samples=self.samples)
                    return Seconds(took["wall_s"], took["cpu_s"])

                yield version, theirs


WORK = SyncWork()


def sync(repeats: int) -> Measurement:
    """Both in alternation on one core, by processor time; the first pair warms up and is left out."""
    work, frame = WORK, WORK.frame()
    with one_core() as core, work.gnuradio(core, frame) as (version, theirs):
        pairs = [(work.ours(frame), theirs()) for _ in range(repeats + 1)][1:]
    numerology = work.air.numerology
    return Measurement.of(
        [(own.cpu, other.cpu) for own, other in pairs],
        workload=f"preamble, time and frequency offset in {work.samples / 1e6:g} million samples, frames of "
        f"{frame.size}, on one core, processor time: FFT {numerology.fft_size}, prefix {numerology.cp_samples}",
        reference=f"gr-digital's ofdm_sync_sc_cfb, GNU Radio {version}, on the same preamble and core",
        facts=rates(work.samples, pairs),
    )
