"""The transmit stream of a Pluto: zeros, and the bursts that were placed in time."""

from dataclasses import dataclass

import numpy as np

from hardware.converters import Words
from hardware.errors import LateError, TxUnderflowError
from hardware.pluto_context import TX_UNDERFLOW, PlutoContext
from hardware.pluto_settings import PlutoSettings
from hardware.pluto_stream import PlutoStream


@dataclass(frozen=True)
class _Burst:
    start: int
    words: Words

    @property
    def end(self) -> int:
        return self.start + len(self.words)


class PlutoTxStream(PlutoStream):
    """Sample numbers are the stream's own count. Back-pressure keeps it ahead of the air by what the radio queues."""

    def __init__(self, context: PlutoContext, settings: PlutoSettings, rate_hz: float, first_sample: int) -> None:
        warm_up_blocks = settings.kernel_buffers + 1
        super().__init__(context, context.tx_core, settings, rate_hz, first_sample, TX_UNDERFLOW, warm_up_blocks)
        self._bursts: list[_Burst] = []
        self._words = np.zeros((self.block, 2), np.int16)
        # Nothing is placed where losses would not be seen.
        self._busy_until = self._watched_from = first_sample + (warm_up_blocks + 1) * self.block

    @property
    def _patient(self) -> bool:
        # In lockstep a full queue stays full until somebody receives.
        return self._lockstep

    def now(self) -> int:
        """The first sample that is neither handed over nor part of a burst."""
        with self._changed:
            return max(self._count, self._busy_until)

    def place(self, words: Words, start: int | None = None) -> int:
        """Let words (n, 2) leave from sample `start` on, or as early as possible; returns where.

        `LateError` where the sample was handed over or belongs to another burst.
        """
        with self._changed:
            self._raise_failure()
            first = max(self._count, self._busy_until)
            if start is not None and start < first:
                raise LateError(
                    f"{self.context.name} cannot send {first - start} samples ago: that part of its stream has gone; "
                    "raise pluto.lead_s"
                )
            burst = _Burst(first if start is None else start, words)
            self._bursts.append(burst)
            self._busy_until = burst.end
            return burst.start

    def clear(self) -> int:
        """Forget all bursts, the rest of one that has begun included; returns how many."""
        with self._changed:
            count = len(self._bursts)
            self._bursts.clear()
            self._busy_until = self._watched_from
            return count

    def check(self) -> None:
        """Raise what went wrong: always for a stream that has ended, once for lost samples."""
        self.poll()
        with self._changed:
            self._raise_failure()
            if self._lost_how:
                how, self._lost_how = self._lost_how, ""
                raise TxUnderflowError(
                    f"{self.context.name} ran out of samples ({how}): what it sent is damaged, its count is broken"
                )

    def _move(self) -> None:
        words = self._words
        words[...] = 0
        with self._changed:
            start, end = self._count, self._count + self.block
            for burst in self._bursts:
                low, high = max(start, burst.start), min(end, burst.end)
                if low < high:
                    words[low - start : high - start] = burst.words[low - burst.start : high - burst.start]
            self._bursts = [burst for burst in self._bursts if burst.end > end]
            # Counted before it is handed over: from here on nothing can be placed into it.
            self._count = end
        self._buffer.write(words.view(np.uint8).reshape(-1))
        self._transfer("sending", self._buffer.push)
