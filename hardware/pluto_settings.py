"""The [pluto] section of a lab file: how streams are cut into buffers, and which tracking loops run."""

from typing import Annotated

from pydantic import Field

from hardware.sections import Section


class PlutoSettings(Section):
    """Other backends ignore it, but a mistake in it is refused all the same."""

    buffer_samples: Annotated[int, Field(ge=1024, le=1 << 22)] = 32768
    """Of one transfer. Short ones need a host that is never late; long ones make everything start later."""
    kernel_buffers: Annotated[int, Field(ge=2, le=64)] = 4
    """Transfers that the radio queues in each direction."""
    lead_s: Annotated[float, Field(ge=0, le=10)] = 0.25
    """From a decision to the first sample of the burst it leads to: what the host may take in between."""
    history_s: Annotated[float, Field(gt=0, le=60)] = 1.0
    """How long received samples are kept for somebody to take them."""
    quadrature_tracking: bool = True
    rf_dc_tracking: bool = True
    bb_dc_tracking: bool = True
