"""A wanted transmit gain as a step of the attenuator and a digital scale for the rest."""

import math
from dataclasses import dataclass

from hardware.radio.errors import HardwareError
from phy.units import db_to_amplitude_ratio

# Of a step: so that -10.000000001 dB, which is -10 dB after arithmetic, needs no digital scale.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class GainSplit:
    """attenuator_db + digital_db is the wanted gain.

    The attenuator takes the next step at or above it, and the scale, in (-step, 0] dB, does the rest: a digital scale
    above 0 dB would push full scale beyond the converter's.
    """

    attenuator_db: float
    digital_db: float

    @property
    def digital_scale(self) -> float:
        """What samples are multiplied by, above 0 and at most 1."""
        return db_to_amplitude_ratio(self.digital_db)


def split_gain(gain_db: float, step_db: float, range_db: tuple[float, float]) -> GainSplit:
    """The split of `gain_db`, which must lie within the attenuator's range; its steps are multiples of `step_db`."""
    low, high = range_db
    if not (math.isfinite(gain_db) and low <= gain_db <= high):
        raise HardwareError(f"a gain of {gain_db:g} dB cannot be split: the attenuator does {low:g} to {high:g} dB")
    step = min(math.ceil(gain_db / step_db - _ROUNDING) * step_db, high)
    digital_db = gain_db - step
    return GainSplit(step, 0.0 if abs(digital_db) <= _ROUNDING * step_db else digital_db)
