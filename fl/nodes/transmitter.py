"""What clients and jammer have in common: a radio that sounds, and sends cells so that they arrive undistorted."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fl.nodes.air import AirFormat
from fl.nodes.messages import Sent, Sound, SoundedChannel
from hardware.radio import Radio
from phy.frame import SoundingFrame, sounding_samples
from phy.impairments import rotate
from phy.modem import demodulate, modulate

ESTIMATOR_BIAS = 1e-3
"""Largest error of `phy.estimation.estimate_channel` without noise, relative to the channel's rms: 5e-4 for paths that
are 1 sample or more inside of its range of delays."""


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

    def follow(self, state: SoundedChannel) -> None:
        """Take over the counter's offset that the sounding showed."""
        self.offset_samples -= state.offset_samples

    def send(
        self,
        cells: NDArray[np.complex64],
        gains: NDArray[np.complex64],
        state: SoundedChannel,
        start_sample: int,
        *,
        allow_clipping: bool,
    ) -> Sent:
        """Send payload cells (symbols, U) times `gains` (U,), against the frequency offset's turn since the sounding.

        The product is formed in `cells`.

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
        cells *= gains
        samples = modulate(cells, numerology, out=self.workspace.samples)
        samples = rotate(samples, -cfo, start_sample - state.reference_sample)
        report = self.radio.transmit(samples, start_sample + self.offset_samples, allow_clipping=allow_clipping)
        lost = self._lost_energy(samples, state) if report.clipped_samples else 0.0
        return Sent(samples.size, report.clipped_samples, lost)

    def _lost_energy(self, samples: NDArray[np.complex64], state: SoundedChannel) -> float:
        """Energy of what shortening samples to |x| = 1 takes away, as it arrives in the server's cells."""
        lost = samples * (1.0 - 1.0 / np.maximum(np.abs(samples), np.float32(1.0)))
        cells = demodulate(lost.astype(np.complex64), self.air.numerology) * state.channel
        return float(np.vdot(cells, cells).real)


def relative_error(state: SoundedChannel, air: AirFormat) -> NDArray[np.float64]:
    """Bound on |H - H^|/|H^| (U,) that holds for all used k at once with the agreed confidence.

    Noise, q std[k], and what the estimator's projection loses where there is no noise.
    """
    rms = float(np.sqrt(np.mean(np.abs(state.channel) ** 2)))
    return np.asarray(air.error_quantile() * state.relative_std + ESTIMATOR_BIAS * rms * np.abs(state.inverse))


def relative_gain_upper(state: SoundedChannel, air: AirFormat) -> float:
    """max_k |H|/|H^| at the agreed confidence."""
    return float(1.0 + relative_error(state, air).max())


def gains_lower(state: SoundedChannel, air: AirFormat) -> NDArray[np.float64]:
    """Lower bounds on |H[k]| (U,) at the agreed confidence; 0 where it cannot be told from noise."""
    return np.asarray(np.maximum(0.0, 1.0 - relative_error(state, air)) / np.abs(state.inverse))
