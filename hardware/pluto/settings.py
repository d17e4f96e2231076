"""The [pluto] section of a lab file: how streams are cut into buffers, and which tracking loops run."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from hardware.lab.model import Lab
from hardware.lab.section import BackendSection
from hardware.radio.ad936x import AD936X

IIOD_PORT = 30431
"""Where a Pluto listens for clients of libiio."""
SECTION = "pluto"
"""Its name."""
CAPABILITIES = replace(AD936X, sample_rate_hz=(521e3, AD936X.sample_rate_hz[1]))
"""The widest that any firmware does, and pyadi-iio takes; an open radio has what it says itself."""


class PlutoSettings(BackendSection):
    """[pluto] How the streams of Plutos are cut into buffers, and which tracking loops run."""

    buffer_samples: Annotated[int, Field(ge=1024, le=1 << 22)] = 32768
    """Samples of one transfer. Short ones need a host that is never late; long ones delay the start of everything."""
    kernel_buffers: Annotated[int, Field(ge=2, le=64)] = 4
    """Transfers that the radio queues in each direction."""
    lead_s: Annotated[float, Field(ge=0, le=10)] = 0.25
    """From a decision to the first sample of the burst it leads to: what the host may take in between."""
    history_s: Annotated[float, Field(gt=0, le=60)] = 1.0
    """How long received samples are kept for somebody to take them."""
    tx_image_db: Annotated[float, Field(lt=0)] | None = None
    """Power of the mirror image that a transmitter makes at most, where you know it; an AD936x that was calibrated at
    its frequency has -50. Clients are charged for the image that their soundings show, and for no more than this unless
    they show more."""
    quadrature_tracking: bool = True
    """The receiver's I/Q correction."""
    rf_dc_tracking: bool = True
    """The receiver's correction of DC offset at RF."""
    bb_dc_tracking: bool = True
    """The receiver's correction of DC offset at baseband."""


def pluto_of(lab: Lab) -> PlutoSettings:
    """The section of a lab."""
    return lab.section(SECTION, PlutoSettings)
