"""A lab: its radios by role, what they are set to, what they may do, and the backend that they are reached through.

A lab file is TOML:

    [lab]                            # name, backend, sample_rate_hz, center_hz, bandwidth_hz, tx_gain_db, rx_gain_db,
    name = "bench"                   # clock ("shared" or "free-running"), timeout_s
    …
    [limits]                         # what no radio of the lab may go beyond
    band_hz = [2.44e9, 2.46e9]
    max_tx_gain_db = -10.0
    [[radio]]                        # exactly one ps, one or more clients, at most one jammer
    name = "ps"
    role = "ps"
    [[radio]]
    name = "client"                  # with a count: client-1, client-2, …
    role = "client"
    count = 5
    [medium]                         # for simulated air: see `hardware.medium_settings`
    [pluto]                          # for Plutos: see `hardware.pluto_settings`
    [gnuradio]                       # for flowgraphs: see `hardware.gnuradio_settings`

Sections for one backend are ignored by the others, so that a lab file moves from one to another as it is.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Protocol, Self

from pydantic import Field, ValidationError, model_validator

from hardware.errors import HardwareError, LabFileError
from hardware.gnuradio_settings import GnuRadioSettings
from hardware.medium import ClockMode, Medium
from hardware.medium_settings import Finite, MediumSettings, Pair
from hardware.pluto_settings import PlutoSettings
from hardware.radio import Radio
from hardware.sections import Section, choice, explain, nearest
from hardware.settings import Capabilities, Limits, RadioSettings

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Role(StrEnum):
    """What a radio is for."""

    PS = "ps"
    CLIENT = "client"
    JAMMER = "jammer"


class Air(Protocol):
    """Simulated air, here or in another process."""

    def new_block(self, block: int) -> None:
        """Begin fading block `block`."""
        ...


@dataclass(frozen=True)
class Backend:
    """A way to reach radios.

    connect: (lab, seed, stack) to the lab's radios by name, each entered into the stack as soon as it is open, and the
    air where it is simulated. align: gives the radios one count of samples where they have not got it by themselves,
    and returns the names of those whose count changed.
    """

    capabilities: Capabilities
    connect: Callable[["Lab", int, ExitStack], tuple[dict[str, Radio], Air | None]]
    align: Callable[["OpenLab"], tuple[str, ...]] | None = None


def _loopback() -> Backend:
    from hardware.loopback import BACKEND

    return BACKEND


def _pluto() -> Backend:
    from hardware.pluto_lab import BACKEND

    return BACKEND


def _pluto_virtual() -> Backend:
    from hardware.pluto_virtual import BACKEND

    return BACKEND


def _gnuradio() -> Backend:
    from hardware.gnuradio import BACKEND

    return BACKEND


# Functions, because a backend may import what is not installed everywhere.
BACKENDS: Mapping[str, Callable[[], Backend]] = {
    "loopback": _loopback,
    "pluto": _pluto,
    "pluto-virtual": _pluto_virtual,
    "gnuradio": _gnuradio,
}


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
    """All that is known about a lab before it is opened. A lab that exists can be opened on its backend."""

    name: str
    backend: str
    clock_mode: ClockMode
    radios: tuple[LabRadio, ...]
    limits: Limits
    timeout_s: float = 5.0
    medium: MediumSettings = field(default_factory=MediumSettings)
    source: str = "lab"
    pluto: PlutoSettings = field(default_factory=PlutoSettings)
    gnuradio: GnuRadioSettings = field(default_factory=GnuRadioSettings)

    def __post_init__(self) -> None:
        """Refuse labs that cannot work, with the reason and the place."""
        if self.backend not in BACKENDS:
            known = ", ".join(BACKENDS)
            raise self._error(f"backend '{self.backend}' is not one of {known}{nearest(self.backend, BACKENDS)}")
        names = [radio.name for radio in self.radios]
        for name in names:
            if names.count(name) > 1:
                raise self._error(f"there are {names.count(name)} radios named '{name}': names must differ")
        self._check_roles()
        for radio in self.radios:
            if radio.settings.sample_rate_hz != self.sample_rate_hz:
                raise self._error(f"'{radio.name}' and '{self.ps.name}' have different sample rates: expected one")
        capabilities = BACKENDS[self.backend]().capabilities
        try:
            self.medium.check_names(names)
            for radio in self.radios:
                self.limits.check(radio.settings, radio.name)
                capabilities.check(radio.settings, radio.name)
        except HardwareError as error:
            raise self._error(str(error)) from error

    def _check_roles(self) -> None:
        for role, least, most in ((Role.PS, 1, 1), (Role.CLIENT, 1, None), (Role.JAMMER, 0, 1)):
            held = [radio.name for radio in self.radios if radio.role is role]
            if len(held) < least or (most is not None and len(held) > most):
                expected = "at least 1" if most is None else "exactly 1" if least else "at most 1"
                listed = f" ({', '.join(held)})" if held else ""
                raise self._error(f"{len(held)} radios have the role '{role}'{listed}: expected {expected}")
        if not self.ps.receives:
            raise self._error(f"the ps '{self.ps.name}' has receives = false: it must receive")

    def _error(self, message: str) -> LabFileError:
        return LabFileError(f"{self.source}: {message}")

    @property
    def sample_rate_hz(self) -> float:
        """Common to all radios."""
        return self.ps.settings.sample_rate_hz

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

    def to_tables(self) -> dict[str, Any]:
        """The tables of a lab file that `parse_lab` makes an equal lab of, but for its source."""
        common = self.ps.settings
        limits = {"band_hz": list(self.limits.band_hz), "max_tx_gain_db": self.limits.max_tx_gain_db}
        if self.limits.max_rx_gain_db is not None:
            limits["max_rx_gain_db"] = self.limits.max_rx_gain_db
        return {
            "lab": {
                "name": self.name,
                "backend": self.backend,
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
            "medium": self.medium.model_dump(mode="json", exclude_none=True),
            "pluto": self.pluto.model_dump(mode="json"),
            "gnuradio": self.gnuradio.model_dump(mode="json"),
        }

    def on_backend(self, backend: str) -> "Lab":
        """The same lab reached through another backend."""
        return replace(self, backend=backend)


@dataclass(frozen=True)
class OpenLab:
    """Radios of an open lab, configured as the lab says.

    medium: the simulated air where it is in this process. air: the same, or the one that another process simulates;
    None for real radios.
    """

    lab: Lab
    radios: Mapping[str, Radio]
    medium: Medium | None
    air: Air | None = None

    @property
    def ps(self) -> Radio:
        """The parameter server's radio."""
        return self.radios[self.lab.ps.name]

    @property
    def clients(self) -> tuple[Radio, ...]:
        """The clients' radios, in the file's order."""
        return tuple(self.radios[radio.name] for radio in self.lab.clients)

    @property
    def jammer(self) -> Radio | None:
        """The jammer's radio, where there is one."""
        return None if self.lab.jammer is None else self.radios[self.lab.jammer.name]

    def new_block(self, block: int) -> None:
        """Begin fading block `block` in a simulated air; a real one fades by itself."""
        if self.air is not None:
            self.air.new_block(block)

    def ready(self) -> tuple[str, ...]:
        """Make sure that all radios that are not parked count alike; call it before anything is planned in samples.

        Radios that count alike by themselves do nothing. Others may transmit for it, and raise a `HardwareError` where
        it does not work. Returns the names of radios whose count changed: what was learnt about it before is void.
        """
        align = BACKENDS[self.lab.backend]().align
        return () if align is None else align(self)

    @property
    def _lead_samples(self) -> int:
        return max(radio.lead_samples for radio in self.radios.values())

    def start_sample(self, margin_samples: int = 0) -> int:
        """A sample that no radio has passed and in which none is busy, `margin_samples` and the radios' lead later."""
        return max(radio.now() for radio in self.radios.values()) + self._lead_samples + margin_samples

    def not_before(self, planned_sample: int) -> int:
        """`planned_sample`, or the first one at which all radios can still send, where they need a lead for that."""
        return max(planned_sample, self.start_sample()) if self._lead_samples else planned_sample


