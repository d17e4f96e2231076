"""The parameter server's radio: measures noise and channels, receives the sum."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.noise import NoiseMeasurement, SigmaBound, measure_noise, sigma_lower_bound
from fl.nodes.air import AirFormat
from fl.nodes.messages import ChannelState
from hardware.errors import CaptureError
from hardware.radio import Radio
from hardware.samples import Capture
from phy.estimation import estimate_channel, residual_cfo
from phy.frame import sounding_cells
from phy.impairments import rotate
from phy.modem import demodulate
from phy.sync import detect


@dataclass(frozen=True)
class Soundings:
    """What a sounding phase showed. noise: in silence. sigma: its lower bound. states: one per transmitter."""

    noise: NoiseMeasurement
    sigma: SigmaBound
    states: tuple[ChannelState, ...]
    capture: Capture


@dataclass
class ServerNode:
    """shared_clock: transmitters have the server's clock: no frequency offset, and their counters agree."""

    radio: Radio
    air: AirFormat
    shared_clock: bool
    names: tuple[str, ...]

    def listen(self, start_sample: int, transmitters: int) -> Soundings:
        """Receive the sounding phase that begins at `start_sample`, and estimate everything in it."""
        air = self.air
        count = air.sounding_phase_samples(transmitters)
        capture = self.radio.receive(count, start_sample).checked(count)
        silence = capture.samples[: air.quiet_samples]
        noise = measure_noise(silence, air.numerology, confidence=2 * air.confidence - 1)
        states = tuple(self._state(capture, slot) for slot in range(transmitters))
        return Soundings(noise, sigma_lower_bound(noise), states, capture)

    def _state(self, capture: Capture, slot: int) -> ChannelState:
        air, frame = self.air, self.air.sounding
        begin = air.quiet_samples + slot * air.slot_samples
        # Half of the gap belongs to each side: a free-running counter may be early or late.
        margin = air.gap_samples // 2
        window = capture.samples[begin - margin : begin + frame.length + margin]
        found = detect(window, air.numerology)
        if found is None:
            raise CaptureError(
                f"the sounding of '{self.names[slot]}' was not found: is it on, in range and not saturated?"
            )
        offset = 0 if self.shared_clock else found.start_sample - margin
        symbols = window[margin + offset :][frame.sounding_slice]
        pilots = sounding_cells(air.numerology, frame.symbols)
        start = begin + offset + frame.sounding_slice.start
        cfo, cfo_std = 0.0, 0.0
        if not self.shared_clock:
            cfo = found.cfo_cycles_per_sample
            fine = residual_cfo(self._cells(rotate(symbols, -cfo, 0)), pilots, air.numerology)
            cfo, cfo_std = cfo + float(fine.cfo_cycles_per_sample), float(fine.std_cycles_per_sample)
        # Rotated about its middle, where phase and frequency errors are independent.
        middle = symbols.size // 2
        cells = self._cells(rotate(symbols, -cfo, -middle))
        estimate = estimate_channel(cells, pilots, air.numerology)
        return ChannelState(
            channel=estimate.channel,
            channel_var=estimate.channel_var,
            cfo_cycles_per_sample=cfo,
            cfo_std_cycles_per_sample=cfo_std,
            reference_sample=capture.start_sample + start + middle,
            offset_samples=offset,
        )

    def _cells(self, samples: NDArray[np.complex64]) -> NDArray[np.complex64]:
        return demodulate(np.ascontiguousarray(samples), self.air.numerology, self.air.window_start)

    def receive(self, start_sample: int) -> tuple[NDArray[np.complex64], Capture]:
        """The payload's cells (symbols, U), and the whole frame whose leading guard begins at `start_sample`."""
        frame = self.air.payload
        capture = self.radio.receive(frame.length, start_sample).checked(frame.length)
        return self._cells(capture.samples[frame.payload_slice]), capture
