"""What a client wants to have transmitted: packets in bursts, and what becomes of them. Under the lab's lock.

A burst begins at the time of its first packet, or at once, and goes on without a gap until a packet that ends it.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hardware.virtual.shared_time import LONGEST_STEP, Samples
from hardware.virtual.usrp2.device.clock import Clock
from hardware.virtual.usrp2.wire.vrt import TxPacket, tx_report

FLOW, ACKNOWLEDGED, UNDERFLOW, OUT_OF_SEQUENCE, LATE = 0, 1, 2, 4, 8
"""Codes of reports."""
LARGEST_QUEUE_BYTES = 4 << 20
"""A client that keeps to flow control stays within a quarter of it."""
MOST_PACKETS = 8192
"""That wait: ten times of what flow control lets a client send, and empty ones count too."""
_NEXT_BURST = 1 << 2
_ENABLED = 1 << 31


class TxQueue:
    """report: takes a message to the client."""

    def __init__(self, clock: Clock, report: Callable[[bytes], None]) -> None:
        self._clock, self._report = clock, report
        self.stream = 0
        self.scale = 0.0
        self.policy = 0
        self.packets_per_update = 0
        self.packets_to_lose = 0
        self.packets_to_miss = 0
        self.underflows = self.late = self.out_of_sequence = self.sent_bursts = 0
        self.last_power = 0.0
        self._queue: deque[TxPacket] = deque()
        self._bytes = 0
        self._taken = 0
        self._active = False
        self._dropping = False
        self._next_counter = 0
        self._sequence = 0
        self._done_packets = 0
        self._reports = 0

    def set_updates(self, word: int) -> None:
        """After how many packets a client is told how far it got."""
        self.packets_per_update = word & ~_ENABLED if word & _ENABLED else 0

    def clear(self) -> None:
        """Forget everything that has not left."""
        self._queue.clear()
        self._bytes = self._taken = 0
        self._active = self._dropping = False
        # The first packet of a stream is number 0.
        self._next_counter = 0
        self._done_packets = 0

    def push(self, packet: TxPacket) -> None:
        """Take a packet that has just come, whose payload is its own."""
        if self.packets_to_lose:
            self.packets_to_lose -= 1
            return
        expected, self._next_counter = self._next_counter, (packet.counter + 1) & 0xF
        if self._bytes + len(packet.payload) > LARGEST_QUEUE_BYTES or len(self._queue) >= MOST_PACKETS:
            return
        if packet.counter != expected:
            self.out_of_sequence += 1
            self._say(OUT_OF_SEQUENCE)
            self._dropping = self._dropping or bool(self.policy & _NEXT_BURST)
            if self._dropping:
                # The hole is in the burst that waits or runs: what is there of it goes no further.
                self._forget_open_burst()
        if self._dropping:
            self._drop(packet)
            return
        self._queue.append(packet)
        self._bytes += len(packet.payload)

    def _forget_open_burst(self) -> None:
        while self._queue and not self._queue[-1].end_of_burst:
            self._finish(self._queue.pop(), quietly=True)
        if not self._queue:
            self._active, self._taken = False, 0

    def _drop(self, packet: TxPacket) -> None:
        self._bytes += len(packet.payload)
        self._finish(packet, quietly=True)
        if packet.end_of_burst:
            self._dropping = False

    @property
    def active(self) -> bool:
        """Whether a burst has begun and not ended."""
        return self._active

    @property
    def busy(self) -> bool:
        """Whether a burst has begun, or waits."""
        return self._active or bool(self._queue)

    @property
    def starved(self) -> bool:
        """Whether a burst has begun and its next samples have not come."""
        return self._active and not self._queue

    @property
    def next_start(self) -> int | None:
        """The clock's count at which the next burst begins, None where none waits for its time."""
        if not self._queue or self._taken or self._queue[0].ticks is None:
            return None
        return self._clock.count_at(self._queue[0].ticks)

    @property
    def ready(self) -> int:
        """Samples that can leave without a gap, of a burst that has begun; not counted beyond a step."""
        total = -self._taken
        if self._active:
            for number, packet in enumerate(self._queue):
                if number and packet.ticks is not None:
                    break
                total += packet.samples
                if packet.end_of_burst or total >= LONGEST_STEP:
                    break
        return max(total, 0)

    def settle(self) -> bool:
        """Begin with the next burst where it is time for it; whether anything changed."""
        if not self._queue or self._taken:
            return False
        packet = self._queue[0]
        if self._active:
            return self._go_on(packet)
        start = self.next_start
        if start is not None and start > self._clock.count:
            return False
        missed = packet.ticks is not None and self.packets_to_miss > 0
        if missed:
            self.packets_to_miss -= 1
        if missed or (start is not None and start <= self._clock.count - self._clock.step):
            self._miss()
            return True
        self._active = True
        return True

    def _go_on(self, packet: TxPacket) -> bool:
        """Nobody looks at the time of a packet within a burst, unless samples are missing before it."""
        if packet.ticks is None:
            return False
        if self._clock.count_at(packet.ticks) > self._clock.count + self._clock.step:
            self.run_dry()
            if self._dropping:
                self._dropping = False
                self._drop_waiting()
        else:
            self._queue[0] = replace(packet, ticks=None)
        return True

    def _miss(self) -> None:
        """The packet came too late: it is gone, or all of its burst."""
        self.late += 1
        self._active = False
        self._say(LATE)
        self._drop_waiting()

    def _drop_waiting(self) -> None:
        """Be done with the packet at the head of the queue, or with all of its burst and what is still to come."""
        whole_burst = bool(self.policy & _NEXT_BURST)
        while self._queue:
            packet = self._queue.popleft()
            self._finish(packet, quietly=True)
            if packet.end_of_burst or not whole_burst:
                return
        self._dropping = whole_burst

    def starve(self) -> None:
        """Let the samples of a burst that is under way count as not having come."""
        if self._active:
            self.run_dry()
            self._dropping, self._taken = False, 0
            self._drop_waiting()

    def run_dry(self) -> None:
        """Samples were due and there were none."""
        self.underflows += 1
        self._active = False
        self._dropping = bool(self.policy & _NEXT_BURST)
        self._say(UNDERFLOW)

    def take(self, count: int) -> Samples | None:
        """The next `count` <= ready samples, None for silence."""
        parts = []
        left = count
        while left:
            packet = self._queue[0]
            taken = min(packet.samples - self._taken, left)
            parts.append(packet.payload[4 * self._taken : 4 * (self._taken + taken)])
            self._taken += taken
            left -= taken
            if self._taken == packet.samples:
                self._queue.popleft()
                self._taken = 0
                self._finish(packet, ahead=count - left)
        words = np.frombuffer(b"".join(parts), ">i2")
        if not words.any():
            self.last_power = 0.0
            return None
        samples = np.empty(count, np.complex64)
        values = samples.view(np.float32)
        np.multiply(words, np.float32(self.scale), out=values, casting="same_kind")
        self.last_power = 2.0 * float(np.mean(values[:2048] * values[:2048]))
        return samples

    def skip_empty(self) -> bool:
        """Be done with packets without samples at the head of a burst that has begun; whether there were any."""
        found = False
        while self._active and self._queue and not self._queue[0].samples and self._queue[0].ticks is None:
            self._finish(self._queue.popleft())
            found = True
        return found

    def _finish(self, packet: TxPacket, *, quietly: bool = False, ahead: int = 0) -> None:
        """Be done with a packet. ahead: how many samples after this moment its last one is."""
        self._bytes -= len(packet.payload)
        self._sequence = packet.sequence
        self._done_packets += 1
        if self.packets_per_update and self._done_packets % self.packets_per_update == 0:
            self._say(FLOW, ahead)
        if packet.end_of_burst and not quietly:
            self._active = False
            self.sent_bursts += 1
            self._say(ACKNOWLEDGED, ahead)

    def _say(self, code: int, ahead: int = 0) -> None:
        ticks = self._clock.now + ahead * self._clock.step
        self._report(tx_report(self.stream, self._reports, ticks, code, self._sequence))
        self._reports += 1
