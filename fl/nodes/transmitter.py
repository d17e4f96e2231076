"""What clients and jammer have in common: a radio that sounds, and sends bursts so that they arrive undistorted."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.nodes.air_format import AirFormat
from fl.nodes.circuits import circuits_of, dither_for, peak_limit
from fl.nodes.messages import (
    Announcement,
    Check,
    Circuits,
    CountOffset,
    DescribeCircuits,
    Message,
    Sent,
    Sound,
    SoundedChannel,
    Withdraw,
)
from fl.nodes.precoding import noise_inverse
from hardware.radio.contract import Radio
from hardware.radio.errors import TxClippingError
from phy.compute.filters import convolve
from phy.compute.transforms import aligned_zeros
from phy.dither import Dither, RandomWords, dithered, limited, system_words
from phy.frame import SoundingFrame, sounding_samples
from phy.impairments import rotate
from phy.modem import bin_weight, demodulate, modulate_bins


@lru_cache(maxsize=4)
def _sounding(frame: SoundingFrame) -> NDArray[np.complex64]:
    return sounding_samples(frame)


@dataclass
class Workspace:
    """Arrays that are used again from burst to burst: fresh ones of this size cost more than the transforms.

    bins: of a payload's symbols (symbols, fft_size). Those that carry nothing are zero, and stay so.

    Transmitters in one process may share one, because a burst is passed on before the next is made.
    """

    bins: NDArray[np.complex64]
    samples: NDArray[np.complex64]

    @classmethod
    def of(cls, air: AirFormat) -> "Workspace":
        """For payloads of this format."""
        symbols, numerology = air.grid.symbols, air.payload_numerology
        samples = aligned_zeros(symbols, numerology.symbol_samples).reshape(-1)
        return cls(aligned_zeros(symbols, numerology.fft_size), samples)


@dataclass(frozen=True)
class Burst:
    """What left an antenna. It depends on what was sent, so it stays in the node.

    energy: ||x||^2 over the samples. clipped_samples: shortened before the filter. clipped_energy: of what that took
    away, as it arrives.
    """

    samples: int
    energy: float
    clipped_samples: int
    clipped_energy: float


def always_system_words(block: int) -> RandomWords:
    """For radios: fresh dither, whatever the number of the sounding."""
    del block
    return system_words


@dataclass
class Transmitter:
    """offset_samples: of this radio's counter against the server's, learnt from soundings.

    words_for: number of a sounding to the random bits of the dither that is sent in it: the system's on a real radio,
    in simulation a seeded source of this transmitter's own.
    """

    radio: Radio
    air: AirFormat
    workspace: Workspace
    offset_samples: int = 0
    words_for: Callable[[int], RandomWords] = always_system_words

    @property
    def circuits(self) -> Circuits:
        """As they are set now."""
        return circuits_of(self.radio)

    def sound(self, order: Sound) -> Sent:
        """Send the sounding frame at full scale."""
        samples = _sounding(self.air.sounding)
        self.radio.transmit(samples, order.start_sample + self.offset_samples)
        return Sent(samples.size)

    def send(
        self, coordinates: NDArray[np.float32], scale: float, conditions: Announcement, start_sample: int
    ) -> Burst:
        """Send coordinates (d,): `scale` times them arrives, whitened, from `start_sample` on.

        Peaks are shortened before the filter that undoes the channel: see `fl.nodes.circuits`. Where one factor undoes
        it, that is the same as behind it, and scale and factor are one.

        A clock that is fast by f/f_carrier also drifts in time: at 1 ppm a sample in a million, which is a phase slope
        over the subcarriers and is undone too, from the same measurement.
        """
        from phy.compute.kernels import peak_and_energy

        state, circuits, numerology = conditions.state, self.circuits, self.air.payload_numerology
        undo = 1.0 if state.flat is None else 1.0 / state.flat.gain
        bins = self.workspace.bins
        self.air.grid.to_bins(coordinates, scale * undo * bin_weight(numerology), bins)
        self._undo_drift(bins, state, start_sample)
        whole = modulate_bins(bins, numerology, self.workspace.samples)
        dither = dither_for(state, self.air, circuits, conditions.noise_std_real)
        limit = peak_limit(state, circuits.step, dither) * abs(undo)
        peak, energy = peak_and_energy(whole)
        shortened, clipped = limited(whole, limit, peak)
        lost = self._lost_energy(whole - shortened) / abs(undo) ** 2 if clipped else 0.0
        if state.flat is None:
            samples, first = convolve(shortened, state.inverse.taps), start_sample - state.inverse.reach
        else:
            samples, first = shortened, start_sample - state.flat.delay_samples
        if samples is not whole:
            energy = peak_and_energy(samples)[1]
        self._radiate(samples, first, state, dither, conditions.block, circuits.step)
        return Burst(samples.size, energy, clipped, lost)

    def send_noise(self, noise: NDArray[np.complex64], state: SoundedChannel, start_sample: int, block: int) -> int:
        """Send white samples (n,) so that they arrive white from `start_sample` on; returns their number.

        Its first and last samples lack what the filter would take from beyond them: nobody sends there but the jammer.
        Noise that would clip is not sent: it would be less than what was promised.
        """
        if state.flat is not None:
            samples, first = noise * np.complex64(1.0 / state.flat.gain), start_sample - state.flat.delay_samples
        else:
            inverse = noise_inverse(state, self.air)
            samples, first = convolve(noise, inverse.taps)[inverse.reach : -inverse.reach], start_sample
        self._radiate(samples, first, state, Dither.TRIANGULAR, block, self.circuits.step)
        return samples.size

    def _undo_drift(self, bins: NDArray[np.complex64], state: SoundedChannel, start_sample: int) -> None:
        """Delay the symbols (symbols, fft_size), in place, by what the clock has gained since its sounding."""
        cfo, numerology = state.cfo_cycles_per_sample, self.air.payload_numerology
        if cfo == 0.0:
            return
        ppm = cfo * numerology.sample_rate_hz / self.radio.settings.tx_center_hz
        middles = start_sample + (np.arange(self.air.grid.symbols) + 0.5) * numerology.symbol_samples
        drift_samples = ppm * (middles - state.reference_sample)
        # A fast clock sends later symbols early: delay them by the drift.
        turns = drift_samples[:, None] * np.fft.fftfreq(numerology.fft_size)
        bins *= np.exp(-2j * np.pi * turns).astype(np.complex64)

    def _radiate(
        self,
        samples: NDArray[np.complex64],
        first_sample: int,
        state: SoundedChannel,
        dither: Dither | None,
        block: int,
        step: float | None,
    ) -> None:
        """Against the frequency offset's turn since the sounding, rounded to the converter's levels."""
        turned = rotate(samples, -state.cfo_cycles_per_sample, first_sample - state.reference_sample)
        if step is not None and dither is not None:
            turned, shortened = dithered(turned, step, dither, self.words_for(block))
            if shortened:
                raise TxClippingError(f"{shortened} samples that '{self.radio.name}' is to send are beyond full scale")
        self.radio.transmit(turned, first_sample + self.offset_samples)

    def _lost_energy(self, lost: NDArray[np.complex64]) -> float:
        """Energy of what shortening took away, as it arrives at the used subcarriers."""
        cells = demodulate(lost, self.air.payload_numerology)
        # Whitening spreads it over all coordinates, of which the padding is none.
        share = self.air.coordinates / (2 * self.air.grid.cells)
        return share * float(np.vdot(cells, cells).real)


class TransmitterNode:
    """What every node with a transmitter answers."""

    def __init__(self, transmitter: Transmitter) -> None:
        self.transmitter = transmitter

    def answer(self, message: Message[Any]) -> Any:
        """See `Node.answer`."""
        radio = self.transmitter.radio
        match message:
            case CountOffset(offset_samples):
                self.transmitter.offset_samples = offset_samples
            case Sound():
                return self.transmitter.sound(message)
            case Withdraw():
                return radio.withdraw()
            case DescribeCircuits():
                return self.transmitter.circuits
            case Check():
                radio.check()
            case _:
                raise PrivacyError(f"'{radio.name}' is told {type(message).__name__}, which is not for it")
        return None
