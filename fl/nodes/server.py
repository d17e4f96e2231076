"""The parameter server's radio: measures noise and channels, receives the sum."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.diagnostics import diagnose_silence
from calibration.noise import NoiseMeasurement, SigmaBound, noise_of, sigma_lower_bound
from calibration.silence import observe_silence
from fl.nodes.air import SLOTS_PER_GROUP, AirFormat
from fl.nodes.messages import Sound, SoundedChannel
from hardware.errors import CaptureError
from hardware.radio import Radio
from hardware.samples import Capture
from phy.estimation import ChannelEstimate, estimate_channel, residual_cfo
from phy.frame import sounding_cells
from phy.impairments import rotate
from phy.modem import demodulate
from phy.sync import detect

POWER_BLOCK = 64
LARGEST_MISFIT = 2e-4
"""Part of a sounding's energy that a channel within the prefix may leave unexplained; 8 bits leave 1e-5 of it."""
LEAST_EXCESS = 2.0
"""Energy of the unexplained part against noise's share of it, above which it is not chance: 1 +- 0.09 for noise."""
NOISE_TEST_LEVEL = 1e-4
"""Probability with which a sounding with good noise is refused, and repeated."""


@dataclass(frozen=True)
class Soundings:
    """What a sounding phase showed. noise: in silence. sigma: its lower bound. states: one per transmitter.

    power: mean |x|^2 of consecutive blocks of POWER_BLOCK samples, without the delays of radios that need a lead.
    end_sample: the first after the last slot.
    """

    noise: NoiseMeasurement
    sigma: SigmaBound
    states: tuple[SoundedChannel, ...]
    power: NDArray[np.float32]
    end_sample: int


