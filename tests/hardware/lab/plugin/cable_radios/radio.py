"""Radios on a cable, which adds up what all of them send. Time moves when somebody receives."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hardware.radio.contract import Radio
from hardware.radio.errors import HardwareError, LateError
from hardware.radio.settings import Capabilities, Limits, RadioSettings

CAPABILITIES = Capabilities(
    sample_rate_hz=(1e5, 1e8),
    center_hz=(1e6, 1e10),
    bandwidth_hz=(1e5, 1e8),
    tx_gain_db=(-100.0, 0.0),
    rx_gain_db=(0.0, 60.0),
    tx_gain_step_db=0.25,
    rx_gain_step_db=1.0,
    gain_scale="0 dB is one volt",
)


@dataclass(frozen=True)
class _Burst:
    sender: str
    start_sample: int
    samples: NDArray[np.complex64]


class Cable:
    """The air of these radios, and their time."""

    def __init__(self, seed: int, amplitude: float, noise_var_complex: float) -> None:
        self.time = 0
        self._rng = np.random.default_rng(seed)
        self._amplitude, self._noise_std = amplitude, np.sqrt(noise_var_complex / 2)
        self._bursts: list[_Burst] = []

    def new_block(self, block: int) -> None:
        """A cable does not fade."""

    def advance(self, sample: int) -> None:
        self.time = max(self.time, sample)
        self._bursts = [burst for burst in self._bursts if burst.start_sample + burst.samples.size > self.time]

    def send(self, sender: str, samples: NDArray[np.complex64], start_sample: int) -> None:
        self._bursts.append(_Burst(sender, start_sample, samples * np.complex64(self._amplitude)))

    def listen(self, receiver: str, count: int, start_sample: int) -> NDArray[np.complex64]:
        noise = self._rng.standard_normal((count, 2), np.float32) * np.float32(self._noise_std)
        heard = noise.view(np.complex64).reshape(-1)
        for burst in self._bursts:
            low = max(start_sample, burst.start_sample)
            high = min(start_sample + count, burst.start_sample + burst.samples.size)
            if low < high and burst.sender != receiver:
                sent = burst.samples[low - burst.start_sample : high - burst.start_sample]
                heard[low - start_sample : high - start_sample] += sent
        self.advance(start_sample + count)
        return heard


class CableRadio(Radio):
    """One of them."""

    def __init__(self, name: str, cable: Cable, limits: Limits, timeout_s: float) -> None:
        super().__init__(name, CAPABILITIES, limits, timeout_s)
        self._cable = cable
        self._written: RadioSettings | None = None
        self._busy_until = self._taken_until = 0

    def now(self) -> int:
        return max(self._cable.time, self._busy_until)

    def _write(self, settings: RadioSettings) -> None:
        self._written = settings

    def _read_back(self) -> RadioSettings:
        if self._written is None:
            raise HardwareError(f"{self.name} has no settings yet: configure it first")
        return self._written

    def _send(self, samples: NDArray[np.complex64], start_sample: int) -> None:
        gain = np.complex64(10 ** (self.settings.tx_gain_db / 20))
        self._cable.send(self.name, samples * gain, start_sample)
        self._busy_until = start_sample + samples.size

    def _listen(self, count: int, start_sample: int) -> tuple[NDArray[np.complex64], int]:
        if start_sample < self._taken_until:
            raise LateError(f"{self.name}: samples up to {self._taken_until} are gone")
        self._taken_until = start_sample + count
        heard = self._cable.listen(self.name, count, start_sample)
        return heard * np.complex64(10 ** (self.settings.rx_gain_db / 20)), 0

    def _silence(self) -> None:
        if self._written is not None:
            self._written = replace(self._written, tx_gain_db=CAPABILITIES.tx_gain_db[0])

    def _release(self) -> None:
        pass
