"""A lab of Plutos, reached by their addresses."""

from collections.abc import Mapping
from contextlib import ExitStack

from hardware.counted_lab import align, close_together, require_one_direction
from hardware.errors import LabFileError
from hardware.lab import Backend, Lab, Role
from hardware.pluto import CAPABILITIES, PlutoRadio
from hardware.radio import Radio
from hardware.termination import orderly_termination


def connect_plutos(lab: Lab, addresses: Mapping[str, str], stack: ExitStack) -> dict[str, Radio]:
    """Open every radio of a lab at its address; all are closed together when the stack is."""
    for radio in lab.radios:
        require_one_direction(lab, radio)
    radios: dict[str, Radio] = {}
    stack.enter_context(orderly_termination())
    stack.push(close_together(radios))
    for radio in lab.radios:
        radios[radio.name] = PlutoRadio(
            radio.name,
            addresses[radio.name],
            lab.limits,
            lab.timeout_s,
            receives=radio.role is Role.PS,
            settings=lab.pluto,
        )
    return radios


def _connect(lab: Lab, seed: int, stack: ExitStack) -> tuple[dict[str, Radio], None]:
    del seed
    addresses: dict[str, str] = {}
    for radio in lab.radios:
        if not radio.address:
            raise LabFileError(
                f"{lab.source}: '{radio.name}' has no address: run `airdp radios`, and write a [[radio]] with its own "
                'address ("ip:…" or "usb:…") for each Pluto'
            )
        if radio.address in addresses.values():
            raise LabFileError(f"{lab.source}: two radios have the address {radio.address}: each Pluto has its own")
        addresses[radio.name] = radio.address
    return connect_plutos(lab, addresses, stack), None


BACKEND = Backend(CAPABILITIES, _connect, align)
