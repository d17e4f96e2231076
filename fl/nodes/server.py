"""The parameter server's radio: measures noise and channels, receives the sum."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d

from calibration.noise import NoiseMeasurement, SigmaBound, measure_noise
from calibration.pooling.listener import SilenceListener
from fl.errors import ConfigError
from fl.nodes.air_format import POWER_BLOCK, AirFormat
from fl.nodes.messages import (
    FlatChannel,
    Heard,
    HearSoundings,
    MeasureSilence,
    Message,
    Receive,
    Received,
    Silence,
    SoundedChannel,
)
from hardware.radio.contract import Radio
from hardware.radio.errors import CaptureError
from hardware.radio.samples import Capture
from phy.estimation import ChannelEstimate, delay_estimate, estimate_channel, residual_cfo
from phy.frame import sounding_cells
from phy.impairments import rotate
from phy.inversion import band_numerology
from phy.modem import demodulate, demodulate_with
from phy.sync import detect

LARGEST_MISFIT = 2e-4
"""Part of a sounding's energy that a channel within the prefix may leave unexplained; 8 bits leave 1e-5 of it."""
NEAR_SUBCARRIERS = 17
SYSTEMATIC = 3.0
"""Power of an error that is no noise within the estimate's subspace, relative to what is seen of it outside."""
LEAST_EXCESS = 2.0
"""Energy of the unexplained part against noise's share of it, above which it is not chance: 1 +- 0.09 for noise."""
FLAT_MISS = 1e-3
"""Probability with which a flat channel is taken for one that needs a filter, which costs time and nothing else."""


