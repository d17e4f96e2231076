"""The transmit stream of a radio: zeros, and the bursts that were placed in time."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from hardware.counted.stream import Port, SampleStream
from hardware.radio.errors import LateError, TxUnderflowError


class TxPort(Port):
    """zeros: a block of silence, in whatever form the port takes samples; they are counted along the first axis."""

    zeros: NDArray[Any]

    @abstractmethod
    def push(self, block: NDArray[Any], first_sample: int, burst_starts: list[int]) -> None:
        """Hand a block over that begins at `first_sample`, waiting for room. It is the caller's again on return.

        burst_starts: the samples in it at which bursts begin.
        """


@dataclass(frozen=True)
class _Burst:
    start: int
    samples: NDArray[Any]

    @property
    def end(self) -> int:
        return self.start + len(self.samples)


class TxStream(SampleStream):
    """Sample numbers are the stream's own count. Back-pressure keeps it ahead of the air by what the radio queues."""

    def __init__(self, port: TxPort, first_sample: int) -> None:
        super().__init__(port, first_sample)
        self._port = port
        self._bursts: list[_Burst] = []
        self._block = port.zeros.copy()
        # Nothing is placed where losses would not be seen.
        self._busy_until = self._watched_from = first_sample + (port.warm_up_blocks + 1) * self.block
        self._last_end = first_sample

    def now(self) -> int:
        """The first sample that is neither handed over nor part of a burst."""
        with self._changed:
            return max(self._count, self._busy_until)

    def place(self, samples: NDArray[Any], start: int | None = None) -> int:
        """Let samples leave from sample `start` on, or as early as possible; returns where.

        `LateError` where the sample was handed over or belongs to another burst.
        """
        with self._changed:
            self._raise_failure()
            first = max(self._count, self._busy_until)
            if start is not None and start < first:
                raise LateError(
                    f"{self.name} cannot send {first - start} samples ago: that part of its stream has gone; "
                    "raise lead_s of its backend"
                )
            burst = _Burst(first if start is None else start, samples)
            self._bursts.append(burst)
            self._busy_until = self._last_end = burst.end
            return burst.start

    def unsent_samples(self, queue_samples: int) -> int:
        """How far the count must go until all that was placed has left. queue_samples: held after this stream."""
        with self._changed:
            return self._last_end + queue_samples - self._count

    def clear(self) -> int:
        """Forget all bursts, the rest of one that has begun included; returns how many."""
        with self._changed:
            count = len(self._bursts)
            self._bursts.clear()
            self._busy_until, self._last_end = self._watched_from, min(self._last_end, self._count)
            return count

    def check(self) -> None:
        """Raise what went wrong: always for a stream that has ended, once for lost samples."""
        self.poll()
        with self._changed:
            self._raise_failure()
            if self._lost_how:
                how, self._lost_how = self._lost_how, ""
                raise TxUnderflowError(
                    f"{self.name} ran out of samples ({how}): what it sent is damaged, its count is broken"
                )

    def _move(self) -> None:
        block = self._block
        block[...] = 0
        with self._changed:
            start, end = self._count, self._count + self.block
            for burst in self._bursts:
                low, high = max(start, burst.start), min(end, burst.end)
                if low < high:
                    block[low - start : high - start] = burst.samples[low - burst.start : high - burst.start]
            burst_starts = [burst.start for burst in self._bursts if start <= burst.start < end]
            self._bursts = [burst for burst in self._bursts if burst.end > end]
            # Counted before it is handed over: from here on nothing can be placed into it.
            self._count = end
        self._port.push(block, start, burst_starts)
