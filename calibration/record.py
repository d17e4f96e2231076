"""What was measured, bound to what it was measured with, as a JSON file.

A noise measured at another gain, rate or band, on another receiver, or last month, says nothing about the noise of
today. So a record is used only after `check_fits`, and a run compares it with every silence of its own.
"""

import dataclasses
import json
import math
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import AwareDatetime, ValidationError

from calibration.diagnostics import NoiseDiagnostics
from calibration.errors import MismatchedRecordError, RecordError, StaleRecordError
from calibration.linearity import LinearityMeasurement
from calibration.links import LinkMeasurement
from calibration.noise import NoiseMeasurement, sigma_lower_bound
from calibration.schema import Foreign, JsonValue, from_json, measurement, to_json
from calibration.timing import TimingMeasurement
from hardware.foundation.documents import DocumentError, parse_json, read_bounded
from hardware.foundation.durable import write_atomically
from hardware.foundation.sections import explain
from hardware.radio.settings import RadioSettings
from phy.errors import AirdpError
from phy.numerology import Numerology

SCHEMA_VERSION = 1
DEFAULT_LIFETIME = timedelta(hours=12)
# Parking a receiver lowers the transmit gain that it reads back, which changes nothing about what it hears.
RECEIVER_SETTINGS = ("sample_rate_hz", "rx_center_hz", "bandwidth_hz", "rx_gain_db")
TRANSMITTER_SETTINGS = ("sample_rate_hz", "tx_center_hz", "bandwidth_hz", "tx_gain_db")
# Settings are compared as read back, where a step of the hardware is far larger than these.
_FREQUENCY_TOLERANCE = 1e-7
_GAIN_TOLERANCE_DB = 0.01
_MOST_PROBLEMS = 3


@measurement
class CalibrationRecord:
    """One calibration of a lab.

    receiver: name of the radio that listened. settings: its settings as read back. transmitter_settings: the same of
    each transmitter in `links`. linearity, timing: by transmitter, or by any name of what was measured.
    """

    schema_version: int
    created: AwareDatetime
    expires: AwareDatetime
    versions: dict[str, str]
    receiver: str
    settings: Foreign[RadioSettings]
    transmitter_settings: dict[str, Foreign[RadioSettings]]
    numerology: Foreign[Numerology]
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

    def summary_json(self) -> dict[str, JsonValue]:
        """What a person or a script wants first: noise_var_real, ci, confidence, the bound, diagnostics, links."""
        noise, bound = to_json(self.noise), sigma_lower_bound(self.noise)
        return {
            "noise_var_real": noise["noise_var_real"],
            "ci": noise["ci"],
            "confidence": noise["confidence"],
            "lower_bound": {"noise_std_real": bound.noise_std_real, **to_json(bound)},
            "dc": noise["dc"],
            "spurs": noise["spurs"],
            "diagnostics": to_json(self.diagnostics),
            "links": {name: to_json(link) for name, link in self.links.items()},
            "created": self.created.isoformat(),
            "expires": self.expires.isoformat(),
            "receiver": self.receiver,
        }


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
    write_atomically(path, json.dumps(to_json(record), indent=1, allow_nan=False).encode() + b"\n")


def load_record(path: Path) -> CalibrationRecord:
    """Read a record; raises `RecordError` that names the file and the key at fault."""
    return parse_record(read_record(path), str(path))


def read_record(path: Path) -> bytes:
    """The content of a record's file, not looked at; raises `RecordError` where it cannot be read."""
    try:
        return read_bounded(path)
    except FileNotFoundError as error:
        raise RecordError(f"calibration record {path} does not exist: calibrate the lab first") from error
    except (OSError, DocumentError) as error:
        raise RecordError(f"calibration record {path} cannot be read: {error}") from error


def parse_record(content: bytes, source: str) -> CalibrationRecord:
    """The record that a file's content is. source: the file, which a `RecordError` names beside the key at fault."""
    try:
        value = parse_json(content, unique=True)
    except DocumentError as error:
        raise RecordError(f"calibration record {source} cannot be read: {error}") from error
    if isinstance(value, dict) and value.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise RecordError(
            f"calibration record {source}: schema_version is {value['schema_version']!r}: expected {SCHEMA_VERSION}; "
            "calibrate again with this version"
        )
    try:
        return from_json(CalibrationRecord, content)
    except ValidationError as error:
        raise RecordError(f"calibration record {source}: {explain(error, None, value, most=_MOST_PROBLEMS)}") from error
    # What sections refuse by themselves, and numbers that overflow on the way.
    except (AirdpError, ArithmeticError) as error:
        raise RecordError(f"calibration record {source}: {error}") from error


def require_current(record: CalibrationRecord, now: datetime) -> None:
    """Raise `StaleRecordError` for a record that has expired, or comes from the future. now: with a zone."""
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
    require_current(record, now)
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
