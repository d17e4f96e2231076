"""A calibration that a run rests on: does it speak of these radios, and is the lab still as it says?

| when                   | what must hold                                                   | else                     |
|------------------------|------------------------------------------------------------------|--------------------------|
| before radios are open | not expired; noise that a bound may rest on; linear transmitters | the run is refused       |
| once they are open     | receiver, settings as read back, numerology, transmitters        | the run is refused       |
| in every silence       | the noise is within 1 dB of the record's                         | the uplink is not sent   |
|                        | it has not changed at all                                        | a warning in the metrics |

sigma of an uplink is measured in its own silence. The record's level only limits it: the smaller of the two is charged,
never the larger. A record is longer and was taken with all transmitters parked; what the receiver hears beyond that is
somebody's signal, and may be known to somebody.

A record that expires while a run is under way goes on to be used: every silence is compared with it.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from calibration.errors import MeasurementError, RecordError
from calibration.linearity import gain_change_bound
from calibration.noise import NoiseMeasurement
from calibration.pooling.agreement import NoiseChange, noise_change
from calibration.procedure import SCALE, check_lab, linearity_key
from calibration.record import CalibrationRecord, require_current
from fl.nodes.air_format import AirFormat
from hardware.lab.opened import OpenLab
from hardware.radio.errors import HardwareError
from phy.frame import sounding_samples
from phy.units import power_ratio_to_db

NOISE_TOLERANCE_DB = 1.0
"""Change of the noise since the calibration up to which it is the same receiver: 20 degrees are 0.3 dB."""
REFUSAL_ERROR = 1e-6
"""Chance of refusing an uplink although its noise has changed by less than the tolerance."""
WARNING_LEVEL = 1e-4
"""Chance of a warning although the noise has not changed."""
LARGEST_GAIN_CHANGE = 0.02
"""Largest relative difference of a transmitter's gain between its sounding, at full scale, and its payload."""


class NoiseChangedError(HardwareError):
    """The noise is not what the calibration found: nothing was sent."""


@dataclass
class CalibrationCheck:
    """source: the record's file, for messages. change: what the last silence showed, None before the first."""

    record: CalibrationRecord
    source: str
    change: NoiseChange | None = field(default=None, init=False)

    def require_usable(self, now: datetime | None = None) -> None:
        """Raise a `RecordError` where the record has expired, or no privacy may rest on its noise."""
        with self._named():
            require_current(self.record, now or datetime.now(UTC))
            if not self.record.diagnostics.bound_holds:
                raise RecordError(f"{self.record.diagnostics.verdict}; find the cause, and calibrate again")

    def applied_to(self, air: AirFormat, transmitters: Iterable[str]) -> AirFormat:
        """`air` with what the record says about these transmitters and the receiver; errors as `gain_margin`."""
        return replace(
            air,
            gain_margin=self.gain_margin(transmitters, air),
            noise_std_real_limit=self.record.noise.noise_std_real,
        )

    def gain_margin(self, transmitters: Iterable[str], air: AirFormat) -> float:
        """Factor by which no transmitter's gain differs between its sounding and its payload, at `air.confidence`.

        Raises a `RecordError` where the record does not say, or says more than `LARGEST_GAIN_CHANGE`.
        """
        sounding_rms = math.sqrt(
            float(np.mean(np.abs(sounding_samples(air.sounding)[air.sounding.sounding_slice]) ** 2))
        )
        payload_db = power_ratio_to_db((air.payload_rms / sounding_rms) ** 2)
        with self._named():
            return max(self._gain_change(name, payload_db, air.confidence) for name in transmitters)

    def _gain_change(self, name: str, payload_db: float, confidence: float) -> float:
        linearity = self.record.linearity.get(linearity_key(name, SCALE))
        if linearity is None:
            raise RecordError(f"it does not say how linear '{name}' is: bring it nearer, and calibrate again")
        try:
            change = gain_change_bound(linearity, payload_db, confidence)
        except MeasurementError as error:
            raise RecordError(
                f"'{name}': {error}, its payload's level; bring it nearer, and calibrate again"
            ) from error
        if change > 1.0 + LARGEST_GAIN_CHANGE:
            raise RecordError(
                f"the gain of '{name}' may differ by {100 * (change - 1):.2g} % between its sounding and its payload, "
                f"more than {100 * LARGEST_GAIN_CHANGE:g} %: lower its tx_gain_db where its amplifier compresses, "
                "bring it nearer where it is weak, and calibrate again"
            )
        return change

    def check_radios(self, lab: OpenLab, air: AirFormat, now: datetime | None = None) -> None:
        """Raise a `RecordError` unless the record was taken with these radios, as they read back. Nothing is sent."""
        with self._named():
            check_lab(self.record, lab, now or datetime.now(UTC), air.numerology)

    def check_silence(self, noise: NoiseMeasurement) -> None:
        """Compare the noise of a silence with the record's; `NoiseChangedError` where they have nothing in common."""
        then = self.record.noise
        try:
            self.change = change = noise_change(then, noise, REFUSAL_ERROR)
        except MeasurementError as error:
            raise NoiseChangedError(f"calibration record {self.source}: {error}") from error
        if change.beyond(NOISE_TOLERANCE_DB):
            raise NoiseChangedError(
                f"the noise has changed by {change.ratio_db:+.2f} dB ({change.ci_db[0]:+.2f} to {change.ci_db[1]:+.2f})"
                f" since the calibration, more than {NOISE_TOLERANCE_DB:g} dB: sigma_c^2 is {noise.noise_var_real:.4g},"
                f" {self.source} says {then.noise_var_real:.4g}; find the cause, or calibrate again"
            )

    @property
    def changed(self) -> bool:
        """Whether the last silence differs from the record by more than chance."""
        return self.change is not None and self.change.p_value < WARNING_LEVEL

    def metrics(self) -> dict[str, float]:
        """What the last silence showed, for the metrics of its uplink."""
        if self.change is None:
            return {}
        return {"noise_change_db": self.change.ratio_db, "noise_changed": float(self.changed)}

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except RecordError as error:
            raise type(error)(f"calibration record {self.source}: {error}") from error
