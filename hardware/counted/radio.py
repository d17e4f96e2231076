"""Radios that count samples by themselves, each from a moment of its own on.

Without timestamps there is nothing but the count: both streams are continuous, and what is lost breaks it, is found
(`stream`) and raised as a typed error. The relation between a transmitter's count and that of the parameter
server is measured over the air (`alignment`), after which all radios of a lab speak the server's.

The server receives, and observers, whose counts are aligned as well; all others transmit: two streams of one radio
would not share a count. Parking keeps the transmit
stream running, with zeros at the lowest gain, so that its count stays known; closing ends it.
"""

import threading
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hardware.counted.rx import RxStream
from hardware.counted.tx import TxStream
from hardware.radio.contract import Radio
from hardware.radio.errors import AlignmentError, HardwareError
from hardware.radio.settings import Capabilities, Limits, RadioSettings

Epoch = tuple[int, int]
"""Of a stream's count: which stream it is, and how often it has lost samples. What was measured in another is void."""


class Reference(Protocol):
    """Whose count a transmitter has taken over: the server's radio, or what is known of it elsewhere."""

    @property
    def epoch(self) -> Epoch:
        """Of its count."""
        ...

    def now(self) -> int:
        """Its count, 0 where it is not known."""
        ...


@dataclass(frozen=True)
class _Alignment:
    """offset_samples: the reference's count minus one's own. epochs: in which it was measured, own and reference's."""

    reference: Reference
    offset_samples: int
    epochs: tuple[Epoch, Epoch]
    clock_ppm: float
    at_sample: int


