"""Lab files.

A lab file is TOML:

    [lab]                            # name, backend, sample_rate_hz, center_hz, bandwidth_hz, tx_gain_db, rx_gain_db,
    name = "bench"                   # clock ("shared" or "free-running"), timeout_s
    …
    [limits]                         # what no radio of the lab may go beyond
    band_hz = [2.44e9, 2.46e9]
    max_tx_gain_db = -10.0
    [[radio]]                        # one ps, one or more clients, at most one jammer, any observers
    name = "ps"
    role = "ps"
    [[radio]]
    name = "client"                  # with a count: client-1, client-2, …
    role = "client"
    count = 5
    [medium]                         # sections that backends bring: see the modules `settings` of their rooms
    …

Sections for one backend are ignored by the others, so that a lab file moves from one to another as it is.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, create_model, model_validator

from hardware.foundation.documents import DocumentError, read_toml
from hardware.foundation.sections import Finite, Pair, Positive, Section, choice, explain, nearest
from hardware.lab.addresses import require_one_kind
from hardware.lab.clock import ClockMode
from hardware.lab.model import Lab, LabRadio, Role
from hardware.lab.registry import find_backend, registry
from hardware.radio.errors import HardwareError, LabFileError, MixedLabError
from hardware.radio.settings import Limits, RadioSettings


class _LabSection(Section):
    """[lab] What all radios have in common."""

    name: str = "lab"
    """What messages and records call the lab."""
    backend: str
    """How the radios are reached."""
    sample_rate_hz: Positive
    """Of every radio, in both directions."""
    center_hz: Positive
    """Carrier of every radio, in both directions."""
    bandwidth_hz: Positive | None = None
    """Of the analog filters; not given: the sample rate."""
    tx_gain_db: Finite
    """Of every transmitter that has none of its own; on an AD936x 0 is the highest power."""
    rx_gain_db: Finite
    """Of every receiver that has none of its own."""
    clock: Annotated[ClockMode, choice(ClockMode)] = ClockMode.SHARED
    """`shared`: one reference for all radios; `free-running`: carriers and counters drift apart and are measured."""
    timeout_s: Positive = 5.0
    """Seconds after which a radio that has not answered is an error."""


class _LimitsSection(Section):
    """[limits] What no radio of the lab may go beyond; checked before anything is written to a radio."""

    band_hz: Pair
    """Lowest and highest frequency of anything that is sent, its bandwidth included."""
    max_tx_gain_db: Finite
    """Largest transmit gain."""
    max_rx_gain_db: Finite | None = None
    """Largest receive gain; not given: what the radio can."""


class _RadioSection(Section):
    """[radio] One radio, or several of a kind: exactly one `ps`, one or more clients, at most one jammer,
    any number of observers."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
    """Different for every radio of the lab."""
    role: Annotated[Role, choice(Role)]
    """`ps`: the parameter server; `client`; `jammer`; `observer`: listens only, see the option of `airdp validate`."""
    count: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Of radios of this kind, named NAME-1, NAME-2, …; not given: one, named NAME."""
    address: str = ""
    """Where the backend finds the radio, for backends of hardware; a radio with an address has no count."""
    tx_gain_db: Finite | None = None
    """Not given: the lab's."""
    rx_gain_db: Finite | None = None
    """Not given: the lab's."""
    receives: bool | None = None
    """Whether its receiver is used; not given: those of the `ps` and of observers are, those of others are not."""

    @model_validator(mode="after")
    def _check_address(self) -> Self:
        if self.address and self.count is not None:
            raise ValueError("an address is for one radio: write one [[radio]] for each instead of a count")
        return self

    def names(self) -> list[str]:
        return [self.name] if self.count is None else [f"{self.name}-{number + 1}" for number in range(self.count)]


class _LabFile(Section):
    """What every lab file has; the sections of backends are added to it."""

    lab: _LabSection
    limits: _LimitsSection
    radio: list[_RadioSection]


def lab_file_model() -> type[_LabFile]:
    """All that a lab file may hold: what every lab has, and the sections that backends bring."""
    optional: dict[str, Any] = {name: (kind, kind()) for name, kind in registry().sections.items()}
    return create_model("LabFile", __base__=_LabFile, **optional)


def shipped_labs() -> dict[str, Path]:
    """Name and file of each lab that ships."""
    return {path.stem: path for path in sorted((Path(__file__).parents[1] / "labs").glob("*.toml"))}


def find_lab(source: str, backend: str | None = None) -> Lab:
    """The lab that `source` names: one that ships, or the path of a lab file. backend: instead of the file's own."""
    shipped = shipped_labs()
    path = shipped.get(source, Path(source))
    if not path.is_file():
        known = ", ".join(shipped)
        raise LabFileError(f"no lab '{source}': expected a lab file or one of {known}{nearest(source, shipped)}")
    lab = load_lab(path)
    return on_backend(lab, backend) if backend else lab


def on_backend(lab: Lab, backend: str) -> Lab:
    """The same lab reached through another backend."""
    try:
        return replace(lab, backend=find_backend(backend))
    except LabFileError:
        raise
    except HardwareError as error:
        raise LabFileError(f"{lab.source}: {error}") from error


def load_lab(path: Path) -> Lab:
    """Read a lab file; raises `LabFileError` with every problem in one line."""
    try:
        data = read_toml(path)
    except (DocumentError, OSError) as error:
        raise LabFileError(f"lab file {path} cannot be read: {error}") from error
    return parse_lab(data, str(path))


def parse_lab(data: Mapping[str, Any], source: str = "lab") -> Lab:
    """The lab that the tables of a lab file describe. source: what messages call it."""
    model = lab_file_model()
    _require_one_backend(data, source)
    try:
        file = model.model_validate(dict(data))
        limits = Limits(file.limits.band_hz, file.limits.max_tx_gain_db, file.limits.max_rx_gain_db)
        backend = find_backend(file.lab.backend)
    except ValidationError as error:
        raise LabFileError("; ".join([f"{source}: {explain(error, model, data)}", *_missing(error)])) from error
    except HardwareError as error:
        raise LabFileError(f"{source}: {error}") from error
    lab = Lab(
        name=file.lab.name,
        backend=backend,
        clock_mode=file.lab.clock,
        radios=tuple(_lab_radio(file.lab, section, name) for section in file.radio for name in section.names()),
        limits=limits,
        timeout_s=file.lab.timeout_s,
        sections={name: getattr(file, name) for name in registry().sections},
        source=source,
    )
    require_one_kind(lab)
    return lab


def _require_one_backend(data: Mapping[str, Any], source: str) -> None:
    """`MixedLabError` where a radio is to be reached in another way than the lab."""
    radios = data.get("radio")
    for radio in radios if isinstance(radios, list) else []:
        if isinstance(radio, dict) and "backend" in radio:
            raise MixedLabError(
                f"{source}: '{radio.get('name', 'a radio')}' has a backend of its own ({radio['backend']}): all radios "
                "of a lab are reached through the one that [lab] names, and are of one kind; make two labs of it"
            )


def _missing(error: ValidationError) -> tuple[str, ...]:
    """Which backends cannot be used, where a section is unknown: it may be one of theirs."""
    unknown = any(problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1 for problem in error.errors())
    return registry().problems if unknown else ()


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
        receives=section.role in (Role.PS, Role.OBSERVER) if section.receives is None else section.receives,
        address=section.address,
    )
