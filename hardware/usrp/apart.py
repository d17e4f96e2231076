"""Boxes in processes of their own: one count of samples from the pulses that all of them get.

Nobody sets a box's time, because others may have begun already. Each process knows how long ago its box had a pulse,
and the server says how long ago its own did: the pulses are the same, so the rest is whole seconds. A message that
takes longer than half a second on its way would be taken for one of another second, and is refused.
"""

from typing import TYPE_CHECKING

from hardware.lab.clock import ClockMode
from hardware.lab.one_count import BurstSent, CountStatus, OneCount, ServerCount
from hardware.radio.contract import Radio
from hardware.radio.errors import HardwareError

if TYPE_CHECKING:
    from hardware.usrp.radio import UsrpRadio


class PulsesApart(OneCount):
    """See `OneCount`. Nothing has to be sent for it."""

    def server_count(self, server: Radio) -> ServerCount:
        """The server's count, which begins at a pulse."""
        usrp = _reached(server)
        return ServerCount((0, 0), usrp.clock_sample())

    def look(self, clock: ClockMode, radio: Radio, server: ServerCount) -> CountStatus:
        """Take the server's count over, from the last pulse."""
        del clock
        usrp = _reached(radio)
        usrp.count_as(server.now_sample)
        return CountStatus(astray=False, unsent_samples=0, queue_samples=0)

    def send(self, radio: Radio) -> BurstSent:
        """Never asked for: nobody is astray."""
        raise HardwareError(f"{radio.name} has timestamps: nothing is sent to find its count")

    def find(
        self, clock: ClockMode, server: Radio, begin_sample: int, sent: BurstSent, queue_samples: int
    ) -> tuple[int, float]:
        """Never asked for."""
        raise HardwareError(f"{server.name} has timestamps: there is nothing to find")

    def take(self, radio: Radio, offset_samples: int, sent: BurstSent, server: ServerCount, clock_ppm: float) -> None:
        """Never asked for."""
        raise HardwareError(f"{radio.name} has timestamps: its count is not measured")

    def wait(self, server: Radio, samples: int) -> None:
        """Never asked for: nothing is queued that the count depends on."""


def _reached(radio: Radio) -> "UsrpRadio":
    """The radio as the USRP that it is, reached again where it was lost."""
    from hardware.usrp.connect import reach_again_alone
    from hardware.usrp.radio import UsrpRadio

    if not isinstance(radio, UsrpRadio):
        raise HardwareError(f"{radio.name} is no USRP")
    reach_again_alone(radio)
    return radio