@contextmanager
def open_lab(lab: Lab, seed: int) -> Iterator[OpenLab]:
    """Connect to all radios and configure them; park and close all of them however the block is left.

    seed: of the simulated air, where the backend has one.
    """
    with ExitStack() as stack:
        radios, air = BACKENDS[lab.backend]().connect(lab, seed, stack)
        for radio in lab.radios:
            radios[radio.name].configure(radio.settings)
        yield OpenLab(lab, radios, air if isinstance(air, Medium) else None, air)


class _LabSection(Section):
    name: str = "lab"
    backend: str
    sample_rate_hz: Positive
    center_hz: Positive
    bandwidth_hz: Positive | None = None
    tx_gain_db: Finite
    rx_gain_db: Finite
    clock: Annotated[ClockMode, choice(ClockMode)] = ClockMode.SHARED
    timeout_s: Positive = 5.0


class _LimitsSection(Section):
    band_hz: Pair
    max_tx_gain_db: Finite
    max_rx_gain_db: Finite | None = None


class _RadioSection(Section):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
    role: Annotated[Role, choice(Role)]
    count: Annotated[int, Field(ge=1)] | None = None
    address: str = ""
    tx_gain_db: Finite | None = None
    rx_gain_db: Finite | None = None
    receives: bool | None = None

    @model_validator(mode="after")
    def _check_address(self) -> Self:
        if self.address and self.count is not None:
            raise ValueError("an address is for one radio: write one [[radio]] for each instead of a count")
        return self

    def names(self) -> list[str]:
        return [self.name] if self.count is None else [f"{self.name}-{number + 1}" for number in range(self.count)]


