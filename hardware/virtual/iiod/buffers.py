"""Open buffers: queues of blocks between a client's connection and the air. Everything here is under the lab's lock.

A block is what the client asked for when it opened the buffer; the queue holds as many blocks as the client's
BUFFERS_COUNT. Positions are relative to the buffer, so a radio may change its rate, and with it the air, while
buffers are open.
"""

import threading
from collections import deque

import numpy as np

from hardware.virtual.iiod.chip.words import Words
from hardware.virtual.shared_time import LONGEST_STEP, Samples

_LONGEST_TAKE = LONGEST_STEP + LONGEST_STEP // 256


class RxBuffer:
    """What a reader has not taken yet, and the block that it is taking. mask: 1 for I, 2 for Q, 3 for both.

    A block leaves the queue when the first of it is taken, before the client gets it: whatever the client does upon
    getting it finds time already advanced.
    """

    def __init__(self, block_samples: int, blocks: int, mask: int, lock: threading.Lock) -> None:
        self.mask = mask
        self.block_samples = block_samples
        self.blocks = blocks
        self.arrived = threading.Condition(lock)
        self.closed = False
        self.drops = 0
        self._channels = slice(None) if mask == 3 else slice(mask - 1, mask)
        channels = 2 if mask == 3 else 1
        self.block_bytes = 2 * channels * block_samples
        # One more than the queue holds: the block that is being taken.
        self._ring = np.empty((blocks + 1, block_samples, channels), np.int16)
        self._hand = memoryview(b"")
        self._first = 0
        self._complete = 0
        self._filled = 0
        self._dropping = False

    @staticmethod
    def bytes_of(block_samples: int, blocks: int) -> int:
        """Memory that such a queue needs."""
        return 4 * block_samples * (blocks + 1)

    @property
    def missing(self) -> int:
        """Samples to the end of the block that is being filled; never 0."""
        return self.block_samples - self._filled

    @property
    def has_room(self) -> bool:
        """Whether the next samples can be kept."""
        return self._filled > 0 or self._complete < self.blocks

    def put(self, words: Words) -> int:
        """Append words (n, 2) with n <= missing; returns how many blocks were lost by that, 0 or 1."""
        if self._filled == 0:
            self._dropping = not self.has_room
        end = self._filled + len(words)
        if not self._dropping:
            block = (self._first + self._complete) % len(self._ring)
            self._ring[block, self._filled : end] = words[:, self._channels]
        self._filled = end % self.block_samples
        if self._filled:
            return 0
        if self.drops:
            self.drops -= 1
            return 1
        if self._dropping:
            return 1
        self._complete += 1
        self.arrived.notify_all()
        return 0

    @property
    def ready(self) -> bool:
        """Whether there is something to take."""
        return bool(self._hand) or self._complete > 0

    def take(self, most_bytes: int) -> memoryview:
        """The next bytes, of one block; they stay what they are until the next call."""
        if not self._hand:
            self._hand = memoryview(self._ring[self._first].reshape(-1).view(np.uint8))
            self._first = (self._first + 1) % len(self._ring)
            self._complete -= 1
        taken, self._hand = self._hand[:most_bytes], self._hand[most_bytes:]
        return taken


class TxBuffer:
    """Blocks that have not left yet."""

    cyclic = False

    def __init__(self, block_samples: int, blocks: int, mask: int, lock: threading.Lock) -> None:
        self.mask = mask
        self.block_samples = block_samples
        self.left = threading.Condition(lock)
        self.closed = False
        self._most = blocks
        self._queue: deque[tuple[Samples | None, int]] = deque()
        self._sent = 0
        self._dry = True
        self.last: Samples | None = None

    @property
    def bytes(self) -> int:
        """Memory that a full queue needs, its samples as words and as complex numbers."""
        return 12 * self.block_samples * (self._most + 1)

    @property
    def has_room(self) -> bool:
        """Whether another block can be queued."""
        return len(self._queue) < self._most

    @property
    def ready(self) -> int:
        """Samples left of the block that is being sent; 0 where there is none."""
        return self._queue[0][1] - self._sent if self._queue else 0

    def push(self, samples: Samples | None, count: int) -> None:
        """Queue a block of `count` samples; None is silence."""
        self._queue.append((samples, count))
        self._dry = False

    def take(self, count: int) -> Samples | None:
        """The next `count` <= ready samples, None for silence."""
        samples, length = self._queue[0]
        first, self._sent = self._sent, self._sent + count
        if self._sent == length:
            self._queue.popleft()
            self._sent = 0
            self.left.notify_all()
        self.last = samples
        return None if samples is None else samples[first : first + count]

    def run_dry(self) -> bool:
        """Note that samples were due and there were none; whether that is news."""
        news, self._dry = not self._dry, True
        if news:
            self.last = None
        return news


class CyclicTxBuffer:
    """One block, sent again and again from the moment it arrives."""

    cyclic = True

    def __init__(self, block_samples: int, mask: int, lock: threading.Lock) -> None:
        self.mask = mask
        self.block_samples = block_samples
        self.left = threading.Condition(lock)
        self.closed = False
        self.last: Samples | None = None
        self._repeated: Samples | None = None
        self._length = 0
        self._next = 0

    @property
    def bytes(self) -> int:
        """Memory that it needs."""
        return 20 * self.block_samples + 8 * _LONGEST_TAKE

    @property
    def has_room(self) -> bool:
        """Whether it has not got its block yet."""
        return self._length == 0

    def push(self, samples: Samples | None, count: int) -> None:
        """Begin with the block; None is silence."""
        self.last, self._length = samples, count
        if samples is not None:
            # So far that no step has to be put together from two rounds.
            self._repeated = np.resize(samples, count + _LONGEST_TAKE)

    def take(self, count: int) -> Samples | None:
        """The next `count` samples, None for silence."""
        if self._repeated is None:
            return None
        first = self._next
        self._next = (first + count) % self._length
        return self._repeated[first : first + count]
