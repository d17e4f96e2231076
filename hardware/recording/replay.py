"""A radio that receives again what it received once, and sends nothing."""

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from hardware.radio.contract import Radio
from hardware.radio.errors import HardwareError
from hardware.radio.samples import Capture
from hardware.radio.settings import Capabilities, Limits, RadioSettings
from hardware.recording.model import Segment


class NotRecordedError(HardwareError):
    """Samples that the recording does not have."""


class ReplayRadio(Radio):
    """segments: what was received. A piece of one can be received as often as one likes; see `load` for others."""

    def __init__(self, name: str, segments: tuple[Segment, ...], capabilities: Capabilities, limits: Limits) -> None:
        super().__init__(name, capabilities, limits)
        self._captures: list[Capture] = []
        self._now = 0
        self.load(segments)

    def load(self, segments: tuple[Segment, ...]) -> None:
        """Play these from now on, and no others."""
        self._captures = [segment.capture for segment in segments]
        if self._captures:
            self._settings, self._now = self._captures[0].settings, self._captures[0].start_sample

    def now(self) -> int:
        """After what was received last, or at the recording's first sample."""
        return self._now

    def receive(self, count: int, start_sample: int) -> Capture:
        """See `Radio.receive`, with the settings and the telemetry of that time.

        Where only a part of a segment is asked for, all of its clipped samples may be in that part.
        """
        self._require_open()
        for capture in self._captures:
            first = start_sample - capture.start_sample
            if first >= 0 and start_sample + count <= capture.end_sample:
                self._now = start_sample + count
                return Capture(
                    capture.samples[first : first + count],
                    start_sample,
                    capture.settings,
                    min(capture.clipped_samples, count),
                    capture.temperature_c,
                    capture.rssi_db,
                )
        raise NotRecordedError(
            f"{self.name} is asked for {count} samples from {start_sample} on, which were not recorded"
        )

    def _write(self, settings: RadioSettings) -> None:
        self._refuse()

    def _read_back(self) -> RadioSettings:
        return self.settings

    def _send(self, samples: NDArray[np.complex64], start_sample: int) -> None:
        self._refuse()

    def _listen(self, count: int, start_sample: int) -> tuple[NDArray[np.complex64], int]:
        capture = self.receive(count, start_sample)
        return capture.samples, capture.clipped_samples

    def _silence(self) -> None:
        """It never sends."""

    def _release(self) -> None:
        """Nothing is held."""

    def _refuse(self) -> NoReturn:
        raise HardwareError(f"{self.name} plays a recording back: it has no settings to change and sends nothing")
