"""The ports of a Pluto: buffers of libiio, and how lost samples show.

What is lost shows in the core's status register, which is read with every buffer, or against the wall clock.
"""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.counted.rx import RxPort
from hardware.counted.stream import Port
from hardware.counted.tx import TxPort
from hardware.counted.watchdog import Watchdog
from hardware.pluto.context import RX_OVERFLOW, TX_UNDERFLOW, PlutoContext
from hardware.pluto.settings import PlutoSettings
from hardware.radio.errors import HardwareError

LOCKSTEP = "lockstep"


class _PlutoPort(Port):
    """Both directions."""

    _doing: str

    def __init__(
        self, context: PlutoContext, core: Any, settings: PlutoSettings, rate_hz: float, loss_bit: int, warm_up: int
    ) -> None:
        lockstep = context.virtual == LOCKSTEP
        super().__init__(context.name, settings.buffer_samples, lockstep=lockstep, warm_up_blocks=warm_up)
        self._context, self._core, self._loss_bit = context, core, loss_bit
        self._watching = False
        self._moved_samples = 0
        queue_samples = (settings.kernel_buffers + 2) * self.block_samples
        self._watchdog = None if lockstep else Watchdog(rate_hz, queue_samples)
        self._buffer = context.open_buffer(core, self.block_samples, settings.kernel_buffers, patient=self.patient)

    @property
    def usable(self) -> bool:
        """See `Port.usable`."""
        return self._context.usable

    def watch(self) -> str:
        """See `Port.watch`. The first time only forgets what the register says of the time before."""
        if not self._watching:
            self._context.clear_status(self._core)
            self._watching = True
            return ""
        missing = 0 if self._watchdog is None else self._watchdog.missing(self._moved_samples, time.monotonic())
        return self.poll() or (f"its count is {missing} samples behind the clock" if missing else "")

    def poll(self) -> str:
        """See `Port.poll`."""
        lost = self._watching and self._context.status(self._core) & self._loss_bit
        return "its status register says so" if lost else ""

    def explained(self, error: OSError, waited_s: float) -> HardwareError:
        """See `Port.explained`."""
        return self._context.explained(self._doing, error, waited_s)

    def cancel(self) -> None:
        """See `Port.cancel`."""
        self._buffer.cancel()

    def release(self, *, abandoned: bool) -> None:
        """See `Port.release`."""
        if abandoned:
            self._context.abandon(self._buffer)
        else:
            self._context.destroy_buffer(self._buffer)


class PlutoTxPort(_PlutoPort, TxPort):
    """Words (n, 2) to the air."""

    _doing = "sending"

    def __init__(self, context: PlutoContext, settings: PlutoSettings, rate_hz: float) -> None:
        super().__init__(context, context.tx_core, settings, rate_hz, TX_UNDERFLOW, settings.kernel_buffers + 1)
        self.zeros = np.zeros((self.block_samples, 2), np.int16)

    @property
    def patient(self) -> bool:
        """In lockstep a full queue stays full until somebody receives."""
        return self.lockstep

    def push(self, block: NDArray[Any], first_sample: int, burst_starts: list[int]) -> None:
        """See `TxPort.push`."""
        del first_sample, burst_starts
        self._moved_samples += self.block_samples
        self._buffer.write(block.view(np.uint8).reshape(-1))
        self._buffer.push()


class PlutoRxPort(_PlutoPort, RxPort):
    """Words (n, 2) from the air. always: they are read whether anybody has asked for them or not."""

    _doing = "receiving"

    def __init__(self, context: PlutoContext, settings: PlutoSettings, rate_hz: float, *, always: bool = False) -> None:
        self._always = always
        super().__init__(context, context.rx_core, settings, rate_hz, RX_OVERFLOW, 1)

    @property
    def patient(self) -> bool:
        """In lockstep an observer waits until the server receives."""
        return self.lockstep and self._always

    def pull(self) -> NDArray[Any]:
        """See `RxPort.pull`."""
        self._buffer.refill()
        self._moved_samples += self.block_samples
        return np.frombuffer(self._buffer.read(), dtype=np.int16).reshape(-1, 2)
