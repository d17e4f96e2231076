"""How radios of a kind are found, and what one says about itself. Nothing is set and nothing is sent."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hardware.foundation.child_processes import child_environment
from hardware.radio.settings import Capabilities


@dataclass(frozen=True)
class RadioInfo:
    """What a radio says. uris: all addresses under which it was found. virtual: how an emulated one keeps time.

    temperature_c: None where it has no sensor. details: what else there is to say about its kind, by name.
    """

    uris: tuple[str, ...]
    serial: str
    model: str
    firmware: str
    virtual: str
    temperature_c: float | None
    capabilities: Capabilities
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Discovery:
    """kind: what the radios are called. schemes: how their addresses begin.

    find: all that can be found, and what is wrong with those that fail. describe: the radio at an address,
    `HardwareError` where there is none. checks: what to look at where none is found.
    """

    kind: str
    schemes: tuple[str, ...]
    find: Callable[[], tuple[Sequence[RadioInfo], Sequence[str]]]
    describe: Callable[[str], RadioInfo]
    checks: tuple[str, ...]


def scan_apart(module: str, schemes: tuple[str, ...], seconds: float) -> list[str]:
    """Addresses that `python -m MODULE` prints as lines, of those that begin in one of these ways, each once.

    A process of its own, because libraries ask every network and every bus, and may take long: what it has found until
    then counts.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", module],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            env=child_environment(),
            check=False,
        )
        said = done.stdout
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
    lines = said.decode("ascii", "replace").splitlines()
    return list(dict.fromkeys(line for line in lines if line.startswith(schemes)))
