"""Transmit gains of lab files on devices that count from the other end, as USRPs do.

UHD counts gains upwards from the daughterboard's smallest. A lab file's transmit gain is in dB below the device's
largest, as an AD936x counts it, so that a lab keeps its meaning on another backend: 0 is full power everywhere. A
receive gain is in dB above the smallest, as UHD has it.
"""

from dataclasses import dataclass

from hardware.radio.gain_split import split_gain
from phy.units import db_to_amplitude_ratio

LOWEST_TX_GAIN_DB = -89.75
"""As with an AD936x, so that lab files move; what a daughterboard cannot do of it is done to the samples."""


@dataclass(frozen=True)
class TxGain:
    """device_db: what UHD is told. digital_db: what is done to the samples, 0 or below. lab_db: their meaning."""

    lab_db: float
    device_db: float
    digital_db: float

    @property
    def digital_scale(self) -> float:
        """What samples are multiplied by, above 0 and at most 1."""
        return db_to_amplitude_ratio(self.digital_db)

    def read_back(self, device_db: float) -> float:
        """The lab's gain where the device says that it has `device_db`."""
        return self.lab_db + (device_db - self.device_db)


@dataclass(frozen=True)
class TxGainRange:
    """Of a daughterboard, as UHD counts."""

    low_db: float
    high_db: float
    step_db: float

    @property
    def parked(self) -> TxGain:
        """The lowest."""
        return self.split(LOWEST_TX_GAIN_DB)

    def split(self, lab_db: float) -> TxGain:
        """A lab's gain as the device's next step at or above it, and the rest in the samples."""
        lowest = self.low_db - self.high_db
        reached = max(lab_db, lowest)
        split = split_gain(reached, self.step_db, (lowest, 0.0))
        return TxGain(lab_db, self.high_db + split.attenuator_db, split.digital_db + (lab_db - reached))
