"""Loopback addresses for virtual radios: a block of 256 for each emulator."""

import ipaddress
import os
import time
from collections.abc import Iterator

from hardware.radio.errors import HardwareError

# Blocks 127.64.0.0/24 to 127.127.255.0/24 are tried, beginning at one that depends on the process.
_FIRST_BLOCK, _BLOCKS = 64 << 8, 64 << 8
_TRIES = 256


def bases(host_base: str | None) -> Iterator[ipaddress.IPv4Address]:
    """Network addresses to try: `host_base` alone, or, where there is none, blocks that others hardly use."""
    if host_base is not None:
        try:
            yield ipaddress.IPv4Address(host_base)
        except ValueError as error:
            raise HardwareError(f"host_base is '{host_base}': expected an address such as 127.20.0.0") from error
        return
    first = os.getpid() * 37 + time.monotonic_ns() % 1009
    for number in range(_TRIES):
        block = _FIRST_BLOCK + (first + number) % _BLOCKS
        yield ipaddress.IPv4Address((127 << 24) | (block << 8))
