"""Opens the Plutos of a lab, wherever they are."""

from collections.abc import Mapping
from contextlib import ExitStack

from hardware.counted.alignment import require_one_direction
from hardware.lab.model import Lab, Role
from hardware.pluto.radio import PlutoRadio
from hardware.pluto.settings import pluto_of


def connect_plutos(lab: Lab, addresses: Mapping[str, str], stack: ExitStack) -> dict[str, PlutoRadio]:
    """Open the radios of a lab that have an address here; the stack closes them."""
    for radio in lab.radios:
        require_one_direction(lab, radio)
    radios: dict[str, PlutoRadio] = {}
    for radio in (one for one in lab.radios if one.name in addresses):
        radios[radio.name] = stack.enter_context(
            PlutoRadio(
                radio.name,
                addresses[radio.name],
                lab.limits,
                lab.timeout_s,
                receives=radio.role in (Role.PS, Role.OBSERVER),
                observes=radio.role is Role.OBSERVER,
                settings=pluto_of(lab),
            )
        )
    return radios
