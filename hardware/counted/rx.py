"""The receive stream of a radio: a history of what came, addressed by its count."""

import time
from abc import abstractmethod
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.counted.stream import Port, SampleStream
from hardware.radio.errors import LateError, RadioTimeoutError, RxOverflowError

# The port's own time-out shall come first: it says more.
_SLACK_S = 1.0


class RxPort(Port):
    """A port that samples come from."""

    @abstractmethod
    def pull(self) -> NDArray[Any] | None:
        """The next samples, counted along the first axis, waiting for them. None where `cancel` ended it."""

    def ask_for(self, until_sample: int) -> None:
        """Somebody waits for the samples before this one, counted by the stream: in lockstep time may move to it."""
        del until_sample


class RxStream(SampleStream):
    """It reads always, and forgets what nobody takes within its history.

    In lockstep it reads only what is asked for, so that simulated time stands still in between. An observer's does not,
    with `always`: time is for the server to move.
    """

    def __init__(self, port: RxPort, history_samples: int, first_sample: int, *, always: bool = False) -> None:
        super().__init__(port, first_sample)
        self._port, self._on_demand = port, port.lockstep and not always
        self._history = max(history_samples, 2 * self.block)
        self._blocks: deque[tuple[int, NDArray[Any]]] = deque()
        self._new: NDArray[Any] | None = None
        self._taken_until = first_sample
        self._kept_from = first_sample
        self._wanted_until = first_sample

    def now(self) -> int:
        """The first sample that has not come yet."""
        with self._changed:
            return self._count

    def take(self, count: int, start: int, timeout_s: float) -> NDArray[Any]:
        """`count` samples from `start` on. What came before `start` and was not taken is forgotten."""
        end = start + count
        deadline = time.monotonic() + timeout_s + _SLACK_S
        with self._changed:
            if start < self._taken_until:
                raise LateError(
                    f"{self.name} cannot receive from sample {start} on: samples up to {self._taken_until} are gone"
                )
            self._wanted_until = max(self._wanted_until, end)
            self._port.ask_for(self._wanted_until)
            self._changed.notify_all()
            while True:
                self._raise_loss()
                if start < self._kept_from:
                    raise RxOverflowError(
                        f"{self.name} lost samples {start} to {self._kept_from}: nobody received them in time"
                    )
                if self._count >= end:
                    break
                self._raise_failure()
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    raise RadioTimeoutError(
                        f"{self.name} gave no samples up to {end} within {timeout_s + _SLACK_S:g} s: "
                        f"its stream stands at {self._count}"
                    )
                self._changed.wait(remaining_s)
            samples = self._cut(start, end)
            self._taken_until = end
            self._forget(end)
            return samples

    def _raise_loss(self) -> None:
        if self._lost_how:
            how, self._lost_how = self._lost_how, ""
            # What is kept may lie before or after the gap.
            self._forget(self._count)
            raise RxOverflowError(f"{self.name} lost samples ({how}): its count is broken until a new sounding")

    def _cut(self, start: int, end: int) -> NDArray[Any]:
        pieces = []
        for first, block in self._blocks:
            low, high = max(start, first), min(end, first + len(block))
            if low < high:
                pieces.append(block[low - first : high - first])
        return np.concatenate(pieces)

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
        if self._on_demand:
            with self._changed:
                while self._count >= self._wanted_until and not self._stopping.is_set():
                    self._changed.wait()
                if self._stopping.is_set():
                    return
        self._new = self._port.pull()

    def _look_for_losses(self) -> None:
        """Only then is the new block given to anybody: it may come after a gap."""
        super()._look_for_losses()
        new, self._new = self._new, None
        if new is None:
            return
        with self._changed:
            self._blocks.append((self._count, new))
            self._count += len(new)
            if self._count - self._kept_from > self._history:
                self._forget(self._count - self._history)
            self._changed.notify_all()
