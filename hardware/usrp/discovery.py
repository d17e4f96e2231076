"""Which USRPs there are, and what one says about itself. Nothing is sent; libuhd initialises a box that it asks.

Looking is done by a process of its own, because libuhd asks every network and every bus, and may take long:
`python -m hardware.usrp.discovery` prints the address of each box as a line.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hardware.lab.discovery import RadioInfo, scan_apart
from hardware.radio.errors import HardwareError
from hardware.usrp.board import capabilities_of
from hardware.usrp.device import UsrpDevice
from hardware.usrp.library import library
from hardware.usrp.radio import temperature_c

_SCAN_S = 20.0
_SCHEMES = ("addr=", "serial=")


def describe(address: str) -> RadioInfo:
    """Ask the USRP at an address; `HardwareError` where there is none."""
    device = UsrpDevice("the radio", address)
    try:
        said = dict(device.get("usrp_rx_info"))
        return RadioInfo(
            uris=(address,),
            serial=str(said.get("mboard_serial", "")),
            model=str(device.get("mboard_name")),
            firmware=_versions(device),
            virtual="",
            temperature_c=temperature_c(device),
            capabilities=capabilities_of(device),
            details=_details(device, said),
        )
    finally:
        device.close()


def _versions(device: UsrpDevice) -> str:
    def read(usrp: Any) -> str:
        tree = usrp.get_tree()
        found = {part: f"/mboards/0/{part}_version" for part in ("fw", "fpga")}
        return ", ".join(f"{part} {tree.access_str(path).get()}" for part, path in found.items() if tree.exists(path))

    return device.ask("reading its versions", read)


def _details(device: UsrpDevice, said: Mapping[str, str]) -> dict[str, str]:
    sending = dict(device.get("usrp_tx_info"))
    boards = {
        f"{said.get('rx_id', '')} {said.get('rx_serial', '')}".strip(): "receiver",
        f"{sending.get('tx_id', '')} {sending.get('tx_serial', '')}".strip(): "transmitter",
    }
    return {
        "daughterboard": "; ".join(f"{board} ({role})" for board, role in boards.items() if board),
        "antennas": f"{', '.join(device.get('rx_antennas'))} receiving, {', '.join(device.get('tx_antennas'))} sending",
        "clock": f"{device.get('clock_source')}, of {', '.join(device.get('clock_sources'))}",
        "time": f"{device.get('time_source')}, of {', '.join(device.get('time_sources'))}",
        "sensors": ", ".join(f"{name} {value}" for name, value in device.sensors().items()),
    }


def find_usrps() -> tuple[list[RadioInfo], list[str]]:
    """All that libuhd finds on the networks and on USB, and what is wrong with those that fail."""
    library()
    found, problems = [], []
    for address in _addresses():
        try:
            found.append(describe(address))
        except HardwareError as error:
            problems.append(str(error))
    return found, problems


def _addresses() -> list[str]:
    return scan_apart("hardware.usrp.discovery", _SCHEMES, _SCAN_S)


def _scan() -> Iterator[str]:
    """Addresses by what tells boxes apart: that in the network where there is one, or else the serial number."""
    uhd = library()
    for found in uhd.find(""):
        said = found.to_dict()
        key = "addr" if said.get("addr") else "serial"
        if said.get(key):
            yield f"{key}={said[key]}"


if __name__ == "__main__":
    for line in _scan():
        print(line, flush=True)  # noqa: T201 - this is its answer
