"""The [usrp] section of a lab file: where clock and time come from, which connectors are used, how far ahead to work.

Every key of `UsrpBox` may differ from box to box.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from hardware.foundation.sections import Section, choice, nearest
from hardware.lab.model import Lab
from hardware.lab.section import BackendSection
from hardware.radio.errors import HardwareError
from hardware.radio.settings import Capabilities
from hardware.radio.tx_gains import LOWEST_TX_GAIN_DB

SECTION = "usrp"
"""Its name."""
KIND = "USRP"
"""What radios are called that have it."""
CAPABILITIES = Capabilities(
    sample_rate_hz=(100e6 / 512, 200e6),
    center_hz=(1e6, 6e9),
    bandwidth_hz=(100e6 / 512, 200e6),
    tx_gain_db=(LOWEST_TX_GAIN_DB, 0.0),
    rx_gain_db=(0.0, 93.0),
    tx_gain_step_db=0.25,
    rx_gain_step_db=0.5,
    gain_scale="transmitting, 0 dB is the largest gain that the device has; receiving, 0 dB is its smallest",
)
"""The widest that any USRP does; an open one has what it says itself."""


class Source(StrEnum):
    """Where a reference or a pulse per second comes from."""

    INTERNAL = "internal"
    EXTERNAL = "external"
    GPSDO = "gpsdo"
    MIMO = "mimo"


class UsrpBox(Section):
    """What may differ from box to box."""

    clock_source: Annotated[Source, choice(Source)] = Source.EXTERNAL
    """Of the reference: `internal` (the box's own), `external` (REF IN), `gpsdo`, or `mimo` (the cable to another)."""
    time_source: Annotated[Source, choice(Source)] = Source.EXTERNAL
    """Of the pulse per second, likewise. Of all boxes of a lab one may be `internal`."""
    antenna: str = ""
    """Connector of the receiver, "RX2" for instance; not given: the daughterboard's own choice."""
    tx_antenna: str = ""
    """Connector of the transmitter; not given: the daughterboard's own choice."""
    subdevice: str = ""
    """Daughterboard and frontend, such as "A:0"; not given: the first. Used in both directions."""
    device_args: str = ""
    """More arguments for UHD, such as "master_clock_rate=20e6" for a B200."""


class UsrpSettings(UsrpBox, BackendSection):
    """[usrp] Clocks, connectors and times of USRPs: values for all boxes, and under `[usrp.radio.NAME]` those of
    one."""

    lead_s: Annotated[float, Field(ge=0, le=10)] = 0.1
    """From a decision to the first sample of the burst it leads to: what the host may take in between."""
    history_s: Annotated[float, Field(gt=0, le=60)] = 1.0
    """How long received samples are kept for somebody to take them."""
    delay_samples: Annotated[int, Field(ge=0, le=4096)] = 0
    """By how much a burst comes later through a short cable than its tick says, because of the filters of both ends;
    `airdp calibrate` shows it. Captures are shifted by it."""
    tx_image_db: Annotated[float, Field(lt=0)] | None = None
    """Power of the mirror image that a transmitter makes at most, where you know it, with what `uhd_cal_tx_iq_balance`
    has found. Clients are charged for the image that their soundings show, and for no more than this unless they show
    more."""
    dac_bits: Annotated[int, Field(ge=8, le=16)] | None = None
    """Of the transmit converter, to whose levels samples are rounded; not given: 12 on B200 and E300, 14 on N300,
    else 16."""
    radio: dict[str, UsrpBox] = Field(default_factory=dict)

    def check_radios(self, names: Sequence[str]) -> None:
        """See `BackendSection.check_radios`."""
        for name in self.radio:
            if name not in names:
                hint = nearest(name, names) or f"; there are {', '.join(names)}"
                raise HardwareError(f"usrp.radio.{name}: the lab has no such radio{hint}")

    def box(self, name: str) -> UsrpBox:
        """What holds for the box of one radio."""
        own = self.radio.get(name)
        values = {key: getattr(self, key) for key in UsrpBox.model_fields}
        return UsrpBox(**values | ({} if own is None else {key: getattr(own, key) for key in own.model_fields_set}))


def usrp_of(lab: Lab) -> UsrpSettings:
    """The section of a lab."""
    return lab.section(SECTION, UsrpSettings)
