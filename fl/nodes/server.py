"""The parameter server's radio: measures noise and channels, receives the sum."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.noise import NoiseMeasurement, SigmaBound, measure_noise
from calibration.pooling.listener import SilenceListener
from fl.errors import ConfigError
from fl.nodes.air_format import POWER_BLOCK, AirFormat
from fl.nodes.messages import (
    Heard,
    HearSoundings,
    MeasureSilence,
    Message,
    Receive,
    Received,
    Silence,
    SoundedChannel,
)
from fl.nodes.soundings.estimate import NoChannelError, Sounding
from hardware.radio.contract import Radio
from hardware.radio.errors import CaptureError
from hardware.radio.samples import Capture
from phy.estimation import residual_cfo
from phy.frame import sounding_cells
from phy.impairments import rotate
from phy.inversion import band_numerology
from phy.modem import demodulate, demodulate_with
from phy.sync import detect
from phy.units import noise_var_complex_from_real


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
        self._silence_var_complex: float | None = None
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
            case Receive(start_sample, jammed):
                return self.receive(start_sample, jammed=jammed)
        raise ConfigError(f"the server is told {type(message).__name__}, which is not for it")

    def measure_silence(self, start_sample: int) -> Silence:
        """Noise from `start_sample` on, while nobody sends. The first of a run takes longer, see `SilenceListener`."""
        heard, count = self.listener.listen(start_sample), self.air.quiet_samples
        piece = heard.piece
        self._silence_var_complex = noise_var_complex_from_real(piece.noise.noise_var_real)
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
        symbols, quiet, offsets, frequencies = self._symbols(capture, slots)
        cells, quiet_cells = self._cells(symbols), self._cells(quiet)
        # A frame that was found by its strongest path may have weaker ones before it.
        earliest = -2.0 if self.shared_clock else -float(air.early_samples)
        middle = self.air.margin_samples + int(air.sounding.sounding_slice.start) + symbols.shape[-1] // 2
        states = []
        for place, slot in enumerate(slots):
            sounding = Sounding(air, cells[place], quiet_cells[place], earliest, self._silence_var_complex)
            try:
                state = sounding.state
            except NoChannelError as error:
                raise self._no_channel(slot) from error
            states.append(
                replace(
                    state,
                    cfo_cycles_per_sample=frequencies[place][0],
                    cfo_std_cycles_per_sample=frequencies[place][1],
                    reference_sample=capture.start_sample + place * air.slot_samples + middle + offsets[place],
                    offset_samples=offsets[place],
                )
            )
        return states

    def _no_channel(self, slot: int) -> CaptureError:
        return CaptureError(
            f"the sounding of '{self.names[slot]}' is not that of a channel within the prefix: its paths or "
            f"its counter are more than {self.air.window_start} samples late, or its amplifier saturates"
        )

    def _require_heard(self, slot: int, state: SoundedChannel) -> None:
        """A transmitter that does not stand out of the noise by 10 dB after averaging was not heard."""
        if float(np.mean(np.abs(state.channel) ** 2)) < 10.0 * float(np.mean(state.channel_var)):
            raise self._not_found(slot)

    def _not_found(self, slot: int) -> CaptureError:
        return CaptureError(
            f"the sounding of '{self.names[slot]}' was not found: is it on, in range and not saturated?"
        )

    def _symbols(
        self, capture: Capture, slots: range
    ) -> tuple[NDArray[np.complex64], NDArray[np.complex64], list[int], list[tuple[float, float]]]:
        """Sounding symbols and quieter ones (slots, samples) without frequency offset, by how much each is late, and
        (offset, std).

        With a shared clock all slots are where they should be, and one view of the capture holds them all. Otherwise
        each is looked for, and its frequency offset removed about its middle, where phase and frequency errors are
        independent.
        """
        rows = capture.samples.reshape(len(slots), self.air.slot_samples)
        frame = self.air.sounding
        if self.shared_clock:
            on = rows[:, self.air.margin_samples :]
            none = [0] * len(slots)
            return on[:, frame.sounding_slice], on[:, frame.quiet_slice], none, [(0.0, 0.0)] * len(slots)
        found = [self._find(row, slot) for row, slot in zip(rows, slots, strict=True)]
        symbols = np.stack([f[0] for f in found])
        loud = frame.sounding_slice.stop - frame.sounding_slice.start
        return symbols[:, :loud], symbols[:, loud:], [f[1] for f in found], [f[2] for f in found]

    def _find(self, row: NDArray[np.complex64], slot: int) -> tuple[NDArray[np.complex64], int, tuple[float, float]]:
        air, frame = self.air, self.air.sounding
        detection = detect(row, air.sounding_numerology)
        if detection is None or detection.start_sample > 2 * self.air.margin_samples:
            raise self._not_found(slot)
        every = row[detection.start_sample :][frame.sounding_slice.start : frame.length]
        symbols = every[: frame.sounding_slice.stop - frame.sounding_slice.start]
        pilots = sounding_cells(air.sounding_numerology, frame.symbols)
        coarse = detection.cfo_cycles_per_sample
        fine = residual_cfo(self._cells(rotate(symbols, -coarse, 0)), pilots, air.sounding_numerology)
        cfo = coarse + float(fine.cfo_cycles_per_sample)
        straight = rotate(every, -cfo, -(symbols.size // 2))
        return straight, detection.start_sample - self.air.margin_samples, (cfo, float(fine.std_cycles_per_sample))

    def _cells(self, samples: NDArray[np.complex64]) -> NDArray[np.complex64]:
        return demodulate(np.ascontiguousarray(samples), self.air.sounding_numerology, self.air.window_start)

    def receive(self, start_sample: int, *, jammed: bool) -> Received:
        """The payload in the frame whose leading guard begins at `start_sample`, and the noise around and within it."""
        air, frame = self.air, self.air.payload
        samples = self.radio.receive(frame.length, start_sample).checked(frame.length).samples
        payload = np.ascontiguousarray(samples[frame.payload_slice])
        cells, empty = demodulate_with(payload, air.payload_numerology, _empty_bins(air))
        return Received(
            cells=cells,
            samples=samples,
            guards=self._noise_in(samples, frame.leading_quiet_slice, frame.trailing_quiet_slice),
            margins=self._noise_in(samples, frame.leading_margin_slice, frame.trailing_margin_slice)
            if jammed
            else None,
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
