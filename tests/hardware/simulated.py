"""What only a simulation knows about a lab that is open."""

from hardware.air.medium import Medium
from hardware.lab.opened import OpenLab


def medium_in(lab: OpenLab) -> Medium:
    """The air of a lab that is simulated in this process."""
    assert isinstance(lab.air, Medium)
    return lab.air
