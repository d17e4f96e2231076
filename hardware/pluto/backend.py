"""A lab of Plutos, reached by their addresses."""

from collections.abc import Sequence
from contextlib import ExitStack

from hardware.counted.alignment import align
from hardware.counted.apart import CountsApart
from hardware.lab.addresses import addresses_of
from hardware.lab.discovery import Discovery, RadioInfo
from hardware.lab.model import Backend, Connection, Lab
from hardware.lab.requirements import Requirement, module_requirement, tool_requirement
from hardware.lab.traits import Traits
from hardware.pluto.settings import CAPABILITIES, SECTION, PlutoSettings

_KIND = "Pluto"
_CHECKS = (
    "the cable: USB at the connector in the middle, and a cable that carries data",
    "the system: `lsusb` shows 0456:b673, and the Pluto has booted (its second LED blinks)",
    "rights: a udev rule for 0456:b673 (the package libiio0 has one; plug in again after installing it)",
    "the network: `ping 192.168.2.1`; two Plutos need different addresses (config.txt on their drive)",
    "packages: sudo apt-get install libiio0 libiio-utils; then `iio_info -S` must show it too",
)


def _traits(lab: Lab) -> Traits:
    del lab
    return Traits.of_hardware(CAPABILITIES)


def _connect(lab: Lab, seed: int, stack: ExitStack) -> Connection:
    from hardware.pluto.connect import connect_plutos

    del seed
    return Connection(connect_plutos(lab, addresses_of(lab, _KIND), stack))


def _connect_one(lab: Lab, name: str, stack: ExitStack) -> Connection:
    from hardware.pluto.connect import connect_plutos

    return Connection(connect_plutos(lab, {name: lab.address_of(name)}, stack))


def _find() -> tuple[Sequence[RadioInfo], Sequence[str]]:
    from hardware.pluto.discovery import find_plutos

    return find_plutos()


def _describe(uri: str) -> RadioInfo:
    from hardware.pluto.discovery import describe

    return describe(uri)


def _requirements() -> Sequence[Requirement]:
    from hardware.pluto.context import INSTALL

    return (
        module_requirement("iio", "ADALM-Pluto", INSTALL),
        tool_requirement("iio_info", "ADALM-Pluto", "sudo apt-get install libiio-utils"),
    )


BACKEND = Backend(
    "pluto",
    {SECTION: PlutoSettings},
    _traits,
    _connect,
    align,
    Discovery(_KIND, ("ip:", "usb:"), _find, _describe, _CHECKS),
    _requirements,
    connect_one=_connect_one,
    one_count=CountsApart(),
)