@dataclass
class ServerNode:
    """shared_clock: transmitters have the server's clock: no frequency offset, and their counters agree.

    remembers: silences of all uplinks are pooled; see `SilenceListener`.
    """

    radio: Radio
    air: AirFormat
    shared_clock: bool
    names: tuple[str, ...]
    remembers: bool = True

    def __post_init__(self) -> None:
        air = self.air
        self.listener = SilenceListener(
            self.radio,
            air.numerology,
            air.quiet_samples,
            air.first_quiet_samples,
            air.confidence,
            self.remembers,
            bins=air.sounding_numerology.used_bins,
            payload_bins=band_numerology(air.numerology).used_bins,
        )

    def answer(self, message: Message[Any]) -> Any:
        """See `Node.answer`."""
        match message:
            case MeasureSilence(start_sample):
                return self.measure_silence(start_sample)
            case HearSoundings(first_slot, slots, start_sample):
                return self.hear(range(first_slot, first_slot + slots), start_sample)
            case Receive(start_sample):
                return self.receive(start_sample)
        raise ConfigError(f"the server is told {type(message).__name__}, which is not for it")

    def measure_silence(self, start_sample: int) -> Silence:
        """Noise from `start_sample` on, while nobody sends. The first of a run takes longer, see `SilenceListener`."""
        heard, count = self.listener.listen(start_sample), self.air.quiet_samples
        piece = heard.piece
        own_start = piece.start_sample + piece.samples.size - count
        return Silence(
            noise=piece.noise,
            sigma=self._counted(piece.noise, heard.bound),
            sigma_everywhere=self._counted(piece.noise, heard.bound_everywhere),
            power=block_power(piece.samples[-count:]),
            start_sample=own_start,
            diagnostics=piece.diagnostics,
        )

    def _counted(self, noise: NoiseMeasurement, bound: SigmaBound) -> SigmaBound:
        """What may be counted on: the bound, lowered where the noise is above the level that a calibration found."""
        vouched = self.air.noise_std_real_limit**2 / noise.noise_var_real
        if vouched >= 1.0:
            return bound
        reason = f"{bound.reason}; the calibration vouches for no more"
        return replace(bound, noise_var_real=bound.noise_var_real * vouched, reason=reason)

    def hear(self, slots: range, start_sample: int) -> Heard:
        """The channels of those who sound in `slots`, the first of which begins at `start_sample`.

        It listens from half a gap before that on: a free-running counter may be early.
        """
        capture = self.radio.receive(len(slots) * self.air.slot_samples, start_sample - self.air.margin_samples)
        states = self._states(capture.checked(), slots)
        for slot, state in zip(slots, states, strict=True):
            self._require_heard(slot, state)
        return Heard(tuple(states), block_power(capture.samples))

    def _states(self, capture: Capture, slots: range) -> list[SoundedChannel]:
        air = self.air
        band = band_numerology(air.numerology)
        symbols, offsets, frequencies = self._symbols(capture, slots)
        every = sounding_cells(air.sounding_numerology, air.sounding_symbols)
        cells = self._cells(symbols)
        inside = np.isin(air.sounding_numerology.used_subcarriers, band.used_subcarriers)
        pilots = np.ascontiguousarray(every[:, inside])
        energy = float(np.mean(np.sum(np.abs(every) ** 2, axis=0)))
        # A frame that was found by its strongest path may have weaker ones before it.
        earliest = -2.0 if self.shared_clock else -float(air.early_samples)
        inner = np.ascontiguousarray(cells[..., inside])
        estimate = estimate_channel(inner, pilots, band, min_delay_samples=earliest)
        channel_var = self._error_var(inner, pilots, estimate, slots)
        beyond = self._beyond(cells[..., ~inside], every[:, ~inside])
        middle = self.air.margin_samples + int(air.sounding.sounding_slice.start) + symbols.shape[-1] // 2
        return [
            SoundedChannel(
                channel=estimate.channel[place],
                channel_var=channel_var[place],
                numerology=air.numerology,
                cfo_cycles_per_sample=frequencies[place][0],
                cfo_std_cycles_per_sample=frequencies[place][1],
                reference_sample=capture.start_sample + place * air.slot_samples + middle + offsets[place],
                offset_samples=offsets[place],
                flat=self._flat(cells[place], every, float(estimate.noise_var_complex[place])),
                beyond=None if beyond is None else float(beyond[place]),
                beyond_std=math.sqrt(float(estimate.noise_var_complex[place]) / energy),
            )
            for place in range(len(slots))
        ]

    def _beyond(self, cells: NDArray[np.complex64], pilots: NDArray[np.complex64]) -> NDArray[np.float64] | None:
        """Largest |H^| (slots,) at the sounded subcarriers beyond the band, cells (slots, symbols, subcarriers)."""
        if pilots.shape[1] == 0:
            return None
        energy = np.sum(np.abs(pilots) ** 2, axis=0)
        raw = np.einsum("...sk,sk->...k", cells, pilots.conj()) / energy
        return np.asarray(np.abs(raw).max(axis=-1), np.float64)

    def _flat(
        self, cells: NDArray[np.complex64], pilots: NDArray[np.complex64], noise_var_complex: float
    ) -> FlatChannel | None:
        """The channel as one path with a whole delay, where its sounding (symbols, all subcarriers) shows no other.

        Where it is one, it is taken for one with probability 1 - FLAT_MISS; where it is not quite, the deviation that
        the sounding shows, and could not show, is part of the gain's bound.
        """
        numerology = self.air.sounding_numerology
        energy = float(np.mean(np.sum(np.abs(pilots) ** 2, axis=0)))
        raw = np.einsum("sk,sk->k", cells, pilots.conj()).astype(np.complex128) / energy
        delay = round(float(delay_estimate(raw.astype(np.complex64), numerology).delay_samples))
        path = np.exp(-2j * np.pi * numerology.used_frequencies * delay)
        gain = complex(np.mean(raw * path.conj()))
        std = math.sqrt(noise_var_complex / energy)
        deviation = float(np.abs(raw - gain * path).max())
        if gain == 0.0 or deviation > std * math.sqrt(math.log(raw.size / FLAT_MISS)):
            return None
        return FlatChannel(gain, delay, deviation / abs(gain), std / abs(gain))

    def _require_heard(self, slot: int, state: SoundedChannel) -> None:
        """A transmitter that does not stand out of the noise by 10 dB after averaging was not heard."""
        if float(np.mean(np.abs(state.channel) ** 2)) < 10.0 * float(np.mean(state.channel_var)):
            raise self._not_found(slot)

    def _error_var(
        self, cells: NDArray[np.complex64], pilots: NDArray[np.complex64], estimate: ChannelEstimate, slots: range
    ) -> NDArray[np.float64]:
        """E|H^ - H|^2 (slots, U), for errors too that are the same in every symbol and look like no noise.

        Outside of the estimate's subspace there is nothing but error: U sigma^2/E - sum_k var[k] in the mean where it
        is noise. What is more than that is taken to be SYSTEMATIC times as strong inside: overall, or where it is more,
        among the nearest subcarriers, because soundings are chirps, in which a moment is a frequency. Beyond
        LARGEST_MISFIT no channel within the prefix has made the sounding: neither coherence nor gain would be known.
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
        near = uniform_filter1d(np.abs(raw - estimate.channel) ** 2, NEAR_SUBCARRIERS, axis=-1, mode="nearest")
        expected = np.maximum(noise / raw.shape[-1], np.finfo(np.float64).tiny)[..., None]
        local = np.where((more > 1.0)[..., None], SYSTEMATIC * np.maximum(near / expected, more[..., None]), 1.0)
        return np.asarray(estimate.channel_var * local)

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
            symbols = rows[:, self.air.margin_samples :][:, self.air.sounding.sounding_slice]
            return symbols, [0] * len(slots), [(0.0, 0.0)] * len(slots)
        found = [self._find(row, slot) for row, slot in zip(rows, slots, strict=True)]
        return np.stack([f[0] for f in found]), [f[1] for f in found], [f[2] for f in found]

    def _find(self, row: NDArray[np.complex64], slot: int) -> tuple[NDArray[np.complex64], int, tuple[float, float]]:
        air, frame = self.air, self.air.sounding
        detection = detect(row, air.sounding_numerology)
        if detection is None or detection.start_sample > 2 * self.air.margin_samples:
            raise self._not_found(slot)
        symbols = row[detection.start_sample :][frame.sounding_slice]
        pilots = sounding_cells(air.sounding_numerology, frame.symbols)
        coarse = detection.cfo_cycles_per_sample
        fine = residual_cfo(self._cells(rotate(symbols, -coarse, 0)), pilots, air.sounding_numerology)
        cfo = coarse + float(fine.cfo_cycles_per_sample)
        straight = rotate(symbols, -cfo, -(symbols.size // 2))
        return straight, detection.start_sample - self.air.margin_samples, (cfo, float(fine.std_cycles_per_sample))

    def _cells(self, samples: NDArray[np.complex64]) -> NDArray[np.complex64]:
        return demodulate(np.ascontiguousarray(samples), self.air.sounding_numerology, self.air.window_start)

    def receive(self, start_sample: int) -> Received:
        """The payload in the frame whose leading guard begins at `start_sample`, and the noise around and within it."""
        air, frame = self.air, self.air.payload
        samples = self.radio.receive(frame.length, start_sample).checked(frame.length).samples
        payload = np.ascontiguousarray(samples[frame.payload_slice])
        cells, empty = demodulate_with(payload, air.payload_numerology, _empty_bins(air))
        return Received(
            cells=cells,
            samples=samples,
            guards=self._noise_in(samples, frame.leading_quiet_slice, frame.trailing_quiet_slice),
            margins=self._noise_in(samples, frame.leading_margin_slice, frame.trailing_margin_slice),
            empty_var_real=np.asarray(np.mean(np.abs(empty) ** 2, axis=1, dtype=np.float64) / 2.0),
            empty_cells=empty.shape[1],
        )

    def _noise_in(self, samples: NDArray[np.complex64], before: slice, after: slice) -> NoiseMeasurement:
        # What arrives late reaches into what comes after it.
        late = self.air.gap_samples
        quiet = np.concatenate([samples[before][late:], samples[after][late:]])
        return measure_noise(quiet, self.air.numerology, confidence=2 * self.air.confidence - 1)


def _empty_bins(air: AirFormat) -> NDArray[np.int64]:
    """Bins of a payload's symbol in the transition bands: no cell is there, and a jammer's noise is as in the band.

    What is left there of the payload's sidelobes is 40 dB below it.
    """
    numerology = air.payload_numerology
    stop = (int(np.abs(band_numerology(air.numerology).used_subcarriers).max()) - 0.5) / air.numerology.fft_size
    guards = numerology.guard_bins
    return np.asarray(guards[np.abs(np.fft.fftfreq(numerology.fft_size)[guards]) < stop])


def block_power(samples: NDArray[np.complex64]) -> NDArray[np.float32]:
    """Mean |x|^2 of whole consecutive blocks of POWER_BLOCK samples."""
    blocks = samples[: samples.size // POWER_BLOCK * POWER_BLOCK].reshape(-1, POWER_BLOCK)
    return np.asarray(np.einsum("bn,bn->b", blocks, blocks.conj()).real / POWER_BLOCK, dtype=np.float32)
