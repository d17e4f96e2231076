"""What a lab is like on its backend, as far as anybody who uses its radios must know."""

from dataclasses import dataclass
from enum import Enum, auto

from hardware.radio.settings import Capabilities


class JammerNoise(Enum):
    """Where the noise that a jammer sends comes from."""

    SEED = auto()
    """The run's seed: repeatable, and no protection of anything real."""
    SYSTEM = auto()
    """The operating system's generator for cryptography."""


@dataclass(frozen=True)
class Traits:
    """capabilities: what its radios can be set to, as far as that is known before they are open.

    simulated_air: whether the air is simulated, for this lab alone. virtual_time: whether time is a counter that moves
    only when asked, so that every uplink can have a place of its own in it. exclusive: what it is that only one run at
    a time can have, as in "real radios"; None where runs do not disturb each other.
    """

    capabilities: Capabilities
    simulated_air: bool
    virtual_time: bool
    jammer_noise: JammerNoise
    exclusive: str | None

    @classmethod
    def of_hardware(cls, capabilities: Capabilities) -> "Traits":
        """Real radios in a real air."""
        return cls(
            capabilities,
            simulated_air=False,
            virtual_time=False,
            jammer_noise=JammerNoise.SYSTEM,
            exclusive="real radios",
        )

    @classmethod
    def of_virtual_devices(cls, capabilities: Capabilities, jammer_noise: JammerNoise = JammerNoise.SYSTEM) -> "Traits":
        """Virtual devices in an air of their own, through the drivers of real ones."""
        return cls(capabilities, simulated_air=True, virtual_time=False, jammer_noise=jammer_noise, exclusive=None)
