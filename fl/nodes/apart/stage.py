"""The time that server and transmitters share, where each has its own process: clocks are asked for, not looked at."""

from collections.abc import Sequence
from dataclasses import dataclass

from fl.nodes.air_format import AirFormat
from fl.nodes.apart.orders import Clock, LookAtCount, ReadClock, SendToBeFound, TakeCount
from fl.nodes.apart.switchboard import Switchboard
from fl.nodes.stage import Beginning, block_number
from hardware.lab.clock import ClockMode
from hardware.lab.opened import OpenLab
from hardware.radio.errors import HardwareError


@dataclass
class ApartStage:
    """As `LabStage`. lab: with the server's radio alone."""

    lab: OpenLab
    air: AirFormat
    switchboard: Switchboard
    transmitters: Sequence[str]
    attempts: int
    _known: bool = False

    def begin(self, uplink: int, attempt: int) -> Beginning:
        """See `Stage.begin`. Nodes that have started anew are told of the run first."""
        self.switchboard.place(uplink, attempt)
        self.switchboard.ready()
        margin = self.air.turnaround_samples
        self.lab.new_block(block_number(uplink, attempt))
        if self.lab.time is None:
            aligned = self._align()
            return Beginning(self._start(margin), dict.fromkeys(aligned, 0))
        whole = self.air.sounding_phase_samples(len(self.transmitters)) + 2 * margin + self.air.payload.length
        place = self.air.ahead_samples + (uplink * self.attempts + attempt) * whole
        start = max(place, self._earliest(attempt) + margin)
        self.lab.time.advance(start - margin)
        return Beginning(start, self._counters())

    def _earliest(self, attempt: int) -> int:
        """In simulated air that has outlived a server, or an attempt that failed, an uplink's own place may be past."""
        now = self.lab.ps.now()
        if attempt or not self._known:
            self._known = True
            return max(now, *(clock.now_sample for clock in self._clocks()))
        return now

    def _align(self) -> list[str]:
        """Give all transmitters the server's count, where they have not got it; the names of those that had not."""
        one_count, lab, server = self.lab.lab.backend.one_count, self.lab.lab, self.lab.ps
        if one_count is None:
            return []
        count = one_count.server_count(server)
        looked = self.switchboard.ask_all([(name, LookAtCount(count)) for name in self.transmitters])
        stray = [(name, status) for name, status in zip(self.transmitters, looked, strict=True) if status.astray]
        if stray:
            one_count.wait(server, max(status.unsent_samples for status in looked))
        for name, status in stray:
            begin = server.now()
            sent = self.switchboard.ask(name, SendToBeFound())
            try:
                offset, ppm = one_count.find(lab.clock_mode, server, begin, sent, status.queue_samples)
            except HardwareError as error:
                raise type(error)(f"'{name}': {error}") from error
            self.switchboard.ask(name, TakeCount(offset, sent, one_count.server_count(server), ppm))
        return [name for name, _ in stray]

    def _counters(self) -> dict[str, int]:
        if self.lab.lab.clock_mode is ClockMode.SHARED:
            return {}
        now = self.lab.ps.now()
        clocks = self._clocks()
        return {name: clock.now_sample - now for name, clock in zip(self.transmitters, clocks, strict=True)}

    def _start(self, margin_samples: int) -> int:
        clocks = self._clocks()
        now = max(self.lab.ps.now(), *(clock.now_sample for clock in clocks))
        return now + max(self.lab.ps.lead_samples, *(clock.lead_samples for clock in clocks)) + margin_samples

    def _clocks(self) -> list[Clock]:
        return self.switchboard.ask_all([(name, ReadClock()) for name in self.transmitters])

    def not_before(self, planned_sample: int) -> int:
        """See `Stage.not_before`."""
        if self.lab.time is not None:
            return planned_sample
        return max(planned_sample, self._start(0))
