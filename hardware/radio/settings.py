"""What a radio is set to, what it can be set to, and what a lab allows it to be set to."""

import math
from dataclasses import dataclass, fields

from hardware.radio.errors import CapabilityError, HardwareError, LimitError

FREQUENCY_TOLERANCE_PPM = 1.0
"""How far a rate, a centre frequency or a bandwidth may read back from what was written."""
GAIN_TOLERANCE_DB = 0.13
"""How far a gain may read back: half of a 0.25 dB step, and rounding."""


@dataclass(frozen=True)
class RadioSettings:
    """Everything that a measurement with a radio depends on. Gains are those of the backend's own scale."""

    sample_rate_hz: float
    tx_center_hz: float
    rx_center_hz: float
    bandwidth_hz: float
    tx_gain_db: float
    rx_gain_db: float

    def __post_init__(self) -> None:
        """Refuse what no radio can be set to."""
        for name in _names():
            value = getattr(self, name)
            if not math.isfinite(value) or (name.endswith("_hz") and value <= 0):
                expected = "a finite number above 0" if name.endswith("_hz") else "a finite number"
                raise HardwareError(f"{name} is {value}: expected {expected}")

    def differences(self, actual: "RadioSettings") -> list[str]:
        """One line for each setting of `actual` that is further from this one than its tolerance."""
        problems = []
        for name in _names():
            wanted, got = getattr(self, name), getattr(actual, name)
            tolerance = wanted * FREQUENCY_TOLERANCE_PPM * 1e-6 if name.endswith("_hz") else GAIN_TOLERANCE_DB
            if abs(got - wanted) > tolerance:
                problems.append(f"{name} was set to {wanted:.12g} and reads back as {got:.12g}")
        return problems


def _names() -> list[str]:
    return [field.name for field in fields(RadioSettings)]


@dataclass(frozen=True)
class Capabilities:
    """Lowest and highest value of each setting that a radio can do, and the steps of its gains.

    gain_scale: what 0 dB means, in words for who has to choose gains.
    """

    sample_rate_hz: tuple[float, float]
    center_hz: tuple[float, float]
    bandwidth_hz: tuple[float, float]
    tx_gain_db: tuple[float, float]
    rx_gain_db: tuple[float, float]
    tx_gain_step_db: float
    rx_gain_step_db: float
    gain_scale: str = ""

    def __post_init__(self) -> None:
        """Refuse empty ranges and steps."""
        for name in ("sample_rate_hz", "center_hz", "bandwidth_hz", "tx_gain_db", "rx_gain_db"):
            checked_range(name, getattr(self, name))
        for name in ("tx_gain_step_db", "rx_gain_step_db"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise HardwareError(f"{name} is {getattr(self, name)}: expected a finite number above 0")

    def check(self, settings: RadioSettings, radio: str) -> None:
        """Raise `CapabilityError` for the first setting that `radio` cannot do."""
        for name, value, (low, high), unit in (
            ("sample_rate_hz", settings.sample_rate_hz, self.sample_rate_hz, "S/s"),
            ("tx_center_hz", settings.tx_center_hz, self.center_hz, "Hz"),
            ("rx_center_hz", settings.rx_center_hz, self.center_hz, "Hz"),
            ("bandwidth_hz", settings.bandwidth_hz, self.bandwidth_hz, "Hz"),
            ("tx_gain_db", settings.tx_gain_db, self.tx_gain_db, "dB"),
            ("rx_gain_db", settings.rx_gain_db, self.rx_gain_db, "dB"),
        ):
            if not low <= value <= high:
                scale = f" ({self.gain_scale})" if unit == "dB" and self.gain_scale else ""
                raise CapabilityError(
                    f"{radio}: {name} is {value:g}: this radio does {low:g} to {high:g} {unit}{scale}"
                )


@dataclass(frozen=True)
class Limits:
    """What a lab allows. band_hz: lowest and highest frequency that may be occupied by a transmission."""

    band_hz: tuple[float, float]
    max_tx_gain_db: float
    max_rx_gain_db: float | None = None

    def __post_init__(self) -> None:
        """Refuse limits that limit nothing."""
        checked_range("limits.band_hz", self.band_hz)
        if self.band_hz[0] <= 0:
            raise HardwareError(f"limits.band_hz begins at {self.band_hz[0]:g}: expected a frequency above 0")
        for name, value in (("max_tx_gain_db", self.max_tx_gain_db), ("max_rx_gain_db", self.max_rx_gain_db)):
            if value is not None and not math.isfinite(value):
                raise HardwareError(f"limits.{name} is {value}: expected a finite number of dB")

    def check(self, settings: RadioSettings, radio: str) -> None:
        """Raise `LimitError` where `settings` would let `radio` send outside the band or with too much gain."""
        low = settings.tx_center_hz - settings.bandwidth_hz / 2
        high = settings.tx_center_hz + settings.bandwidth_hz / 2
        if low < self.band_hz[0] or high > self.band_hz[1]:
            raise LimitError(
                f"{radio} would occupy {low:.10g} to {high:.10g} Hz: the lab allows {self.band_hz[0]:.10g} to "
                f"{self.band_hz[1]:.10g} Hz (limits.band_hz)"
            )
        for name, value, limit in (
            ("tx_gain_db", settings.tx_gain_db, self.max_tx_gain_db),
            ("rx_gain_db", settings.rx_gain_db, self.max_rx_gain_db),
        ):
            if limit is not None and value > limit:
                raise LimitError(f"{radio}: {name} is {value:g} dB: the lab allows {limit:g} dB (limits.max_{name})")


def checked_range(name: str, bounds: tuple[float, float]) -> None:
    """Raise `HardwareError` unless `bounds` are two finite numbers, the lower one first."""
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise HardwareError(f"{name} is {low:g} to {high:g}: expected two finite numbers, the lower one first")
