"""What was measured, bound to what it was measured with, as a JSON file.

A noise measured at another gain, rate or band, on another receiver, or last month, says nothing about the noise of
today. So the noise that an accountant may count on leaves a record only through `sigma_for`, after `check_fits`.
"""

import dataclasses
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from calibration.diagnostics import NoiseDiagnostics
from calibration.errors import MismatchedRecordError, RecordError, StaleRecordError
from calibration.jsonio import JsonValue, decode, encode
from calibration.linearity import LinearityMeasurement
from calibration.links import LinkMeasurement
from calibration.noise import NoiseMeasurement, SigmaBound, sigma_lower_bound
from calibration.timing import TimingMeasurement
from hardware.settings import RadioSettings
from phy.numerology import Numerology

SCHEMA_VERSION = 1
DEFAULT_LIFETIME = timedelta(hours=12)
# Parking a receiver lowers the transmit gain that it reads back, which changes nothing about what it hears.
RECEIVER_SETTINGS = ("sample_rate_hz", "rx_center_hz", "bandwidth_hz", "rx_gain_db")
TRANSMITTER_SETTINGS = ("sample_rate_hz", "tx_center_hz", "bandwidth_hz", "tx_gain_db")
# Settings are compared as read back, where a step of the hardware is far larger than these.
_FREQUENCY_TOLERANCE = 1e-7
_GAIN_TOLERANCE_DB = 0.01


@dataclass(frozen=True)
class CalibrationRecord:
    """One calibration of a lab.

    receiver: name of the radio that listened. settings: its settings as read back. transmitter_settings: the same of
    each transmitter in `links`. linearity, timing: by transmitter, or by any name of what was measured.
    """

    schema_version: int
    created: datetime
    expires: datetime
    versions: dict[str, str]
    receiver: str
    settings: RadioSettings
    transmitter_settings: dict[str, RadioSettings]
    numerology: Numerology
    noise: NoiseMeasurement
    diagnostics: NoiseDiagnostics
    links: dict[str, LinkMeasurement]
    linearity: dict[str, LinearityMeasurement]
    timing: dict[str, TimingMeasurement]

    def __post_init__(self) -> None:
        """Refuse a record whose parts contradict each other."""
        if self.schema_version != SCHEMA_VERSION:
            raise RecordError(
                f"schema_version is {self.schema_version}: expected {SCHEMA_VERSION}; calibrate again with this version"
            )
        for name, time in (("created", self.created), ("expires", self.expires)):
            if time.tzinfo is None:
                raise RecordError(f"{name} is {time}, a time without zone: expected UTC")
        if self.expires <= self.created:
            raise RecordError(f"expires is {self.expires}: expected a time after created, {self.created}")
        if not _same("sample_rate_hz", self.settings.sample_rate_hz, self.numerology.sample_rate_hz):
            raise RecordError(
                f"settings.sample_rate_hz is {self.settings.sample_rate_hz:.12g}: expected the numerology's "
                f"{self.numerology.sample_rate_hz:.12g}"
            )
        if self.noise.bins != tuple(self.numerology.used_bins.tolist()):
            raise RecordError("noise.bins: expected the used bins of numerology, in its order")
        for name, link in self.links.items():
            if len(link.gain_per_subcarrier) != self.numerology.data_subcarriers:
                raise RecordError(
                    f"links.{name}.gain_per_subcarrier has {len(link.gain_per_subcarrier)} entries: expected "
                    f"{self.numerology.data_subcarriers}"
                )
            if name not in self.transmitter_settings:
                raise RecordError(f"transmitter_settings lacks '{name}', which has a link: expected its settings")

    def to_json(self) -> dict[str, JsonValue]:
        """Everything, JSON-ready: what a file holds."""
        return encode(self)

    def summary_json(self) -> dict[str, JsonValue]:
        """What a person or a script wants first: noise_var_real, ci, confidence, the bound, diagnostics, links."""
        noise = self.noise.to_json()
        return {
            "noise_var_real": noise["noise_var_real"],
            "ci": noise["ci"],
            "confidence": noise["confidence"],
            "lower_bound": sigma_lower_bound(self.noise).to_json(),
            "dc": noise["dc"],
            "spurs": noise["spurs"],
            "diagnostics": self.diagnostics.to_json(),
            "links": {name: link.to_json() for name, link in self.links.items()},
            "created": self.created.isoformat(),
            "expires": self.expires.isoformat(),
            "receiver": self.receiver,
        }

    @classmethod
    def from_json(cls, value: object, where: str = "record") -> "CalibrationRecord":
        """A record from a parsed file; raises `RecordError` that names the key at fault."""
        return decode(cls, value, where)


