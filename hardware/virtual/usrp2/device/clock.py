"""The time of a radio in ticks, and what is set at its next pulse per second.

A radio counts ticks of its own crystal from when all radios were switched on. Its time is that count plus an offset.
"""

import math

from hardware.virtual.usrp2.device.registers import TICKS_PER_S

_MASK = (1 << 64) - 1


class Clock:
    """count: ticks that have passed, moved from outside in steps of `step`. ratio: ticks per tick of an exact clock.

    The pulses of all radios come from one source, at whole seconds of an exact clock. has_pulse: whether they arrive.
    pulse_delay: ticks by which they come later, less than a second.
    leader: the clock at the other end of a MIMO cable, None at the end that leads. cabled: whether the cable is there.
    follows: whether the time is to come from there.
    """

    def __init__(self, ratio: float) -> None:
        self.count = 0
        self.step = 1
        self.ratio = ratio
        self.offset = 0
        self.has_pulse = True
        self.pulse_delay = 0
        self.leader: Clock | None = None
        self.cabled = True
        self.follows = False
        self._waiting: tuple[int, int] | None = None
        self._last_pulse = 0

    @property
    def now(self) -> int:
        """The time."""
        return (self.count + self.offset) & _MASK

    def count_at(self, time: int) -> int:
        """The count at which the time is `time`, as it is set now."""
        return time - self.offset

    def set_now(self, time: int) -> None:
        """From now on."""
        self.offset = time - self.count

    def follow(self) -> None:
        """Take the time over that comes through the cable, where it is to come from there."""
        if self.follows and self.cabled and self.leader is not None:
            # Of crystals that agree the counts do too, at other rates between two samples.
            ahead = 0 if self.leader.ratio == self.ratio else self.leader.count - self.count
            self.offset = self.leader.offset + ahead

    def restart(self) -> None:
        """Begin at 0, and forget what was said about pulses and the cable."""
        self._waiting, self.follows = None, False
        self.set_now(0)

    def set_at_next_pulse(self, time: int) -> None:
        """The pulse after this moment has that time."""
        self._waiting = (self._pulse_after(self.count), time)

    @property
    def next_event(self) -> int | None:
        """The count at which the time will be set, where it will."""
        return None if self._waiting is None or not self.has_pulse else self._waiting[0]

    def move(self, count: int) -> None:
        """Let ticks pass; no pulse that sets the time may be further behind than this call."""
        self.count = count
        if not self.has_pulse:
            return
        if self._waiting is not None and count >= self._waiting[0]:
            pulse, time = self._waiting
            self.offset, self._waiting = time - pulse, None
        self._last_pulse = self._pulse_before(count)

    @property
    def second(self) -> int:
        """Pulses that have come so far, whether they arrived or not."""
        return math.floor((self.count - self.pulse_delay) / (TICKS_PER_S * self.ratio))

    @property
    def last_pulse(self) -> int:
        """Time of the last pulse that arrived."""
        return (self._last_pulse + self.offset) & _MASK

    def _pulse_before(self, count: int) -> int:
        second = math.floor((count - self.pulse_delay) / (TICKS_PER_S * self.ratio))
        pulse = self._pulse(second)
        return pulse if pulse <= count else self._pulse(second - 1)

    def _pulse_after(self, count: int) -> int:
        second = math.floor((count - self.pulse_delay) / (TICKS_PER_S * self.ratio)) + 1
        pulse = self._pulse(second)
        return pulse if pulse > count else self._pulse(second + 1)

    def _pulse(self, second: int) -> int:
        # A whole number of ticks where the crystal is exact, without a detour through floating point.
        exact = second * TICKS_PER_S if self.ratio == 1.0 else math.ceil(second * TICKS_PER_S * self.ratio)
        return exact + self.pulse_delay
