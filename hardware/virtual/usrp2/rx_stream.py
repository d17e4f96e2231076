"""A receive stream: commands, the samples that they ask for, and packets of them. Under the lab's lock.

Commands wait in a queue. One of them runs at a time: for so many samples, or until it is stopped.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hardware.virtual.usrp2.device.clock import Clock
from hardware.virtual.usrp2.wire.vrt import RX_OVERHEAD_WORDS, rx_error, rx_packets

LATE, BROKEN_CHAIN, OVERFLOW = 2, 4, 8
"""Codes of errors."""
MOST_COMMANDS = 64
_NOW, _CHAIN, _RELOAD, _STOP, _SAMPLES = 1 << 31, 1 << 30, 1 << 29, 1 << 28, (1 << 28) - 1
_DEFAULT_PACKET_SAMPLES = 363
_LONGEST_PACKET_SAMPLES = 2294
_HOLE_PACKETS = 4

Words = NDArray[np.uint32]


@dataclass(frozen=True)
class StreamCommand:
    """ticks: when, None for now. samples: how many, None for until stopped. chained: another one follows at once."""

    ticks: int | None
    samples: int | None
    chained: bool


class RxStream:
    """deliver: takes packets (n, words) to the client. complain: takes a message to it."""

    def __init__(self, stream: int, clock: Clock, deliver: Callable[[Words], None], complain: Callable[[bytes], None]):
        self._clock, self._deliver, self._complain = clock, deliver, complain
        self.stream = stream
        self.packet_samples = _DEFAULT_PACKET_SAMPLES
        self.errors = 0
        self.packets_to_lose = 0
        self.commands_to_miss = 0
        self._commands: deque[StreamCommand] = deque()
        self._running: StreamCommand | None = None
        self._left: int | None = None
        self._counter = 0
        self._ticks = 0
        self._kept: list[Words] = []
        self._kept_samples = 0
        self._hole = 0

    def set_stream(self, stream: int) -> None:
        """Number of the stream; its packets are counted from zero again."""
        self.stream, self._counter = stream, 0

    def set_packet_samples(self, samples: int) -> None:
        """Of a full packet, as far as a datagram carries them."""
        self.packet_samples = min(max(samples, 1), _LONGEST_PACKET_SAMPLES)

    def clear(self) -> None:
        """Forget all commands, and what is not sent yet."""
        self._commands.clear()
        self._running = None
        self._kept, self._kept_samples, self._hole = [], 0, 0

    def command(self, word: int, ticks: int) -> None:
        """Take a command as its registers have it."""
        if word & _STOP:
            self._commands.clear()
            if self._running is not None:
                self._finish()
            return
        samples = None if word & _RELOAD and word & _CHAIN else max(word & _SAMPLES, 1)
        if len(self._commands) < MOST_COMMANDS:
            chained = samples is not None and bool(word & _CHAIN)
            self._commands.append(StreamCommand(None if word & _NOW else ticks, samples, chained))

    @property
    def active(self) -> bool:
        """Whether samples are taken now."""
        return self._running is not None

    @property
    def busy(self) -> bool:
        """Whether samples are taken now or will be."""
        return self._running is not None or bool(self._commands)

    @property
    def finite(self) -> bool:
        """Whether what is taken, or will be next, has an end."""
        command = self._running or (self._commands[0] if self._commands else None)
        return command is not None and command.samples is not None

    @property
    def next_start(self) -> int | None:
        """The clock's count at which the next command begins, None where none waits for its time."""
        if self._running is not None or not self._commands or self._commands[0].ticks is None:
            return None
        return self._clock.count_at(self._commands[0].ticks)

    @property
    def missing(self) -> int | None:
        """Samples to the end of what is taken now; None where it has none."""
        return self._left if self._running is not None else None

    def settle(self) -> bool:
        """Begin with the next command where it is time for it; whether anything changed."""
        if self._running is not None or not self._commands:
            return False
        start = self.next_start
        if start is not None and start > self._clock.count:
            return False
        command = self._commands.popleft()
        missed = command.ticks is not None and self.commands_to_miss > 0
        if missed:
            self.commands_to_miss -= 1
        # A start between two samples is at the later one of them, which `settle` finds first.
        if missed or (start is not None and start <= self._clock.count - self._clock.step):
            self.fail(LATE)
            return True
        self._run(command, self._clock.now if command.ticks is None else command.ticks)
        return True

    def _run(self, command: StreamCommand, ticks: int) -> None:
        self._running, self._left, self._ticks = command, command.samples, ticks

    def put(self, words: Words) -> None:
        """Take the words of received samples; no more than `missing`."""
        if self._running is None:
            return
        if self._hole:
            lost = min(self._hole, words.size)
            self._hole -= lost
            self._ticks += lost * self._clock.step
            words = words[lost:]
        self._kept.append(words)
        self._kept_samples += words.size
        if self._left is not None:
            self._left -= words.size
        if self._left == 0:
            self._end_of_command()
        elif self._kept_samples >= self.packet_samples:
            self._emit()

    def _end_of_command(self) -> None:
        if self._running is not None and self._running.chained:
            if self._commands:
                command = self._commands.popleft()
                self._running, self._left = command, command.samples
                self._emit()
                return
            self.break_chain()
            return
        self._finish()

    def _finish(self) -> None:
        self._emit(end_of_burst=True)
        self._running = None

    def fail(self, code: int) -> None:
        """Say that something went wrong, and stop."""
        self.errors += 1
        self.clear()
        # Messages are not counted.
        self._complain(rx_error(self.stream, self._counter, self._clock.now, code))

    def break_chain(self) -> None:
        """Stop as if a command had ended before the next one came."""
        if self._running is not None:
            self._finish()
            self.fail(BROKEN_CHAIN)

    def overflow(self) -> None:
        """Say that samples were lost inside the box. What has no end goes on after a hole, the rest stops."""
        if self._running is None:
            return
        if self._running.samples is not None:
            self.fail(OVERFLOW)
            return
        self.errors += 1
        self._emit()
        self._ticks += self._kept_samples * self._clock.step
        self._kept, self._kept_samples = [], 0
        self._hole = _HOLE_PACKETS * self.packet_samples
        self._complain(rx_error(self.stream, self._counter, self._clock.now, OVERFLOW))

    def _emit(self, *, end_of_burst: bool = False) -> None:
        """Deliver full packets, and at the end of a burst all."""
        words = np.concatenate(self._kept) if self._kept else np.empty(0, np.uint32)
        full = words.size // self.packet_samples
        rest = words[full * self.packet_samples :]
        if full:
            whole = words[: full * self.packet_samples].reshape(full, self.packet_samples)
            self._packets(whole, end_of_burst=end_of_burst and not rest.size)
        if end_of_burst and rest.size:
            self._packets(rest[np.newaxis], end_of_burst=True)
            rest = rest[:0]
        self._kept, self._kept_samples = ([rest] if rest.size else []), rest.size

    def _packets(self, words: Words, *, end_of_burst: bool) -> None:
        count, samples = words.shape
        step = self._clock.step
        ticks = np.uint64(self._ticks) + np.arange(count, dtype=np.uint64) * np.uint64(samples * step)
        packets = rx_packets(words, self.stream, self._counter, ticks, end_of_burst)
        self._ticks += count * samples * step
        self._counter += count
        lost = min(self.packets_to_lose, count)
        self.packets_to_lose -= lost
        if lost < count:
            self._deliver(packets[lost:])

    @property
    def datagram_bytes(self) -> int:
        """Of a full packet."""
        return 4 * (self.packet_samples + RX_OVERHEAD_WORDS)
