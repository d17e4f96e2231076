"""The [gnuradio] section of a lab file: what the flowgraphs send and receive through, and how streams are cut."""

from dataclasses import replace
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from hardware.sections import Section, choice
from hardware.settings import AD936X


class Device(StrEnum):
    """What a flowgraph has for an antenna."""

    ZEROMQ = "zeromq"
    """The flowgraph `air`, whose time stands still while nobody receives."""
    PLUTO = "pluto"
    UHD = "uhd"


_B200 = replace(AD936X, sample_rate_hz=(200e3, 61.44e6), tx_gain_db=(0.0, 89.75), rx_gain_db=(0.0, 76.0))
CAPABILITIES = {Device.ZEROMQ: AD936X, Device.PLUTO: AD936X, Device.UHD: _B200}
"""A B200 has an AD936x too, but UHD counts its gains from the other end. Other USRPs: as far as they do the same."""


class GnuRadioSettings(Section):
    """Other backends ignore it, but a mistake in it is refused all the same."""

    device: Annotated[Device, choice(Device)] = Device.ZEROMQ
    buffer_samples: Annotated[int, Field(ge=256, le=1 << 20)] = 8192
    """Of one message to a flowgraph."""
    margin_samples: Annotated[int, Field(ge=1024, le=1 << 20)] = 4096
    """How far simulated time may run ahead of what is received: more than all flowgraphs together hold back."""
    lead_s: Annotated[float, Field(ge=0, le=10)] = 0.5
    """With a device, from a decision to the first sample of the burst it leads to."""
    history_s: Annotated[float, Field(gt=0, le=60)] = 1.0
    """How long received samples are kept for somebody to take them."""
    monitor: str = ""
    """Where the server's flowgraph publishes what it receives, for ps_monitor; "tcp://127.0.0.1:5702" for instance."""