def new_record(
    receiver: str,
    settings: RadioSettings,
    numerology: Numerology,
    noise: NoiseMeasurement,
    diagnostics: NoiseDiagnostics,
    created: datetime,
    lifetime: timedelta = DEFAULT_LIFETIME,
    links: Sequence[LinkMeasurement] = (),
    transmitter_settings: Mapping[str, RadioSettings] | None = None,
    linearity: Mapping[str, LinearityMeasurement] | None = None,
    timing: Sequence[TimingMeasurement] = (),
) -> CalibrationRecord:
    """A record made now: `created` is the time of the measurement, with a zone."""
    if created.tzinfo is None:
        raise RecordError(f"created is {created}, a time without zone: expected UTC")
    created = created.astimezone(UTC)
    return CalibrationRecord(
        schema_version=SCHEMA_VERSION,
        created=created,
        expires=created + lifetime,
        versions=measured_with(),
        receiver=receiver,
        settings=settings,
        numerology=numerology,
        noise=noise,
        diagnostics=diagnostics,
        links={link.transmitter: link for link in links},
        transmitter_settings=dict(transmitter_settings or {}),
        linearity=dict(linearity or {}),
        timing={measurement.transmitter: measurement for measurement in timing},
    )


def measured_with() -> dict[str, str]:
    """Versions that a measurement may depend on."""
    versions = {"python": platform.python_version()}
    for package in ("airdp", "numpy", "scipy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def save_record(record: CalibrationRecord, path: Path) -> None:
    """Write `record` so that after any crash `path` holds the old file or the new one, never half of one."""
    scratch = path.with_name(f".{path.name}.tmp")
    with scratch.open("w", encoding="utf-8") as file:
        json.dump(record.to_json(), file, indent=1, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load_record(path: Path) -> CalibrationRecord:
    """Read a record; raises `RecordError` that names the file and the key at fault."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_unique)
    except FileNotFoundError as error:
        raise RecordError(f"calibration record {path} does not exist: calibrate the lab first") from error
    except (OSError, ValueError) as error:
        raise RecordError(f"calibration record {path} cannot be read: {error}") from error
    except RecordError as error:
        raise RecordError(f"calibration record {path}: {error}") from error
    if isinstance(value, dict) and value.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise RecordError(
            f"calibration record {path}: schema_version is {value['schema_version']!r}: expected {SCHEMA_VERSION}; "
            "calibrate again with this version"
        )
    try:
        return CalibrationRecord.from_json(value)
    except RecordError as error:
        raise RecordError(f"calibration record {path}: {error}") from error


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        raise RecordError(f"the key '{next(name for name in names if names.count(name) > 1)}' is there twice")
    return made


def check_fits(
    record: CalibrationRecord,
    settings: RadioSettings,
    numerology: Numerology,
    now: datetime,
    receiver: str | None = None,
    transmitter_settings: Mapping[str, RadioSettings] | None = None,
) -> None:
    """Raise unless `record` was taken with what is in use now, and recently enough.

    settings: the receiver's, as read back now; transmitter_settings: those of the transmitters whose links are to be
    used. `StaleRecordError`: expired, or from the future. `MismatchedRecordError`: names every value that differs.
    """
    if now.tzinfo is None:
        raise RecordError(f"now is {now}, a time without zone: expected UTC")
    if now < record.created:
        raise StaleRecordError(
            f"the calibration was made at {_show(record.created)}, which is after now, {_show(now)}: set the clock, or "
            "calibrate again"
        )
    if now >= record.expires:
        raise StaleRecordError(
            f"the calibration of {_show(record.created)} expired at {_show(record.expires)}, now it is {_show(now)}: "
            "calibrate again"
        )
    problems = _settings_differ("", record.settings, settings, RECEIVER_SETTINGS)
    for name, current in (transmitter_settings or {}).items():
        if name not in record.transmitter_settings:
            problems.append(f"transmitter '{name}' was not there")
            continue
        taken = record.transmitter_settings[name]
        problems += _settings_differ(f"{name}.", taken, current, TRANSMITTER_SETTINGS)
    problems += [
        f"numerology.{item.name} was {getattr(record.numerology, item.name):g} and is now "
        f"{getattr(numerology, item.name):g}"
        for item in dataclasses.fields(numerology)
        if getattr(record.numerology, item.name) != getattr(numerology, item.name)
    ]
    if receiver is not None and receiver != record.receiver:
        problems.append(f"the receiver was '{record.receiver}' and is now '{receiver}'")
    if problems:
        raise MismatchedRecordError(
            f"the calibration of {_show(record.created)} was taken with other settings: {'; '.join(problems)}; "
            "calibrate again, or go back to the settings of the record"
        )


def sigma_for(
    record: CalibrationRecord,
    settings: RadioSettings,
    numerology: Numerology,
    now: datetime,
    receiver: str | None = None,
) -> SigmaBound:
    """The noise that an accountant may count on, or an error of `check_fits`: never a sigma that does not fit."""
    check_fits(record, settings, numerology, now, receiver)
    return sigma_lower_bound(record.noise)


def _settings_differ(prefix: str, taken: RadioSettings, current: RadioSettings, names: Sequence[str]) -> list[str]:
    return [
        f"{prefix}{name} was {getattr(taken, name):.12g} and is now {getattr(current, name):.12g}"
        for name in names
        if not _same(name, getattr(taken, name), getattr(current, name))
    ]


def _same(name: str, first: float, second: float) -> bool:
    if name.endswith("_db"):
        return abs(first - second) <= _GAIN_TOLERANCE_DB
    return math.isclose(first, second, rel_tol=_FREQUENCY_TOLERANCE)


def _show(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
