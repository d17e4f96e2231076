"""When an uplink takes place: the samples at which it may start, in whatever time the lab has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fl.nodes.air_format import AirFormat
from hardware.lab.clock import ClockMode
from hardware.lab.opened import OpenLab

MOST_ATTEMPTS = 1000
"""Soundings per uplink that have a place of their own in simulated time and fading."""


def block_number(uplink: int, attempt: int) -> int:
    """Number of a sounding: its fading, its place in simulated time and its jammer's noise are its own."""
    return uplink * MOST_ATTEMPTS + attempt


@dataclass(frozen=True)
class Beginning:
    """start_sample: in the server's count. offsets: of the counters of transmitters, by name, where they are new."""

    start_sample: int
    offsets: Mapping[str, int]


class Stage(Protocol):
    """The time that server and transmitters share."""

    def begin(self, uplink: int, attempt: int) -> Beginning:
        """Where an attempt's silence starts. Radios that count by themselves are aligned for it where they are not."""
        ...

    def not_before(self, planned_sample: int) -> int:
        """`planned_sample`, or the first one at which all radios can still send."""
        ...


@dataclass(frozen=True)
class LabStage:
    """The time of an open lab. transmitters: names of all who sound. attempts: that an uplink may take."""

    lab: OpenLab
    air: AirFormat
    transmitters: Sequence[str]
    attempts: int

    def begin(self, uplink: int, attempt: int) -> Beginning:
        """See `Stage.begin`. In simulated time each uplink and attempt has its own place and fading, however reached.

        So a run that goes on later does what it would have done before.
        """
        margin = self.air.turnaround_samples
        self.lab.new_block(block_number(uplink, attempt))
        if self.lab.time is None:
            aligned = self.lab.ready()
            offsets = {name: 0 for name in self.transmitters if name in aligned}
            return Beginning(self.lab.start_sample(margin), offsets)
        whole = self.air.sounding_phase_samples(len(self.transmitters)) + 2 * margin + self.air.payload.length
        start = self.air.ahead_samples + (uplink * self.attempts + attempt) * whole
        self.lab.time.advance(start - margin)
        return Beginning(start, self._counters())

    def _counters(self) -> dict[str, int]:
        """As they are now, not as earlier soundings left them: a run that goes on later has not heard those."""
        if self.lab.lab.clock_mode is ClockMode.SHARED:
            return {}
        now = self.lab.ps.now()
        return {name: self.lab.radios[name].now() - now for name in self.transmitters}

    def not_before(self, planned_sample: int) -> int:
        """See `Stage.not_before`."""
        return self.lab.not_before(planned_sample)
