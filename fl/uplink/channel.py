"""Where the gains of an uplink come from: drawn, fixed, or read from a file."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from calibration.gains import GainsFileError, GainsTable
from fl.errors import ConfigError
from phy.fading import rayleigh_gains


@dataclass(frozen=True)
class ChannelState:
    """Gains of one uplink. clients: complex128 (K,). jammer: gain of a node that is not a client."""

    clients: NDArray[np.complex128]
    jammer: complex


class Channel(Protocol):
    """Block fading: one state per uplink."""

    def state(self, uplink: int, rng: np.random.Generator) -> ChannelState:
        """Gains of the 1-based `uplink`; `rng` belongs to that uplink alone."""
        ...


@dataclass(frozen=True)
class RayleighChannel:
    """h ~ CN(0, 1), independent over transmitters and uplinks; the jammer's scaled by `jammer_amplitude`."""

    clients: int
    jammer_amplitude: float = 1.0

    def state(self, uplink: int, rng: np.random.Generator) -> ChannelState:
        """Draw the uplink's gains."""
        del uplink
        gains = rayleigh_gains(self.clients + 1, rng)
        return ChannelState(gains[:-1], complex(gains[-1]) * self.jammer_amplitude)


@dataclass(frozen=True)
class StaticChannel:
    """The same real gain for every client and uplink."""

    clients: int
    gain: float = 1.0
    jammer_amplitude: float = 1.0

    def state(self, uplink: int, rng: np.random.Generator) -> ChannelState:
        """The fixed gains."""
        del uplink, rng
        return ChannelState(np.full(self.clients, self.gain, dtype=np.complex128), complex(self.jammer_amplitude))


@dataclass(frozen=True)
class FileChannel:
    """Gains from a table; one row is a static channel, else there must be a row for every uplink."""

    table: GainsTable
    clients: int
    uplinks: int
    jammer_needed: bool

    def __post_init__(self) -> None:
        """Refuse a table that does not fit the run, before the run starts."""
        held_uplinks, held_clients = self.table.client_gains.shape
        if held_clients != self.clients:
            raise GainsFileError(f"{self.table.source} has gains of {held_clients} clients: the run has {self.clients}")
        if 1 < held_uplinks < self.uplinks:
            raise GainsFileError(
                f"{self.table.source} has gains for {held_uplinks} uplinks: "
                f"the run needs {self.uplinks}, or 1 for a static channel"
            )
        if self.jammer_needed and self.table.jammer_gains is None:
            raise ConfigError(f"{self.table.source} has no gains of the jammer: add them or set jammer.role = 'none'")

    def state(self, uplink: int, rng: np.random.Generator) -> ChannelState:
        """The table's row for `uplink`."""
        del rng
        row = 0 if self.table.uplinks == 1 else uplink - 1
        jammer = self.table.jammer_gains
        return ChannelState(self.table.client_gains[row], 0j if jammer is None else complex(jammer[row]))
