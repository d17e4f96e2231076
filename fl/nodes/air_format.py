"""What all nodes agree on before the first sample: numerology, frames, levels."""

import math
from dataclasses import dataclass
from functools import cached_property

from calibration.silence import MIN_BLOCKS
from fl.errors import ConfigError
from phy.frame import PayloadFrame, SoundingFrame
from phy.grid import CoordinateGrid
from phy.numerology import Numerology

SLOTS_PER_GROUP = 16
JAMMER_RMS = 0.2
"""Largest rms of a jammer's samples: Gaussian ones of this rms are beyond full scale once in 7e10."""


@dataclass(frozen=True)
class AirFormat:
    """The public format of an uplink of `coordinates` model coordinates.

    quiet_samples: silence before the soundings, in which noise is measured. gap_samples: between soundings, longer than
    any delay. guard_samples: silence on both sides of the payload. early_samples: how far inside the prefix FFT windows
    start, for paths that come earlier than the strongest. payload_rms: rms of a client's samples at its power limit,
    full scale 1; what is left above it is for peaks. confidence: of each bound that enters the ledger.
    """

    numerology: Numerology
    coordinates: int
    whitening_seed: int = 1
    sounding_symbols: int = 32
    quiet_samples: int = 65536
    gap_samples: int = 256
    guard_samples: int = 4096
    turnaround_samples: int = 4096
    early_samples: int = 8
    payload_rms: float = 0.2
    confidence: float = 0.999

    def __post_init__(self) -> None:
        """Refuse formats in which frames would run into each other or levels mean nothing."""
        if self.sounding_symbols < 2:
            raise ConfigError(
                f"sounding_symbols is {self.sounding_symbols}: expected 2 or more, to see the frequency offset"
            )
        if not 0 < self.payload_rms <= 0.5:
            raise ConfigError(f"payload_rms is {self.payload_rms}: expected above 0 and at most 0.5 of full scale")
        if not 0.5 < self.confidence < 1:
            raise ConfigError(f"confidence is {self.confidence}: expected above 0.5 and below 1")
        if not 0 <= self.early_samples < self.numerology.cp_samples:
            raise ConfigError(f"early_samples is {self.early_samples}: expected less than the prefix")
        least = MIN_BLOCKS * self.numerology.fft_size
        for name, silent in (
            ("quiet_samples", self.quiet_samples),
            ("guard_samples", 2 * self.guard_samples - self.gap_samples),
        ):
            if silent < least:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}: too short to measure noise in, which takes {least} samples "
                    f"for symbols of {self.numerology.fft_size}"
                )

    @cached_property
    def grid(self) -> CoordinateGrid:
        """Where coordinates stand."""
        return CoordinateGrid(self.numerology, self.coordinates, self.whitening_seed)

    @cached_property
    def sounding(self) -> SoundingFrame:
        """One transmitter's sounding."""
        return SoundingFrame(self.numerology, self.sounding_symbols)

    @cached_property
    def payload(self) -> PayloadFrame:
        """Everybody's payload, with quiet guards."""
        return PayloadFrame(self.numerology, self.grid.symbols, self.guard_samples)

    @property
    def slot_samples(self) -> int:
        """From one sounding to the next."""
        return self.sounding.length + self.gap_samples

    @property
    def window_start(self) -> int:
        """Where FFT windows begin in a symbol."""
        return self.numerology.cp_samples - self.early_samples

    @property
    def energy_limit(self) -> float:
        """P: limit on ||x||^2 over the cells of a payload. Unitary transforms: the same as over its FFT windows."""
        return self.payload_rms**2 * self.numerology.fft_size * self.grid.symbols

    @property
    def jamming_limit(self) -> float:
        """Largest alpha_CJ: a cell of noise has energy 2 alpha_CJ^2, I and Q together. It keeps the noise unclipped."""
        rms = min(self.payload_rms, JAMMER_RMS)
        return rms * math.sqrt(self.numerology.fft_size / (2 * self.numerology.data_subcarriers))

    def slot_start(self, slot: int) -> int:
        """Where a slot's sounding starts, from the first quiet sample.

        Slots come in groups with a pause after each, so that a group can be received while no other is pending:
        memory then does not grow with the number of transmitters.
        """
        group, place = divmod(slot, SLOTS_PER_GROUP)
        paused = SLOTS_PER_GROUP * self.slot_samples + self.turnaround_samples
        return self.quiet_samples + self.turnaround_samples + group * paused + place * self.slot_samples

    def sounding_phase_samples(self, transmitters: int) -> int:
        """From the first quiet sample to the end of the last slot."""
        return self.slot_start(transmitters - 1) + self.slot_samples

    def overhead_samples(self, transmitters: int) -> int:
        """Samples of an uplink that carry no payload."""
        return self.sounding_phase_samples(transmitters) + self.turnaround_samples + 2 * self.guard_samples

    def error_quantile(self) -> float:
        """q with P(|e_k| > q std_k for any used k) <= 1 - confidence: exp(-q^2) for each circular Gaussian e_k."""
        return math.sqrt(math.log(self.numerology.data_subcarriers / (1.0 - self.confidence)))
