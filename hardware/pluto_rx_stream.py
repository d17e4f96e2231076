"""The receive stream of a Pluto: a history of what came, addressed by its count."""

import time
from collections import deque

import numpy as np

from hardware.converters import Words
from hardware.errors import LateError, RadioTimeoutError, RxOverflowError
from hardware.pluto_context import RX_OVERFLOW, PlutoContext
from hardware.pluto_settings import PlutoSettings
from hardware.pluto_stream import PlutoStream

# libiio's own time-out shall come first: it says more.
_SLACK_S = 1.0


class PlutoRxStream(PlutoStream):
    """It reads always, and forgets what nobody takes within its history.

    On an emulator in lockstep it reads only what is asked for, so that simulated time stands still in between.
    """

    def __init__(self, context: PlutoContext, settings: PlutoSettings, rate_hz: float, first_sample: int) -> None:
        super().__init__(context, context.rx_core, settings, rate_hz, first_sample, RX_OVERFLOW, warm_up_blocks=1)
        self._history = max(round(settings.history_s * rate_hz), 2 * self.block)
        self._blocks: deque[tuple[int, Words]] = deque()
        self._new: Words = np.empty((0, 2), np.int16)
        self._taken_until = first_sample
        self._kept_from = first_sample
        self._wanted_until = first_sample

    @property
    def _patient(self) -> bool:
        return False

    def now(self) -> int:
        """The first sample that has not come yet."""
        with self._changed:
            return self._count

    def take(self, count: int, start: int, timeout_s: float) -> Words:
        """Words (count, 2) from sample `start` on. What came before `start` and was not taken is forgotten."""
        end = start + count
        deadline = time.monotonic() + timeout_s + _SLACK_S
        with self._changed:
            if start < self._taken_until:
                raise LateError(
                    f"{self.context.name} cannot receive from sample {start} on: "
                    f"samples up to {self._taken_until} are gone"
                )
            self._wanted_until = max(self._wanted_until, end)
            self._changed.notify_all()
            while True:
                self._raise_loss()
                if start < self._kept_from:
                    raise RxOverflowError(
                        f"{self.context.name} lost samples {start} to {self._kept_from}: nobody received them in time"
                    )
                if self._count >= end:
                    break
                self._raise_failure()
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    raise RadioTimeoutError(
                        f"{self.context.name} gave no samples up to {end} within {timeout_s + _SLACK_S:g} s: "
                        f"its stream stands at {self._count}"
                    )
                self._changed.wait(remaining_s)
            words = self._cut(start, end)
            self._taken_until = end
            self._forget(end)
            return words

    def _raise_loss(self) -> None:
        if self._lost_how:
            how, self._lost_how = self._lost_how, ""
            # What is kept may lie before or after the gap.
            self._forget(self._count)
            raise RxOverflowError(f"{self.context.name} lost samples ({how}): its count is broken until a new sounding")

    def _cut(self, start: int, end: int) -> Words:
        words = np.empty((end - start, 2), np.int16)
        for first, block in self._blocks:
            low, high = max(start, first), min(end, first + len(block))
            if low < high:
                words[low - start : high - start] = block[low - first : high - first]
        return words

    def _forget(self, until: int) -> None:
        while self._blocks and self._blocks[0][0] + len(self._blocks[0][1]) <= until:
            self._blocks.popleft()
        self._kept_from = max(self._kept_from, until)

    def check(self) -> None:
        """Raise what went wrong: always for a stream that has ended, once for lost samples."""
        self.poll()
        with self._changed:
            self._raise_failure()
            self._raise_loss()

    def _move(self) -> None:
        if self._lockstep:
            with self._changed:
                while self._count >= self._wanted_until and not self._stopping.is_set():
                    self._changed.wait()
                if self._stopping.is_set():
                    return
        self._transfer("receiving", self._buffer.refill)
        if self._stopping.is_set():
            return
        self._new = np.frombuffer(self._buffer.read(), dtype=np.int16).reshape(-1, 2)

    def _look_for_losses(self) -> None:
        """Only then is the new block given to anybody: it may come after a gap."""
        super()._look_for_losses()
        with self._changed:
            self._blocks.append((self._count, self._new))
            self._count += len(self._new)
            if self._count - self._kept_from > self._history:
                self._forget(self._count - self._history)
            self._changed.notify_all()
