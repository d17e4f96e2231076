"""What clients and jammer have in common: a radio that sounds, and sends cells so that they arrive undistorted."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fl.nodes.air import AirFormat
from fl.nodes.messages import ChannelState, Sent, Sound
from hardware.radio import Radio
from phy.frame import SoundingFrame, sounding_samples
from phy.impairments import rotate
from phy.modem import modulate


@lru_cache(maxsize=4)
def _sounding(frame: SoundingFrame) -> NDArray[np.complex64]:
    return sounding_samples(frame)


@dataclass
class Workspace:
    """Arrays that are used again from burst to burst: fresh ones of this size cost more than the transforms.

    Transmitters in one process may share one, because a burst is passed on before the next is made.
    """

    cells: NDArray[np.complex64]
    samples: NDArray[np.complex64]

    @classmethod
    def of(cls, air: AirFormat) -> "Workspace":
        """For payloads of this format."""
        symbols, numerology = air.grid.symbols, air.numerology
        cells = np.empty((symbols, numerology.data_subcarriers), np.complex64)
        return cls(cells, np.empty(symbols * numerology.symbol_samples, np.complex64))


@dataclass
class Transmitter:
    """offset_samples: of this radio's counter against the server's, learnt from soundings."""

    radio: Radio
    air: AirFormat
    workspace: Workspace
    offset_samples: int = 0

    def sound(self, order: Sound) -> Sent:
        """Send the sounding frame at full scale."""
        samples = _sounding(self.air.sounding)
        report = self.radio.transmit(samples, order.start_sample + self.offset_samples)
        return Sent(samples.size, report.clipped_samples, 0.0)

    def follow(self, state: ChannelState) -> None:
        """Take over the counter's offset that the sounding showed."""
        self.offset_samples -= state.offset_samples

    def send(
        self, cells: NDArray[np.complex64], gains: NDArray[np.complex64], state: ChannelState, start_sample: int
    ) -> Sent:
        """Send payload cells (symbols, U) times `gains` (U,), against the frequency offset's turn since the sounding.

        A clock that is fast by f/f_carrier also drifts in time: at 1 ppm a sample in a million, which is a phase slope
        over the subcarriers and is undone too, from the same measurement.
        """
        numerology = self.air.numerology
        cfo = state.cfo_cycles_per_sample
        if cfo != 0.0:
            ppm = cfo * numerology.sample_rate_hz / self.radio.settings.tx_center_hz
            middles = start_sample + (np.arange(len(cells)) + 0.5) * numerology.symbol_samples
            drift_samples = ppm * (middles - state.reference_sample)
            # A fast clock sends later symbols early: delay them by the drift.
            slopes = np.exp(-2j * np.pi * drift_samples[:, None] * numerology.used_frequencies)
            gains = (gains * slopes).astype(np.complex64)
        samples = modulate(cells, numerology, out=self.workspace.samples, gains=gains)
        samples = rotate(samples, -cfo, start_sample - state.reference_sample)
        report = self.radio.transmit(samples, start_sample + self.offset_samples, allow_clipping=True)
        excess = 0.0
        if report.clipped_samples:
            parts = np.abs(samples.view(np.float32))
            excess = float(np.square(np.maximum(parts - 1.0, 0.0), dtype=np.float64).sum())
        return Sent(samples.size, report.clipped_samples, excess)


def relative_gain_upper(state: ChannelState, air: AirFormat) -> float:
    """max_k |H|/|H^| at the agreed confidence: |H[k]| <= |H^[k]| + q std[k] for all used k at once."""
    return float(1.0 + air.error_quantile() * state.relative_std.max())


def gain_lower(state: ChannelState, air: AirFormat) -> float:
    """Lower bound on |H[k]| for all used k at the agreed confidence; 0 where it cannot be told from noise."""
    magnitude = 1.0 / np.abs(state.inverse)
    return max(0.0, float((magnitude * (1.0 - air.error_quantile() * state.relative_std)).min()))
