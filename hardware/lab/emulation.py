"""Virtual radios that are served to programs elsewhere, which take them for hardware."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class RadioStatus:
    """What a radio is doing. streamed_samples: in and out of buffers, since it was started."""

    name: str
    uri: str
    connections: int
    rx_buffers: int
    tx_buffers: int
    streamed_samples: int
    overflows: int
    underflows: int
    counter: int
    rate_hz: int


@dataclass(frozen=True)
class EmulationSettings:
    """seed: of the simulated air. port: of all radios, None for that of real ones. paced: time follows the wall
    clock."""

    seed: int
    port: int | None = None
    paced: bool = False


class Emulation(Protocol):
    """Radios that are being served."""

    @property
    def uris(self) -> Mapping[str, str]:
        """Address of each radio."""
        ...

    @property
    def mode(self) -> str:
        """What drives time: "lockstep" or "paced"."""
        ...

    @property
    def try_with(self) -> str:
        """A command that shows that one of them is there."""
        ...

    @property
    def slipped_s(self) -> float:
        """How far paced time has fallen behind the wall clock, for lack of speed."""
        ...

    def status(self) -> Sequence[RadioStatus]:
        """What each radio is doing now."""
        ...
