"""The virtual USRPs of a lab, and how their time passes. Everything here is under the lab's lock.

Time is one count of ticks for all of them, whatever their rates. Paced, it follows the wall clock. In lockstep it
follows the wall clock too, but stands still while a burst that has begun waits for samples or a client has no room,
and runs ahead while a capture of so many samples is taken. It skips the wait for the beginning of one as soon as no
client has said anything for a moment: what was to be said before has then been said.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from hardware.air.noise import Randomness
from hardware.air.settings import medium_of
from hardware.lab.clock import ClockMode
from hardware.lab.model import Lab, LabRadio
from hardware.usrp.settings import Source, usrp_of
from hardware.virtual.antennas import Antennas
from hardware.virtual.shared_time import SharedTime
from hardware.virtual.usrp2.device.gpsdo import Gpsdo
from hardware.virtual.usrp2.device.registers import TICKS_PER_S
from hardware.virtual.usrp2.radio import VirtualUsrp

QUIET_S = 0.02
"""For how long no client may have said anything before a wait is skipped."""
_MOST_CREDIT_S = 0.02
_MOST_AT_ONCE_S = 0.02
"""For how long time may run ahead before clients are heard again."""
_BOOT_STREAM = 0x0210


class VirtualLab(Antennas[VirtualUsrp]):
    """See `Antennas`. heard_at: when a client last said anything, by the monotonic clock.

    take_waiting: hands what clients have sent already to the radios. waits_for_room: whether time stands still
    because a client does not read what it has asked for. unfinished: whether time could have gone on, and is to as soon
    as clients were heard.
    """

    def __init__(self, lab: Lab, seed: int, paced: bool) -> None:
        settings, randomness = medium_of(lab), Randomness(seed)
        boots = np.random.default_rng([seed, _BOOT_STREAM])

        def make(radio: LabRadio, lock: threading.Lock) -> VirtualUsrp:
            ppm = settings.front_end_of(radio.name, randomness).clock_ppm
            usrp = VirtualUsrp(radio, lock, 1.0 if lab.clock_mode is ClockMode.SHARED else 1.0 + ppm * 1e-6)
            # Nobody has set it yet: every box counts from when it was switched on.
            usrp.clock.offset = int(boots.integers(TICKS_PER_S, 100 * TICKS_PER_S))
            box = usrp_of(lab).box(radio.name)
            if Source.GPSDO in (box.clock_source, box.time_source):
                usrp.gpsdo = Gpsdo()
            return usrp

        super().__init__(lab, seed, paced, make)
        leader, *others = (radio.clock for radio in self.radios.values())
        for clock in others:
            clock.leader = leader
        self.heard_at = 0.0
        self.waits_for_room = self.unfinished = False
        self.take_waiting: Callable[[], None] = lambda: None
        self._ticks = 0.0
        self._credit = 0.0

    def _run(self, time: SharedTime[VirtualUsrp]) -> None:
        """Nothing: time passes for all radios together."""

    def heard(self) -> None:
        """Note that a client has just said something."""
        self.heard_at = time.monotonic()

    def run_for(self, seconds: float) -> None:
        """The wall clock has advanced by that much."""
        if not self.paced:
            self._credit = min(self._credit + seconds, _MOST_CREDIT_S) if seconds else self._credit
            if not self.unfinished:
                self.go_on()
            return
        # Whoever is late is not so because of this machine's threads.
        self.take_waiting()
        due = self._ticks + seconds * TICKS_PER_S
        while self._ticks < due:
            self.settle()
            self._advance(min(due, *self._ends(), due))
        self.settle()

    def go_on(self) -> None:
        """In lockstep: let time advance as far as streams allow, or until clients are to be heard again."""
        if self.paced:
            return
        until_s = time.monotonic() + _MOST_AT_ONCE_S
        self.unfinished = False
        while not self.unfinished:
            self.settle()
            free = self._hurries()
            if (not free and self._credit <= 0.0) or not self._can_go_on():
                return
            end = min(self._ends(), default=math.inf)
            if not free:
                end = min(end, self._ticks + self._credit * TICKS_PER_S)
                self._credit -= (end - self._ticks) / TICKS_PER_S
                if self._credit < 1e-9:
                    self._credit = 0.0
            self._advance(end)
            self.unfinished = time.monotonic() > until_s

    def _can_go_on(self) -> bool:
        radios = self.radios.values()
        self.waits_for_room = not all(radio.has_room for radio in radios)
        return not self.waits_for_room and not any(radio.starves for radio in radios)

    def _hurries(self) -> bool:
        radios = self.radios.values()
        if any(radio.hurries for radio in radios):
            return True
        return any(radio.expects for radio in radios) and time.monotonic() - self.heard_at > QUIET_S

    def settle(self) -> None:
        """Let every radio do what is due, until nothing is."""
        for radio in self.radios.values():
            radio.clock.follow()
            while radio.settle():
                pass
            self._follow(radio)

    def _follow(self, radio: VirtualUsrp) -> None:
        """Let the air know a radio's rate and settings."""
        if radio.bus.wanted_factor != radio.factor:
            radio.change_rate()
        self.retune(radio)

    def _ends(self) -> Iterator[float]:
        """Ticks of an exact clock at which something must be seen to."""
        for shared in self._times.values():
            if shared.radios:
                end = shared.next_end()
                if end is not None:
                    yield end * shared.radios[0].factor
        for radio in self.radios.values():
            for count in radio.event_counts():
                # The first sample that is not before the event.
                yield -(-count // radio.factor) * radio.factor / radio.clock.ratio

    def _advance(self, ticks: float) -> None:
        self._ticks = max(ticks, self._ticks)
        for shared in self._times.values():
            if shared.radios:
                shared.advance(self._ticks / shared.radios[0].factor)
