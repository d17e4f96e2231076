"""A lab of USRPs, reached by their addresses."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from hardware.lab.addresses import address_of, addresses_of
from hardware.lab.discovery import Discovery, RadioInfo
from hardware.lab.model import Backend, Connection, Lab
from hardware.lab.requirements import Requirement, module_requirement, tool_requirement
from hardware.lab.traits import Traits
from hardware.radio.contract import Radio
from hardware.usrp.apart import PulsesApart
from hardware.usrp.settings import CAPABILITIES, KIND, SECTION, UsrpSettings

_CHECKS = (
    "power and cable: the box is on, and its network LEDs blink",
    "the network: this machine has an address in the box's network (192.168.10.1 for an N210 at 192.168.10.2)",
    "`ping 192.168.10.2` answers, and `uhd_find_devices` shows it; else name it: `airdp radios --uri addr=HOST`",
    "USB boxes (B200): `uhd_images_downloader` has been run, and the udev rules of uhd-host are in place",
)

_SOCKET_BUFFERS = {"net.core.rmem_max": 50_000_000, "net.core.wmem_max": 2_500_000}
"""What Ettus asks for."""


def _traits(lab: Lab) -> Traits:
    del lab
    return Traits.of_hardware(CAPABILITIES)


def _connect(lab: Lab, seed: int, stack: ExitStack) -> Connection:
    from hardware.usrp.connect import connect_usrps

    del seed
    return Connection(connect_usrps(lab, addresses_of(lab, KIND), stack))


def _connect_one(lab: Lab, name: str, stack: ExitStack) -> Connection:
    from hardware.usrp.connect import connect_usrp

    return Connection({name: connect_usrp(lab, name, address_of(lab, name, KIND), stack)})


def _align(lab: Lab, radios: Mapping[str, Radio]) -> tuple[str, ...]:
    from hardware.usrp.connect import reach_again

    return reach_again(lab, radios)


def _find() -> tuple[Sequence[RadioInfo], Sequence[str]]:
    from hardware.usrp.discovery import find_usrps

    return find_usrps()


def _describe(address: str) -> RadioInfo:
    from hardware.usrp.discovery import describe

    return describe(address)


def _requirements() -> Sequence[Requirement]:
    from hardware.usrp.library import INSTALL

    return (
        module_requirement("uhd", "USRP", INSTALL),
        tool_requirement("uhd_find_devices", "USRP", "sudo apt-get install uhd-host"),
        *_socket_buffers(),
    )


def _socket_buffers() -> Sequence[Requirement]:
    """Whether the kernel lets libuhd have the buffers that it asks for: without them a short wait loses packets."""
    found = []
    for name, wanted in _SOCKET_BUFFERS.items():
        path = Path("/proc/sys") / name.replace(".", "/")
        if path.is_file():
            size = int(path.read_text())
            help_ = f"sudo sysctl -w {name}={wanted}"
            found.append(Requirement(name, "USRP over Ethernet", size >= wanted, f"{size} bytes", help_))
    return found


BACKEND = Backend(
    "usrp",
    {SECTION: UsrpSettings},
    _traits,
    _connect,
    _align,
    Discovery(KIND, ("addr=", "serial=", "name=", "type=", "resource="), _find, _describe, _CHECKS),
    _requirements,
    connect_one=_connect_one,
    one_count=PulsesApart(),
    hints={"uhd": 'backend = "usrp"'},
)
