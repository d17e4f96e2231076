"""What is to happen at ticks of a box's clock. Under the lab's lock."""

from collections.abc import Callable

from hardware.virtual.usrp2.device.clock import Clock

MOST = 1024
"""That wait for their tick; more are forgotten."""


class Agenda:
    """Of one box."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    def add(self, ticks: int, happen: Callable[[], None]) -> None:
        """Let something happen at `ticks`, at once where they have passed."""
        if len(self._waiting) < MOST:
            self._waiting.append((ticks, happen))
            self._waiting.sort(key=lambda item: item[0])

    @property
    def next_count(self) -> int | None:
        """The clock's count at which the next thing happens; None where nothing is to."""
        return self._clock.count_at(self._waiting[0][0]) if self._waiting else None

    def settle(self) -> bool:
        """Let happen what is due; whether anything was."""
        done = False
        while self._waiting and self._clock.count_at(self._waiting[0][0]) <= self._clock.count:
            _, happen = self._waiting.pop(0)
            happen()
            done = True
        return done
