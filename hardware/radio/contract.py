"""The contract of every radio: a stream of samples that is addressed by a sample counter.

A backend derives from `Radio` and supplies the few methods that begin with an underscore. The checks that keep a lab
safe are here and cannot be skipped: limits before anything is written, the comparison of what is read back, full
scale before anything is sent, silence on every exit.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hardware.radio.errors import HardwareError, LateError, RadioTimeoutError, SettingsMismatchError
from hardware.radio.samples import Capture, TransmitReport, sendable
from hardware.radio.settings import Capabilities, Limits, RadioSettings

__all__ = ["Capabilities", "Capture", "Limits", "Radio", "RadioSettings", "Tap", "TransmitReport"]

Tap = Callable[[Capture], None]
"""Is shown samples at the border of a radio as they pass. The samples are lent: to keep them it copies them."""


class Radio(ABC):
    """One radio. It starts parked: `configure` makes it ready to transmit, `park` silences it again.

    As a context manager it is closed, and therefore parked, however the block is left.
    """

    def __init__(self, name: str, capabilities: Capabilities, limits: Limits, timeout_s: float = 5.0) -> None:
        if not (math.isfinite(timeout_s) and timeout_s > 0):
            raise HardwareError(f"timeout_s of {name} is {timeout_s}: expected a finite number of seconds above 0")
        self.name = name
        self.capabilities = capabilities
        self.limits = limits
        self.timeout_s = timeout_s
        self._settings: RadioSettings | None = None
        self._parked = True
        self._closed = False
        self._receive_taps: list[Tap] = []
        self._transmit_taps: list[Tap] = []

    def tap_received(self, tap: Tap) -> None:
        """Show `tap` everything that `receive` returns from now on."""
        self._receive_taps.append(tap)

    def tap_sent(self, tap: Tap) -> None:
        """Show `tap` everything that `transmit` hands over from now on, as it was handed over: clipped, not withdrawn.

        `Capture.clipped_samples` is then the number of samples that were shortened to full scale.
        """
        self._transmit_taps.append(tap)

    @property
    def settings(self) -> RadioSettings:
        """Settings as last read back; after `park` with the lowest transmit gain."""
        if self._settings is None:
            raise HardwareError(f"{self.name} has no settings yet: configure it first")
        return self._settings

    @property
    def lead_samples(self) -> int:
        """How much later than `now` a burst must be planned to start, because time goes on while the host works."""
        return 0

    @property
    def tx_step(self) -> float | None:
        """Step of the transmit converter as it is now set, on each of I and Q, in units of the samples to send.

        Samples that are multiples of it leave as they are. None where nothing is rounded.
        """
        return None

    @property
    def tx_image_db(self) -> float | None:
        """Upper bound on the power of the mirror image that the transmitter makes of its signal: -inf where it makes
        none, None where nobody says, and soundings alone must show it."""
        return None

    @property
    def parked(self) -> bool:
        """Whether the transmitter is silenced."""
        return self._parked

    @property
    def closed(self) -> bool:
        """Whether the radio was given back."""
        return self._closed

    def configure(self, settings: RadioSettings) -> RadioSettings:
        """Write `settings`, read them back, compare, and return what was read back.

        `LimitError` and `CapabilityError` come before anything is written. `SettingsMismatchError`: something reads
        back further from what was written than the tolerance; the radio is then parked.
        """
        self._require_open()
        self.limits.check(settings, self.name)
        self.capabilities.check(settings, self.name)
        try:
            self._write(settings)
            self._settings = self._read_back()
            differences = settings.differences(self._settings)
            if differences:
                raise SettingsMismatchError(f"{self.name}: {'; '.join(differences)}")
        except BaseException:
            self.park()
            raise
        self._parked = False
        return self._settings

    @abstractmethod
    def now(self) -> int:
        """The earliest sample at which a burst can start: not yet past, and after this radio's previous burst."""

    def transmit(
        self, samples: NDArray[np.complex64], start_sample: int, *, allow_clipping: bool = False
    ) -> TransmitReport:
        """Send samples (n,) so that samples[0] leaves at `start_sample`; returns without waiting for that moment.

        Raises before anything is sent: `TxSamplesError` and `TxClippingError` (see `sendable`), `LateError` for a
        start that has passed or lies within this radio's previous burst, `RadioTimeoutError` for one further ahead
        than the time-out, `AlignmentError` where the radio's count means nothing. `TxUnderflowError` means that a burst
        went out damaged: this one, or one before; see `check`.
        """
        self._require_open()
        self._require_ready()
        ready, clipped = sendable(samples, allow_clipping)
        now = self.now()
        if start_sample < now:
            raise LateError(f"{self.name} cannot send at sample {start_sample}: it is already sample {now}")
        self._require_soon(start_sample, now)
        self._send(ready, start_sample)
        for tap in self._transmit_taps:
            tap(Capture(ready, start_sample, self.settings, clipped))
        return TransmitReport(start_sample, ready.size, clipped)

    def receive(self, count: int, start_sample: int) -> Capture:
        """The `count` samples from `start_sample` on, waiting for them where they are still to come.

        Raises `LateError` for samples that were already taken or came before the radio listened, `RxOverflowError` for
        samples that were lost, `RadioTimeoutError` for samples that would come after the time-out. What was received
        is returned as it is: see `Capture.checked`.
        """
        self._require_open()
        if count < 1:
            raise HardwareError(f"{self.name} is asked for {count} samples: expected at least 1")
        settings = self.settings
        self._require_soon(start_sample + count, self.now())
        samples, clipped = self._listen(count, start_sample)
        temperature_c, rssi_db = self._telemetry()
        capture = Capture(samples, start_sample, settings, clipped, temperature_c, rssi_db)
        for tap in self._receive_taps:
            tap(capture)
        return capture

    def withdraw(self) -> int:
        """Forget bursts that have not left yet, as far as the radio still can; returns how many."""
        return 0

    def check(self) -> None:
        """Raise `TxUnderflowError` or `RxOverflowError` if samples were lost since the radio was last asked.

        A burst is known to have gone out whole when it is over and this raises nothing.
        """
        self._require_open()

    def park(self) -> None:
        """Stop transmitting and go to the lowest transmit gain; receiving goes on. Does nothing on a closed radio."""
        if self._closed:
            return
        self._parked = True
        self._silence()
        if self._settings is not None:
            self._settings = self._read_back()

    def close(self) -> None:
        """Park and release the radio. A second call does nothing."""
        try:
            self.park()
        finally:
            if not self._closed:
                self._closed = True
                self._release()

    def __enter__(self) -> Self:
        """The radio itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Park and close, whatever happened."""
        self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise HardwareError(f"{self.name} is closed")

    def _require_ready(self) -> None:
        """Raise where nothing can be sent."""
        if self._parked:
            raise HardwareError(f"{self.name} is parked: configure it before transmitting")

    def _telemetry(self) -> tuple[float | None, float | None]:
        """Temperature in degrees Celsius and RSSI in dB of the receiver, as they are now."""
        return None, None

    def _require_soon(self, sample: int, now: int) -> None:
        wait_s = (sample - now) / self.settings.sample_rate_hz
        if wait_s > self.timeout_s:
            raise RadioTimeoutError(
                f"{self.name} would wait {wait_s:.3g} s for sample {sample}: its time-out is {self.timeout_s:g} s; "
                "ask for less, or raise lab.timeout_s"
            )

    @abstractmethod
    def _write(self, settings: RadioSettings) -> None:
        """Write all settings; they are within limits and capabilities."""

    @abstractmethod
    def _read_back(self) -> RadioSettings:
        """Read all settings from the radio, not from memory of what was written."""

    @abstractmethod
    def _send(self, samples: NDArray[np.complex64], start_sample: int) -> None:
        """Queue checked samples. `samples` belongs to the caller and may change after this returns."""

    @abstractmethod
    def _listen(self, count: int, start_sample: int) -> tuple[NDArray[np.complex64], int]:
        """Samples (count,), complex64, and how many of them clipped."""

    @abstractmethod
    def _silence(self) -> None:
        """Stop the transmitter and set its lowest gain; must not fail on a radio that was never configured."""

    @abstractmethod
    def _release(self) -> None:
        """Give back whatever the radio holds."""
