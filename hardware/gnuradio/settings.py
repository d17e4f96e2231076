"""The [gnuradio] section of a lab file: what the flowgraphs send and receive through, and how streams are cut."""

from dataclasses import replace
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from hardware.foundation.sections import choice
from hardware.lab.model import Lab
from hardware.lab.section import BackendSection
from hardware.radio.ad936x import AD936X
from hardware.radio.tx_gains import LOWEST_TX_GAIN_DB

SECTION = "gnuradio"
"""Its name."""


class Device(StrEnum):
    """What a flowgraph has for an antenna."""

    ZEROMQ = "zeromq"
    """The flowgraph `air`, whose time stands still while nobody receives."""
    PLUTO = "pluto"
    UHD = "uhd"


_USRP = replace(
    AD936X,
    sample_rate_hz=(100e6 / 512, 61.44e6),
    tx_gain_db=(LOWEST_TX_GAIN_DB, 0.0),
    rx_gain_db=(0.0, 76.0),
    gain_scale="transmitting, 0 dB is the largest gain that the device has; receiving, 0 dB is its smallest",
)
CAPABILITIES = {Device.ZEROMQ: AD936X, Device.PLUTO: AD936X, Device.UHD: _USRP}
"""Of an AD936x, which a B200 has too. Other USRPs: as far as they do the same."""
TX_STEPS: dict[Device, float | None] = {Device.ZEROMQ: None, Device.PLUTO: 2.0**-11, Device.UHD: 16.0 / 32767.0}
"""Of the transmit converter: 12 bits, of a full scale that gr-iio takes for 2^15 and UHD for 2^15 - 1. Converters of
more bits take the same values as they are."""


class GnuRadioSettings(BackendSection):
    """[gnuradio] What the flowgraphs send and receive through, and how their streams are cut."""

    device: Annotated[Device, choice(Device)] = Device.ZEROMQ
    """`zeromq`: the flowgraph `air`, whose time stands still while nobody receives; `pluto`: gr-iio; `uhd`: gr-uhd."""
    buffer_samples: Annotated[int, Field(ge=256, le=1 << 20)] = 8192
    """Samples of one message to a flowgraph."""
    margin_samples: Annotated[int, Field(ge=1024, le=1 << 20)] = 4096
    """How far simulated time may run ahead of what is received: more than all flowgraphs together hold back."""
    lead_s: Annotated[float, Field(ge=0, le=10)] = 0.5
    """With a device, from a decision to the first sample of the burst it leads to."""
    history_s: Annotated[float, Field(gt=0, le=60)] = 1.0
    """How long received samples are kept for somebody to take them."""
    tx_image_db: Annotated[float, Field(lt=0)] | None = None
    """With a device, power of the mirror image that a transmitter makes at most, where you know it. Clients are charged
    for the image that their soundings show, and for no more than this unless they show more."""
    real_time: bool = True
    """With a device, whether its time is that of the wall clock, so that a count which falls behind has lost samples.
    `false` for virtual devices whose time stands still while somebody is slow (`airdp emulate` without `--paced`)."""
    usrp_clock: Annotated[str, Field(pattern="^(internal|external|mimo|gpsdo)$")] = "internal"
    """With `uhd`, where boxes take their reference from: `internal`, `external` (REF IN), `mimo` or `gpsdo`."""
    monitor: str = ""
    """Where the server's flowgraph publishes what it receives, for ps_monitor; "tcp://127.0.0.1:5702" for instance."""

    @property
    def simulated(self) -> bool:
        """Whether the air is a flowgraph too."""
        return self.device is Device.ZEROMQ


def gnuradio_of(lab: Lab) -> GnuRadioSettings:
    """The section of a lab."""
    return lab.section(SECTION, GnuRadioSettings)
