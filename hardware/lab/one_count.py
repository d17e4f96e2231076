"""One count of samples for radios that are in processes of their own and have no common one by themselves."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from hardware.lab.clock import ClockMode
from hardware.radio.contract import Radio

Epoch = tuple[int, int]
"""Of a count: what was measured in another one is void."""


@dataclass(frozen=True)
class ServerCount:
    """The server's count, as transmitters must know it."""

    epoch: Epoch
    now_sample: int


@dataclass(frozen=True)
class CountStatus:
    """astray: it does not count as the server. unsent_samples: that it has still queued. queue_samples: at most."""

    astray: bool
    unsent_samples: int
    queue_samples: int


@dataclass(frozen=True)
class BurstSent:
    """start_sample: in the sender's own count, of that epoch."""

    start_sample: int
    epoch: Epoch


class OneCount(ABC):
    """How a backend gives radios one count whose processes can only tell each other numbers."""

    @abstractmethod
    def server_count(self, server: Radio) -> ServerCount:
        """At the server: its count, as it is now."""

    @abstractmethod
    def look(self, clock: ClockMode, radio: Radio, server: ServerCount) -> CountStatus:
        """At a transmitter: does it count as the server?"""

    @abstractmethod
    def send(self, radio: Radio) -> BurstSent:
        """At a transmitter: send what is to be found."""

    @abstractmethod
    def find(
        self, clock: ClockMode, server: Radio, begin_sample: int, sent: BurstSent, queue_samples: int
    ) -> tuple[int, float]:
        """At the server: by how much its count is ahead of the sender's, and how fast the sender's clock is, in ppm."""

    @abstractmethod
    def take(self, radio: Radio, offset_samples: int, sent: BurstSent, server: ServerCount, clock_ppm: float) -> None:
        """At a transmitter: count as the server from now on."""

    @abstractmethod
    def wait(self, server: Radio, samples: int) -> None:
        """At the server: let so many samples pass."""
