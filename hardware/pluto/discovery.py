"""Which Plutos there are, and what one says about itself. Nothing is set and nothing is sent.

Looking for radios is done by a process of its own: libiio writes to standard error when there is no Avahi, and a name
that cannot be resolved may take long. `python -m hardware.pluto.discovery` prints one address a line.
"""

import re
import socket
from collections.abc import Iterator
from ctypes import POINTER, byref
from dataclasses import replace
from typing import Any

from hardware.lab.discovery import RadioInfo, scan_apart
from hardware.pluto.context import PlutoContext, libraries
from hardware.pluto.radio import capabilities_of
from hardware.pluto.settings import IIOD_PORT
from hardware.radio.errors import HardwareError

DEFAULT_HOSTS = ("192.168.2.1", "pluto.local")
_SCAN_S = 10.0
_SCHEMES = ("usb:", "ip:")
_PROBE_S = 1.0


def describe(uri: str, timeout_s: float = 5.0) -> RadioInfo:
    """Ask the Pluto at an address; `HardwareError` where there is none."""
    context = PlutoContext("the radio", uri, timeout_s)
    try:
        said = context.attributes
        return RadioInfo(
            uris=(uri,),
            serial=said.get("hw_serial", ""),
            model=said.get("hw_model", ""),
            firmware=said.get("fw_version", ""),
            virtual=context.virtual,
            temperature_c=context.temperature_c(),
            capabilities=capabilities_of(context),
        )
    finally:
        context.destroy()


def find_plutos() -> tuple[list[RadioInfo], list[str]]:
    """All that can be found on USB and under a Pluto's default addresses, and what is wrong with those that fail.

    One that is reachable in several ways is listed once.
    """
    libraries()
    by_serial: dict[str, RadioInfo] = {}
    problems = []
    for uri in _addresses():
        try:
            info = describe(uri)
        except HardwareError as error:
            problems.append(str(error))
            continue
        known = by_serial.get(info.serial)
        uris = info.uris if known is None else (*known.uris, *info.uris)
        by_serial[info.serial or uri] = replace(info, uris=uris)
    return list(by_serial.values()), problems


def _addresses() -> list[str]:
    return scan_apart("hardware.pluto.discovery", _SCHEMES, _SCAN_S)


def _scan() -> Iterator[str]:
    """Addresses, the quick ways first."""
    iio, _ = libraries()
    for backend in ("usb", "ip"):
        if backend in iio.backends:
            yield from _scan_backend(iio, backend)
    for host in DEFAULT_HOSTS:
        if _answers(host):
            yield f"ip:{host}"


def _answers(host: str) -> bool:
    """Whether a libiio server is there: what listens may be anything."""
    try:
        with socket.create_connection((host, IIOD_PORT), _PROBE_S) as connection:
            connection.sendall(b"VERSION\r\n")
            return re.match(rb"\d+\.\d+", connection.recv(64)) is not None
    except OSError:
        return False


def _scan_backend(iio: Any, backend: str) -> Iterator[str]:
    """Like `iio.scan_contexts`, which gives up on all backends where one fails."""
    scan = iio._create_scan_context(backend.encode(), 0)
    found = POINTER(iio._ContextInfoPtr)()
    try:
        count = iio._get_context_info_list(scan, byref(found))
    except OSError:
        iio._destroy_scan_context(scan)
        return
    described = [
        (iio._context_info_get_uri(found[index]), iio._context_info_get_description(found[index]))
        for index in range(count)
    ]
    iio._context_info_list_free(found)
    iio._destroy_scan_context(scan)
    for uri, description in described:
        if b"Pluto" in description or backend == "ip":
            yield uri.decode("ascii")


if __name__ == "__main__":
    for address in _scan():
        print(address, flush=True)  # noqa: T201 - this is its answer
