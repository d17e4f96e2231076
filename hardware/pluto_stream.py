"""What both directions of a Pluto have in common: a buffer, the thread that keeps it moving, and the count it keeps.

A stream counts samples as they pass libiio. The count is that of the air, up to a constant, for as long as nothing is
lost. What is lost shows in the core's status register, which is read with every buffer, or against the wall clock.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from hardware.errors import HardwareError
from hardware.pluto_context import PlutoContext
from hardware.pluto_settings import PlutoSettings
from hardware.stream_clock import StreamClock

LOCKSTEP = "lockstep"
_JOIN_S = 0.5
_CANCELLED_JOIN_S = 5.0


class PlutoStream(ABC):
    """A running stream. first_sample: where its count begins, so that a restarted stream never counts backwards.

    losses: grows whenever samples were lost; what somebody knew about the count before does not hold after.
    warm_up_blocks: until the queues are full for the first time. What is lost until then nobody has counted on.
    """

    def __init__(
        self,
        context: PlutoContext,
        core: Any,
        settings: PlutoSettings,
        rate_hz: float,
        first_sample: int,
        loss_bit: int,
        warm_up_blocks: int,
    ) -> None:
        self.context = context
        self.block = settings.buffer_samples
        self.losses = 0
        self._core, self._loss_bit, self._warm_up_blocks = core, loss_bit, warm_up_blocks
        self._count = first_sample
        self._moved_blocks = 0
        self._watching = False
        self._lost_how = ""
        self._failure: HardwareError | None = None
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._lockstep = context.virtual == LOCKSTEP
        queue_samples = (settings.kernel_buffers + 2) * self.block
        self._clock = None if self._lockstep else StreamClock(rate_hz, queue_samples)
        self._thread = threading.Thread(target=self._run, name=f"{context.name} {type(self).__name__}", daemon=True)
        self._buffer = context.open_buffer(core, self.block, settings.kernel_buffers, patient=self._patient)

    @property
    @abstractmethod
    def _patient(self) -> bool:
        """Whether calls on the buffer may wait without limit."""

    @abstractmethod
    def _move(self) -> None:
        """Pass one block through the buffer; called by the stream's thread alone."""

    @property
    def failed(self) -> bool:
        """Whether it has ended by itself."""
        return self._failure is not None

    def start(self) -> None:
        """Let it run."""
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._move()
                if self._stopping.is_set():
                    return
                self._moved_blocks += 1
                self._look_for_losses()
        except HardwareError as error:
            if not self._stopping.is_set():
                self._failure = error
        except BaseException as error:
            self._failure = HardwareError(f"{self.context.name}: its stream ended: {error!r}")
            raise
        finally:
            with self._changed:
                self._changed.notify_all()

    def _transfer(self, doing: str, call: Callable[[], None]) -> None:
        """Do a transfer of the buffer; one that `stop` has cancelled is no failure."""
        started = time.monotonic()
        try:
            call()
        except OSError as error:
            if not self._stopping.is_set():
                raise self.context.explained(doing, error, time.monotonic() - started) from error

    def _look_for_losses(self) -> None:
        if self._moved_blocks < self._warm_up_blocks:
            return
        if not self._watching:
            self.context.clear_status(self._core)
            self._watching = True
            return
        self.poll()
        counted = self._moved_blocks * self.block
        missing = 0 if self._clock is None else self._clock.missing(counted, time.monotonic())
        if missing:
            self._lose(f"its count is {missing} samples behind the clock")

    def poll(self) -> None:
        """Look at the status register now; any thread may."""
        if self._watching and self.context.status(self._core) & self._loss_bit:
            self._lose("its status register says so")

    def forget_losses(self) -> None:
        """Do not report what was lost until now; `losses` stays."""
        with self._changed:
            self._lost_how = ""

    def _lose(self, how: str) -> None:
        with self._changed:
            self.losses += 1
            self._lost_how = how
            self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure)) from self._failure

    def stop(self) -> None:
        """End the thread and destroy the buffer, whatever state they are in. A second call does nothing."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        if self._buffer is None:
            return
        started = self._thread.ident is not None
        if started:
            self._thread.join(_JOIN_S)
        if self._patient or self._thread.is_alive() or self.failed or not self.context.usable:
            # Ends a call that waits, and lets the buffer go without asking the other side, which may not answer.
            self._buffer.cancel()
            if started:
                self._thread.join(_CANCELLED_JOIN_S)
        if self._thread.is_alive():
            self.context.abandon(self._buffer)
        else:
            self.context.destroy_buffer(self._buffer)
        self._buffer = None