class CountedRadio(Radio):
    """One radio, which receives or else transmits. A backend supplies ports, and the form that samples have in them.

    observes: it receives beside the server, and takes over the server's count.
    """

    def __init__(
        self,
        name: str,
        capabilities: Capabilities,
        limits: Limits,
        timeout_s: float,
        *,
        receives: bool,
        observes: bool = False,
    ) -> None:
        super().__init__(name, capabilities, limits, timeout_s)
        self.receives, self.transmits, self.observes = receives, not receives, observes
        self._closing = threading.RLock()
        self._wanted: RadioSettings | None = None
        self._lost = False
        self._tx: TxStream | None = None
        self._rx: RxStream | None = None
        self._next_sample = 0
        self._streams_opened = 0
        self._alignment: _Alignment | None = None

    @property
    @abstractmethod
    def lockstep(self) -> bool:
        """Whether time stands still while nobody receives."""

    @property
    @abstractmethod
    def queue_samples(self) -> int:
        """The most that can lie between what the host hands over, or has received, and the antenna."""

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether the radio can still be asked anything."""

    @abstractmethod
    def _open_tx(self, rate_hz: float, first_sample: int) -> TxStream:
        """A transmit stream that does not run yet."""

    @abstractmethod
    def _open_rx(self, rate_hz: float, first_sample: int) -> RxStream:
        """A receive stream that does not run yet."""

    @abstractmethod
    def _encode(self, samples: NDArray[np.complex64]) -> NDArray[Any]:
        """Samples as the transmit stream takes them; never the caller's own array."""

    @abstractmethod
    def _decode(self, raw: NDArray[Any]) -> tuple[NDArray[np.complex64], int]:
        """Samples of what the receive stream gave, and how many of them clipped."""

    def now(self) -> int:
        """See `Radio.now`. A transmitter whose count is not aligned cannot send at all, and says 0."""
        if self._rx is not None:
            return self._rx.now() + self._ahead_samples
        if self._tx is None or not self.aligned or self._alignment is None:
            return 0
        return max(self._tx.now() + self._alignment.offset_samples, self._alignment.reference.now())

    @property
    def epoch(self) -> Epoch:
        """Of the count of its stream."""
        stream = self._tx or self._rx
        return (self._streams_opened, 0 if stream is None else stream.losses)

    @property
    def aligned(self) -> bool:
        """Whether its sample numbers are the server's: always true for the server."""
        if self.receives and not self.observes:
            return True
        held = self._alignment
        return held is not None and held.epochs == (self.epoch, held.reference.epoch)

    @property
    def _ahead_samples(self) -> int:
        """By which the count of what it is asked to receive is ahead of its stream's."""
        return 0 if self._alignment is None else self._alignment.offset_samples

    @property
    def clock_ppm(self) -> float:
        """How much faster than the server's its clock was found to be when it was aligned."""
        return 0.0 if self._alignment is None else self._alignment.clock_ppm

    @property
    def aligned_at(self) -> int:
        """The server's sample at which it was aligned."""
        return 0 if self._alignment is None else self._alignment.at_sample

    def send_unaligned(self, samples: NDArray[np.complex64]) -> int:
        """Send a burst as early as possible; returns the sample of its own count at which it starts."""
        self._require_open()
        super()._require_ready()
        return self._transmitting().place(self._encode(samples))

    @property
    def reference(self) -> Reference | None:
        """Whose count it has taken over."""
        return None if self._alignment is None else self._alignment.reference

    def set_alignment(
        self,
        reference: Reference,
        offset_samples: int,
        epochs: tuple[Epoch, Epoch],
        clock_ppm: float,
        at_sample: int | None = None,
    ) -> None:
        """Take over the reference's count: it is `offset_samples` more than one's own. epochs: own and reference's."""
        at_sample = reference.now() if at_sample is None else at_sample
        self._alignment = _Alignment(reference, offset_samples, epochs, clock_ppm, at_sample)

    def forget_alignment(self) -> None:
        """Count by itself again."""
        self._alignment = None

    @property
    def unsent_samples(self) -> int:
        """Until the last burst that was placed and not withdrawn has left for certain; 0 where it has."""
        stream = self._tx
        return 0 if stream is None or stream.failed else max(0, stream.unsent_samples(self.queue_samples))

    def withdraw(self) -> int:
        """See `Radio.withdraw`: what the radio itself has queued cannot be called back."""
        return 0 if self._tx is None else self._tx.clear()

    def forget_losses(self) -> None:
        """Let `check` not raise what was lost until now: whoever calls it begins anew."""
        for stream in (self._tx, self._rx):
            if stream is not None:
                stream.forget_losses()

    def check(self) -> None:
        """See `Radio.check`."""
        super().check()
        for stream in (self._tx, self._rx):
            if stream is not None:
                stream.check()

    def recover(self) -> None:
        """Reach the radio again where the connection or a stream broke; it is then as it was configured last."""
        stream = self._tx or self._rx
        broken = not self.connected or stream is None or stream.failed
        if self._wanted is None or not broken or (self._parked and not self._lost):
            return
        try:
            self.configure(self._wanted)
        except HardwareError:
            # It is parked, as far as anybody can tell, but not because somebody wanted that: there is a next time.
            self._lost = True
            raise

    def park(self) -> None:
        """See `Radio.park`."""
        self._lost = False
        super().park()

    def close(self) -> None:
        """See `Radio.close`. Several threads may close it; each returns when it is closed."""
        with self._closing:
            try:
                super().close()
            except HardwareError as error:
                raise HardwareError(f"{self.name} may not be parked, switch it off: {error}") from error

    def _require_ready(self) -> None:
        super()._require_ready()
        self._transmitting().check()
        if not self.aligned:
            raise AlignmentError(
                f"{self.name} does not count as the server does: samples were lost, or nobody has aligned it yet "
                "(OpenLab.ready)"
            )

    def _send(self, samples: NDArray[np.complex64], start_sample: int) -> None:
        held = self._alignment
        if held is None:
            raise AlignmentError(f"{self.name} is not aligned")
        self._transmitting().place(self._encode(samples), start_sample - held.offset_samples)

    def _listen(self, count: int, start_sample: int) -> tuple[NDArray[np.complex64], int]:
        if self._rx is None:
            raise HardwareError(f"{self.name} does not receive in this lab: here the ps alone does")
        return self._decode(self._rx.take(count, start_sample - self._ahead_samples, self.timeout_s))

    def _start_streams(self, rate_hz: float) -> None:
        if self._tx is not None or self._rx is not None:
            return
        self._streams_opened += 1
        if self.transmits:
            self._tx = self._open_tx(rate_hz, self._next_sample)
            self._tx.start()
        if self.receives:
            self._rx = self._open_rx(rate_hz, self._next_sample)
            self._rx.start()

    def _stop_streams(self) -> None:
        for stream in (self._tx, self._rx):
            if stream is not None:
                self._next_sample = max(self._next_sample, stream.now())
                stream.stop()
        self._tx = self._rx = None

    def _transmitting(self) -> TxStream:
        if self._tx is None:
            raise HardwareError(f"{self.name} does not transmit in this lab: here the ps only receives")
        return self._tx
