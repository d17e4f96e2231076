"""The receive stream of a box: a history of what came, by the ticks that are on every packet.

What is lost leaves a gap of known place and size: whoever asks for samples around it is told, everybody else is not.

A stream begins at the tick of a sample. One that begins "now" would have its samples between those of the bursts, and
so libuhd begins it again after an overflow: it is then stopped, and begun once more at a tick.
"""

import threading
import time
from collections import deque
from typing import Any

import numpy as np

from hardware.radio.errors import (
    BrokenChainError,
    HardwareError,
    LateError,
    LostPacketError,
    RadioTimeoutError,
    RxOverflowError,
)
from hardware.usrp.converters import Words
from hardware.usrp.device import UsrpDevice
from hardware.usrp.ticks import Ticks

_SLICE_S = 0.1
_JOIN_S = 5.0
# Samples that are asked of libuhd at once, as a time.
_BLOCK_S = 5e-3
_LEAST_BLOCK = 4096
_SLACK_S = 1.0
# From telling a box to receive to the tick at which it does; longer where that was too late.
_START_LEAD_S = 2e-3
_STARTS = 8


class CaptureStream:
    """It reads always, and forgets what nobody takes within its history.

    In lockstep it reads only what is asked for, so that simulated time stands still in between.
    """

    def __init__(
        self, device: UsrpDevice, ticks: Ticks, history_samples: int, timeout_s: float, *, lockstep: bool
    ) -> None:
        self.name, self._device, self._ticks = device.name, device, ticks
        self._timeout_s, self._lockstep = timeout_s, lockstep
        uhd = device.uhd
        rate_hz = ticks.tick_rate_hz / ticks.per_sample
        self._block = max(_LEAST_BLOCK, round(_BLOCK_S * rate_hz))
        self._history = max(history_samples, 2 * self._block)
        self._streamer: Any = device.ask(
            "opening a receive stream", lambda usrp: usrp.get_rx_stream(uhd.usrp.StreamArgs("sc16", "sc16"))
        )
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._pieces: deque[tuple[int, Words]] = deque()
        self._gaps: deque[tuple[int, int, HardwareError]] = deque()
        self._why: HardwareError | None = None
        self._unsaid: HardwareError | None = None
        self._failure: HardwareError | None = None
        self._count: int | None = None
        self._first: int | None = None
        self._awaited_from: int | None = None
        self._taken_until = self._kept_from = self._wanted_until = 0
        self._thread = threading.Thread(target=self._run, name=f"{self.name} captures", daemon=True)
        self._begin = self._begins = 0
        self._start()
        self._thread.start()
        if lockstep:
            self._wait_for_beginning()

    def _start(self) -> None:
        """Receive from the tick of a sample on."""
        uhd = self._device.uhd
        lead_s = _START_LEAD_S * 2**self._begins
        lead = max(1, round(lead_s * self._ticks.tick_rate_hz / self._ticks.per_sample))
        self._begin = self._ticks.sample_at(self._device.get("time_now")) + lead
        self._begins += 1
        command = uhd.types.StreamCMD(uhd.types.StreamMode.start_cont)
        command.stream_now, command.time_spec = False, self._ticks.time_of(self._begin)
        self._device.ask("starting to receive", lambda _: self._streamer.issue_stream_cmd(command))

    def _wait_for_beginning(self) -> None:
        """Time goes on until then, and stands still as soon as the socket is full of what nobody has asked for."""
        with self._changed:
            self._changed.wait_for(lambda: self._count is not None or self.failed, self._timeout_s + _SLACK_S)

    def _stop_box(self) -> None:
        command = self._device.uhd.types.StreamCMD(self._device.uhd.types.StreamMode.stop_cont)
        self._device.ask("ceasing to receive", lambda _: self._streamer.issue_stream_cmd(command))

    @property
    def failed(self) -> bool:
        """Whether it has ended by itself."""
        return self._failure is not None

    def take(self, count: int, start: int) -> Words:
        """`count` words from sample `start` on. What came before `start` and was not taken is forgotten."""
        end = start + count
        with self._changed:
            if start < self._taken_until:
                raise LateError(
                    f"{self.name} cannot receive from sample {start} on: samples up to {self._taken_until} are gone"
                )
            self._wanted_until = max(self._wanted_until, end)
            self._awaited_from = start
            self._changed.notify_all()
            try:
                self._wait_for(start, end)
            finally:
                self._awaited_from = None
            words = self._cut(start, end)
            self._taken_until = end
            self._forget(end)
            return words

    def raise_loss(self) -> None:
        """Raise what went wrong: always for a stream that has ended, once for lost samples."""
        with self._changed:
            if self._failure is not None:
                raise type(self._failure)(str(self._failure)) from self._failure
            if self._unsaid is not None:
                error, self._unsaid = self._unsaid, None
                raise error

    def forget_loss(self) -> None:
        """Let `raise_loss` not speak of what was lost until now."""
        with self._changed:
            self._unsaid = None

    def _wait_for(self, start: int, end: int) -> None:
        """Until all samples before `end` have come, or are known not to. The deadline moves with the stream."""
        deadline_s, seen = time.monotonic() + self._timeout_s + _SLACK_S, self._count
        while True:
            self._raise_missing(start, end)
            if self._count is not None and self._count >= end:
                return
            if self._failure is not None:
                raise type(self._failure)(str(self._failure)) from self._failure
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                # It may have been switched off and on again, and know nothing of its settings: it is opened anew.
                self._device.fail(f"it gave no samples for {self._timeout_s + _SLACK_S:g} s")
                raise RadioTimeoutError(
                    f"{self.name} gave no samples up to {end} within {self._timeout_s + _SLACK_S:g} s: its stream "
                    f"stands at {self._count}"
                )
            self._changed.wait(left_s)
            if self._lockstep and self._count != seen:
                deadline_s, seen = time.monotonic() + self._timeout_s + _SLACK_S, self._count

    def _raise_missing(self, start: int, end: int) -> None:
        for low, high, error in self._gaps:
            if low < end and start < high:
                self._unsaid = None
                raise type(error)(str(error)) from error
        if self._first is not None and start < self._first:
            raise LateError(f"{self.name} listens since sample {self._first}: {start} was before that")
        if start < self._kept_from:
            raise RxOverflowError(
                f"{self.name} lost samples {start} to {self._kept_from}: nobody received them in time"
            )

    def _cut(self, start: int, end: int) -> Words:
        pieces = []
        for first, words in self._pieces:
            low, high = max(start, first), min(end, first + len(words))
            if low < high:
                pieces.append(words[low - first : high - first])
        return np.concatenate(pieces)

    def _forget(self, until: int) -> None:
        while self._pieces and self._pieces[0][0] + len(self._pieces[0][1]) <= until:
            self._pieces.popleft()
        while self._gaps and self._gaps[0][1] <= until:
            self._gaps.popleft()
        self._kept_from = max(self._kept_from, until)

    def stop(self) -> None:
        """Let the box stop sending, and end the thread. A second call does nothing."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(_JOIN_S)
        try:
            if self._device.usable:
                self._stop_box()
        finally:
            self._streamer = None

    def _run(self) -> None:
        metadata = self._device.uhd.types.RXMetadata()
        try:
            while not self._stopping.is_set():
                size = self._size()
                if size:
                    words = np.empty(size, np.int32)
                    count = self._streamer.recv(words, metadata, _SLICE_S)
                    # Where packets are lost little comes at once: it is not to keep all of the block's memory.
                    self._came(words if count == size else words[:count].copy(), metadata)
        except HardwareError as error:
            self._end(error)
        except RuntimeError as error:
            self._end(self._device.explained("receiving", error, _SLICE_S))

    def _size(self) -> int:
        """How many samples to ask for now; none where it is to stop."""
        if not self._lockstep:
            return self._block
        with self._changed:
            while self._count is not None and self._count >= self._wanted_until:
                if self._stopping.is_set():
                    return 0
                self._changed.wait()
            if self._count is None:
                return _LEAST_BLOCK
            return min(self._block, self._wanted_until - self._count)

    def _came(self, words: Words, metadata: Any) -> None:
        code = str(metadata.error_code).rpartition(".")[2]
        if len(words):
            first = self._ticks.sample_at(metadata.time_spec)
            if self._ticks.between(metadata.time_spec):
                self._begin_again(first)
            else:
                self._begins = 0
                self._keep(words, first)
        if code == "overflow":
            lost = bool(metadata.out_of_sequence)
            kind = LostPacketError if lost else RxOverflowError
            how = "packets were lost on the way" if lost else "the host took them too slowly"
            self._why = kind(f"{self.name} lost samples: {how}")
        elif code == "broken_chain":
            raise BrokenChainError(f"{self.name} ceased to receive: a command ended before the next one came")
        elif code == "late":
            if self._begins >= _STARTS:
                raise LateError(f"{self.name} was told too late to receive, {_STARTS} times")
            self._start()
        elif code not in {"none", "timeout"}:
            raise HardwareError(f"{self.name} gave samples that cannot be used ({code})")

    def _begin_again(self, first: int) -> None:
        """Samples from `first` on are between those of the count. Those that come before a new beginning are, too."""
        if first < self._begin:
            return
        self._why = self._why or LostPacketError(f"{self.name} lost samples: its stream began between two of them")
        self._stop_box()
        self._start()

    def _keep(self, words: Words, first: int) -> None:
        with self._changed:
            expected = self._count
            if expected is None:
                # What is lost before the first sample was to be there since the stream began.
                expected = first if self._why is None else self._begin
                self._first = self._kept_from = expected
            if first > expected:
                why = self._why or LostPacketError(f"{self.name} lost samples")
                self._unsaid = type(why)(f"{why} ({first - expected} from {expected} on)")
                self._gaps.append((expected, first, self._unsaid))
            elif first < expected:
                raise HardwareError(f"{self.name} went back in time: from sample {expected} to {first}")
            self._why = None
            self._pieces.append((first, words))
            self._count = first + len(words)
            oldest = self._count - self._history
            if self._awaited_from is not None:
                # Who waits for the end of something longer than the history is to have its beginning, too.
                oldest = min(oldest, self._awaited_from)
            if oldest > self._kept_from:
                self._forget(oldest)
            self._changed.notify_all()

    def _end(self, error: HardwareError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()