@dataclass
class ServerNode:
    """shared_clock: transmitters have the server's clock: no frequency offset, and their counters agree."""

    radio: Radio
    air: AirFormat
    shared_clock: bool
    names: tuple[str, ...]

    def sound(
        self,
        start_sample: int,
        send: Callable[[int, Sound], object],
        not_before: Callable[[int], int] = lambda planned: planned,
    ) -> Soundings:
        """Measure the silence from `start_sample` on, then make each transmitter sound by `send(slot, order)`.

        not_before: planned sample to the one at which transmitters can start: radios that work ahead of the air may
        need more than the format's pauses.
        """
        air = self.air
        silence = self.radio.receive(air.quiet_samples, start_sample).checked(air.quiet_samples).samples
        noise = self._noise(silence)
        states: list[SoundedChannel] = []
        power = np.full(air.sounding_phase_samples(len(self.names)) // POWER_BLOCK, np.nan, np.float32)
        power[: silence.size // POWER_BLOCK] = block_power(silence)
        for first in range(0, len(self.names), SLOTS_PER_GROUP):
            slots = range(first, min(first + SLOTS_PER_GROUP, len(self.names)))
            planned = start_sample + air.slot_start(first)
            late = not_before(planned) - planned
            for slot in slots:
                send(slot, Sound(start_sample + air.slot_start(slot) + late))
            # From half a gap before the first slot on: a free-running counter may be early.
            begin = planned + late - self._margin
            capture = self.radio.receive(len(slots) * air.slot_samples, begin)
            states += self._states(capture.checked(), slots)
            heard, place = block_power(capture.samples), (planned - self._margin - start_sample) // POWER_BLOCK
            power[place : place + heard.size] = heard[: power.size - place]
        for slot, state in enumerate(states):
            self._require_heard(slot, state)
        end_sample = begin + self._margin + len(slots) * air.slot_samples
        return Soundings(noise, sigma_lower_bound(noise), tuple(states), power, end_sample)

    def _noise(self, samples: NDArray[np.complex64]) -> NoiseMeasurement:
        """Noise of a silence on which its bound may rest; `CaptureError` where it is not Gaussian or not stationary."""
        silence = observe_silence(samples, self.air.numerology)
        diagnostics = diagnose_silence(silence, NOISE_TEST_LEVEL)
        if not diagnostics.bound_holds:
            raise CaptureError(f"the noise of '{self.radio.name}' cannot be relied on: {diagnostics.verdict}")
        return noise_of(silence, 2 * self.air.confidence - 1)

    @property
    def _margin(self) -> int:
        return self.air.gap_samples // 2

    def _states(self, capture: Capture, slots: range) -> list[SoundedChannel]:
        air = self.air
        symbols, offsets, frequencies = self._symbols(capture, slots)
        pilots = sounding_cells(air.numerology, air.sounding_symbols)
        cells = self._cells(symbols)
        estimate = estimate_channel(cells, pilots, air.numerology)
        channel_var = self._error_var(cells, pilots, estimate, slots)
        middle = self._margin + int(air.sounding.sounding_slice.start) + symbols.shape[-1] // 2
        return [
            SoundedChannel(
                channel=estimate.channel[place],
                channel_var=channel_var[place],
                cfo_cycles_per_sample=frequencies[place][0],
                cfo_std_cycles_per_sample=frequencies[place][1],
                reference_sample=capture.start_sample + place * air.slot_samples + middle + offsets[place],
                offset_samples=offsets[place],
            )
            for place in range(len(slots))
        ]

    def _require_heard(self, slot: int, state: SoundedChannel) -> None:
        """A transmitter that does not stand out of the noise by 10 dB after averaging was not heard."""
        if float(np.mean(np.abs(state.channel) ** 2)) < 10.0 * float(np.mean(state.channel_var)):
            raise self._not_found(slot)

    def _error_var(
        self, cells: NDArray[np.complex64], pilots: NDArray[np.complex64], estimate: ChannelEstimate, slots: range
    ) -> NDArray[np.float64]:
        """E|H^ - H|^2 (slots, U), for errors too that are the same in every symbol and look like no noise.

        Outside of the estimate's subspace there is nothing but error: U sigma^2/E - sum_k var[k] in the mean where it
        is noise. What is more than that is taken to be as strong inside. Beyond LARGEST_MISFIT no channel within the
        prefix has made the sounding, and neither coherence nor gain would be known.
        """
        energy = float(np.mean(np.sum(np.abs(pilots) ** 2, axis=0)))
        raw = np.einsum("...sk,sk->...k", cells, pilots.conj()) / np.float32(energy)
        outside = np.sum(np.abs(raw - estimate.channel) ** 2, axis=-1)
        noise = estimate.noise_var_complex * (raw.shape[-1] / energy) - estimate.channel_var.sum(axis=-1)
        inside = np.sum(np.abs(estimate.channel) ** 2, axis=-1)
        more = np.divide(outside, noise, out=np.ones_like(noise), where=outside > LEAST_EXCESS * noise)
        for slot, wrong in zip(slots, (more > 1.0) & (outside > LARGEST_MISFIT * inside), strict=True):
            if wrong:
                raise CaptureError(
                    f"the sounding of '{self.names[slot]}' is not that of a channel within the prefix: its paths or "
                    f"its counter are more than {self.air.window_start} samples late, or its amplifier saturates"
                )
        return np.asarray(estimate.channel_var * more[..., None])

    def _not_found(self, slot: int) -> CaptureError:
        return CaptureError(
            f"the sounding of '{self.names[slot]}' was not found: is it on, in range and not saturated?"
        )

    def _symbols(
        self, capture: Capture, slots: range
    ) -> tuple[NDArray[np.complex64], list[int], list[tuple[float, float]]]:
        """Sounding symbols (slots, samples) without frequency offset, by how much each is late, and (offset, std).

        With a shared clock all slots are where they should be, and one view of the capture holds them all. Otherwise
        each is looked for, and its frequency offset removed about its middle, where phase and frequency errors are
        independent.
        """
        rows = capture.samples.reshape(len(slots), self.air.slot_samples)
        if self.shared_clock:
            symbols = rows[:, self._margin :][:, self.air.sounding.sounding_slice]
            return symbols, [0] * len(slots), [(0.0, 0.0)] * len(slots)
        found = [self._find(row, slot) for row, slot in zip(rows, slots, strict=True)]
        return np.stack([f[0] for f in found]), [f[1] for f in found], [f[2] for f in found]

    def _find(self, row: NDArray[np.complex64], slot: int) -> tuple[NDArray[np.complex64], int, tuple[float, float]]:
        air, frame = self.air, self.air.sounding
        detection = detect(row, air.numerology)
        if detection is None or detection.start_sample > 2 * self._margin:
            raise self._not_found(slot)
        symbols = row[detection.start_sample :][frame.sounding_slice]
        pilots = sounding_cells(air.numerology, frame.symbols)
        coarse = detection.cfo_cycles_per_sample
        fine = residual_cfo(self._cells(rotate(symbols, -coarse, 0)), pilots, air.numerology)
        cfo = coarse + float(fine.cfo_cycles_per_sample)
        straight = rotate(symbols, -cfo, -(symbols.size // 2))
        return straight, detection.start_sample - self._margin, (cfo, float(fine.std_cycles_per_sample))

    def _cells(self, samples: NDArray[np.complex64]) -> NDArray[np.complex64]:
        return demodulate(np.ascontiguousarray(samples), self.air.numerology, self.air.window_start)

    def receive(self, start_sample: int) -> tuple[NDArray[np.complex64], Capture]:
        """The payload's cells (symbols, U), and the whole frame whose leading guard begins at `start_sample`."""
        frame = self.air.payload
        capture = self.radio.receive(frame.length, start_sample).checked(frame.length)
        return self._cells(capture.samples[frame.payload_slice]), capture


def block_power(samples: NDArray[np.complex64]) -> NDArray[np.float32]:
    """Mean |x|^2 of whole consecutive blocks of POWER_BLOCK samples."""
    blocks = samples[: samples.size // POWER_BLOCK * POWER_BLOCK].reshape(-1, POWER_BLOCK)
    return np.asarray(np.einsum("bn,bn->b", blocks, blocks.conj()).real / POWER_BLOCK, dtype=np.float32)
