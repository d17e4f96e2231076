"""A lab: its radios by role, what they are set to, what they may do, and the backend that they are reached through."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

from hardware.lab.clock import ClockMode
from hardware.lab.discovery import Discovery
from hardware.lab.emulation import Emulation, EmulationSettings
from hardware.lab.one_count import OneCount
from hardware.lab.requirements import Requirement
from hardware.lab.section import BackendSection
from hardware.lab.simulation import SimulatedAir, VirtualTime
from hardware.lab.traits import Traits
from hardware.radio.contract import Radio
from hardware.radio.errors import HardwareError, LabFileError
from hardware.radio.settings import Limits, RadioSettings

_SectionT = TypeVar("_SectionT", bound=BackendSection)


class Role(StrEnum):
    """What a radio is for."""

    PS = "ps"
    CLIENT = "client"
    JAMMER = "jammer"
    OBSERVER = "observer"


_ROLES = ((Role.PS, 1, 1), (Role.CLIENT, 1, None), (Role.JAMMER, 0, 1), (Role.OBSERVER, 0, None))
"""How many radios of a lab have each, at least and at most."""


@dataclass(frozen=True)
class Connection:
    """Radios by name, open and not configured; the air where it is simulated, and time where it is virtual."""

    radios: Mapping[str, Radio]
    air: SimulatedAir | None = None
    time: VirtualTime | None = None


@dataclass(frozen=True)
class Backend:
    """A way to reach radios, and all that anybody outside of its room knows about it.

    sections: of a lab file, by name. traits: what a lab is like. connect: (lab, seed of the simulated air, stack) to
    the lab's radios, each entered into the stack as soon as it is open. align: gives the radios one count of samples
    where they have not got it by themselves, and returns the names of those whose count changed. requirements: what
    must be installed. emulate: serves a lab's radios as virtual ones, whatever backend the lab is on; emulates: the
    kind of device that drivers take them for, where they do. connect_one: opens a single radio of a lab by its name,
    where the others belong to other processes; one_count: what `align` is for them then. hints: what to write in a lab
    file, by words that somebody may take for the name of this backend.
    """

    name: str
    sections: Mapping[str, type[BackendSection]]
    traits: Callable[["Lab"], Traits]
    connect: Callable[["Lab", int, ExitStack], Connection]
    align: Callable[["Lab", Mapping[str, Radio]], tuple[str, ...]] | None = None
    discovery: Discovery | None = None
    requirements: Callable[[], Sequence[Requirement]] = tuple
    emulate: Callable[["Lab", EmulationSettings], AbstractContextManager[Emulation]] | None = None
    emulates: str | None = None
    connect_one: Callable[["Lab", str, ExitStack], Connection] | None = None
    one_count: OneCount | None = None
    hints: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LabRadio:
    """One radio of a lab. address: where its backend finds it. receives: whether its receiver is used."""

    name: str
    role: Role
    settings: RadioSettings
    receives: bool
    address: str = ""


@dataclass(frozen=True)
class Lab:
    """All that is known about a lab before it is opened. A lab that exists can be opened on its backend.

    sections: of all backends, by name; see `section`. source: what messages call it.
    """

    name: str
    backend: Backend
    clock_mode: ClockMode
    radios: tuple[LabRadio, ...]
    limits: Limits
    timeout_s: float = 5.0
    sections: Mapping[str, BackendSection] = field(default_factory=dict)
    source: str = "lab"

    def __post_init__(self) -> None:
        """Refuse labs that cannot work, with the reason and the place."""
        names = [radio.name for radio in self.radios]
        for name, count in Counter(names).items():
            if count > 1:
                raise self._error(f"there are {count} radios named '{name}': names must differ")
        self._check_roles()
        for radio in self.radios:
            if radio.settings.sample_rate_hz != self.sample_rate_hz:
                raise self._error(f"'{radio.name}' and '{self.ps.name}' have different sample rates: expected one")
        try:
            for section in self.sections.values():
                section.check_radios(names)
            capabilities = self.traits.capabilities
            for radio in self.radios:
                self.limits.check(radio.settings, radio.name)
                capabilities.check(radio.settings, radio.name)
        except HardwareError as error:
            raise self._error(str(error)) from error

    def _check_roles(self) -> None:
        for role, least, most in _ROLES:
            held = [radio.name for radio in self.radios if radio.role is role]
            if len(held) < least or (most is not None and len(held) > most):
                expected = "at least 1" if most is None else "exactly 1" if least else "at most 1"
                listed = f" ({', '.join(held)})" if held else ""
                raise self._error(f"{len(held)} radios have the role '{role}'{listed}: expected {expected}")
        for radio in (self.ps, *self.observers):
            if not radio.receives:
                raise self._error(f"the {radio.role} '{radio.name}' has receives = false: it must receive")

    def _error(self, message: str) -> LabFileError:
        return LabFileError(f"{self.source}: {message}")

    @property
    def sample_rate_hz(self) -> float:
        """Common to all radios."""
        return self.ps.settings.sample_rate_hz

    @property
    def traits(self) -> Traits:
        """What the lab is like on its backend."""
        return self.backend.traits(self)

    @property
    def ps(self) -> LabRadio:
        """The parameter server's radio."""
        return next(radio for radio in self.radios if radio.role is Role.PS)

    @property
    def clients(self) -> tuple[LabRadio, ...]:
        """The clients' radios, in the file's order."""
        return tuple(radio for radio in self.radios if radio.role is Role.CLIENT)

    @property
    def jammer(self) -> LabRadio | None:
        """The jammer's radio, where there is one."""
        return next((radio for radio in self.radios if radio.role is Role.JAMMER), None)

    @property
    def observers(self) -> tuple[LabRadio, ...]:
        """Radios that only listen, in the file's order."""
        return tuple(radio for radio in self.radios if radio.role is Role.OBSERVER)

    @cached_property
    def _by_name(self) -> dict[str, LabRadio]:
        return {radio.name: radio for radio in self.radios}

    def radio(self, name: str) -> LabRadio:
        """The radio of that name."""
        found = self._by_name.get(name)
        if found is None:
            raise self._error(f"there is no radio '{name}': there are {', '.join(one.name for one in self.radios)}")
        return found

    def address_of(self, name: str) -> str:
        """Where the backend finds a radio; `LabFileError` where the lab does not say."""
        address = self.radio(name).address
        if not address:
            raise self._error(f"'{name}' has no address: its own process can only reach it by one")
        return address

    def section(self, name: str, kind: type[_SectionT]) -> _SectionT:
        """The section `name`, which is of this kind; its defaults where the lab has none."""
        found = self.sections.get(name)
        if found is None:
            return kind()
        if not isinstance(found, kind):
            raise self._error(f"the section [{name}] is of the kind {type(found).__name__}: expected {kind.__name__}")
        return found

    def to_tables(self) -> dict[str, Any]:
        """The tables of a lab file that `parse_lab` makes an equal lab of, but for its source.

        Sections of other backends are there where they say anything.
        """
        common = self.ps.settings
        limits = {"band_hz": list(self.limits.band_hz), "max_tx_gain_db": self.limits.max_tx_gain_db}
        if self.limits.max_rx_gain_db is not None:
            limits["max_rx_gain_db"] = self.limits.max_rx_gain_db
        return {
            "lab": {
                "name": self.name,
                "backend": self.backend.name,
                "sample_rate_hz": common.sample_rate_hz,
                "center_hz": common.rx_center_hz,
                "bandwidth_hz": common.bandwidth_hz,
                "tx_gain_db": common.tx_gain_db,
                "rx_gain_db": common.rx_gain_db,
                "clock": self.clock_mode.value,
                "timeout_s": self.timeout_s,
            },
            "limits": limits,
            "radio": [
                {
                    "name": radio.name,
                    "role": radio.role.value,
                    "address": radio.address,
                    "tx_gain_db": radio.settings.tx_gain_db,
                    "rx_gain_db": radio.settings.rx_gain_db,
                    "receives": radio.receives,
                }
                for radio in self.radios
            ],
            **{
                name: section.model_dump(mode="json", exclude_none=True)
                for name, section in self.sections.items()
                if name in self.backend.sections or section != type(section)()
            },
        }
