"""Which Plutos there are, and what one says about itself. Nothing is set and nothing is sent.

Looking for radios is done by a process of its own: libiio writes to standard error when there is no Avahi, and a name
that cannot be resolved may take long. `python -m hardware.pluto_discovery` prints one address a line.
"""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from ctypes import POINTER, byref
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hardware.errors import HardwareError
from hardware.pluto import capabilities_of
from hardware.pluto_context import PlutoContext, libraries
from hardware.settings import Capabilities

DEFAULT_HOSTS = ("192.168.2.1", "pluto.local")
IIOD_PORT = 30431
_SCAN_S = 10.0
_PROBE_S = 1.0


@dataclass(frozen=True)
class PlutoInfo:
    """What a radio says. uris: all addresses under which it was found. virtual: how an emulated one keeps time."""

    uris: tuple[str, ...]
    serial: str
    model: str
    firmware: str
    virtual: str
    temperature_c: float
    capabilities: Capabilities


def describe(uri: str, timeout_s: float = 5.0) -> PlutoInfo:
    """Ask the Pluto at an address; `HardwareError` where there is none."""
    context = PlutoContext("the radio", uri, timeout_s)
    try:
        said = context.attributes
        return PlutoInfo(
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


def find_plutos() -> tuple[list[PlutoInfo], list[str]]:
    """All that can be found on USB and under a Pluto's default addresses, and what is wrong with those that fail.

    One that is reachable in several ways is listed once.
    """
    libraries()
    by_serial: dict[str, PlutoInfo] = {}
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
    above = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join([above, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            [sys.executable, "-m", "hardware.pluto_discovery"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SCAN_S,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )
        said = done.stdout
    except subprocess.TimeoutExpired as error:
        # What it has found until then counts.
        said = error.stdout or b""
    return list(dict.fromkeys(line for line in said.decode("ascii").splitlines() if line.startswith(("usb:", "ip:"))))


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