class _LabFile(Section):
    lab: _LabSection
    limits: _LimitsSection
    radio: list[_RadioSection]
    medium: MediumSettings = MediumSettings()
    pluto: PlutoSettings = PlutoSettings()
    gnuradio: GnuRadioSettings = GnuRadioSettings()


def shipped_labs() -> dict[str, Path]:
    """Name and file of each lab that ships."""
    return {path.stem: path for path in sorted((Path(__file__).parent / "labs").glob("*.toml"))}


def find_lab(source: str) -> Lab:
    """The lab that `source` names: one that ships, or the path of a lab file."""
    shipped = shipped_labs()
    path = shipped.get(source, Path(source))
    if not path.is_file():
        known = ", ".join(shipped)
        raise LabFileError(f"no lab '{source}': expected a lab file or one of {known}{nearest(source, shipped)}")
    return load_lab(path)


def load_lab(path: Path) -> Lab:
    """Read a lab file; raises `LabFileError` with every problem in one line."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise LabFileError(f"lab file {path} cannot be read: {error}") from error
    return parse_lab(data, str(path))


def parse_lab(data: Mapping[str, Any], source: str = "lab") -> Lab:
    """The lab that the tables of a lab file describe. source: what messages call it."""
    try:
        file = _LabFile.model_validate(dict(data))
        limits = Limits(file.limits.band_hz, file.limits.max_tx_gain_db, file.limits.max_rx_gain_db)
    except ValidationError as error:
        raise LabFileError(f"{source}: {explain(error, _LabFile, data)}") from error
    except HardwareError as error:
        raise LabFileError(f"{source}: {error}") from error
    return Lab(
        name=file.lab.name,
        backend=file.lab.backend,
        clock_mode=file.lab.clock,
        radios=tuple(_lab_radio(file.lab, section, name) for section in file.radio for name in section.names()),
        limits=limits,
        timeout_s=file.lab.timeout_s,
        medium=file.medium,
        source=source,
        pluto=file.pluto,
        gnuradio=file.gnuradio,
    )


def _lab_radio(lab: _LabSection, section: _RadioSection, name: str) -> LabRadio:
    return LabRadio(
        name=name,
        role=section.role,
        settings=RadioSettings(
            sample_rate_hz=lab.sample_rate_hz,
            tx_center_hz=lab.center_hz,
            rx_center_hz=lab.center_hz,
            bandwidth_hz=lab.sample_rate_hz if lab.bandwidth_hz is None else lab.bandwidth_hz,
            tx_gain_db=lab.tx_gain_db if section.tx_gain_db is None else section.tx_gain_db,
            rx_gain_db=lab.rx_gain_db if section.rx_gain_db is None else section.rx_gain_db,
        ),
        receives=section.role is Role.PS if section.receives is None else section.receives,
        address=section.address,
    )
