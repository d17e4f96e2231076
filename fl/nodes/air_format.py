"""What all nodes agree on before the first sample: numerology, frames, levels."""

import math
from dataclasses import dataclass
from functools import cached_property

from calibration.pooling.listener import SilenceListener
from calibration.silence import MIN_BLOCKS
from fl.errors import ConfigError
from phy.frame import PayloadFrame, SoundingFrame
from phy.grid import CoordinateGrid
from phy.inversion import HALF_LENGTH
from phy.numerology import Numerology

SLOTS_PER_GROUP = 16
POWER_BLOCK = 64
"""Samples over which power is averaged for pictures."""
PAYLOAD_SYMBOL = 4
"""Length of a payload's symbol, in FFT lengths of the sounding."""
MARGIN_SYMBOLS = 12
"""Samples on either side of the payload in which a jammer is alone, in FFT lengths of the sounding."""
ERROR_POINTS = 8
SOUNDING_RMS = 0.74
"""Of the samples of a sounding, full scale 1."""
JAMMER_RMS = 0.2
"""Largest rms of a jammer's samples: Gaussian ones of this rms are beyond full scale once in 7e10."""


@dataclass(frozen=True)
class AirFormat:
    """The public format of an uplink of `coordinates` model coordinates.

    quiet_samples: silence before the soundings, in which noise is measured. first_quiet_samples: silence from which the
    shape of the noise's spectrum is known, taken once, and again where the noise has changed; 0 where an uplink's own
    silence shall do. gap_samples: between soundings, longer than
    any delay. guard_samples: silence on both sides of the payload. early_samples: how far inside the prefix FFT windows
    start, for paths that come earlier than the strongest. payload_rms: rms of a client's samples at its power limit,
    full scale 1; what is left above it is for peaks. confidence: of each bound that enters the ledger. level_symbols:
    of a sounding, at a payload's level, to see whether the transmitter's gain is the same there; none are sent where a
    calibration says that.

    What a calibration says, where there is one: gain_margin: factor >= 1 by which a transmitter's gain may differ
    between its sounding, at full scale, and its payload. noise_std_real_limit: noise of the receiver per real
    coordinate, over all subcarriers, beyond which nothing is counted on, whatever a silence shows.
    """

    numerology: Numerology
    coordinates: int
    whitening_seed: int = 1
    sounding_symbols: int = 32
    level_symbols: int = 8
    quiet_samples: int = 65536
    first_quiet_samples: int = 0
    gap_samples: int = 256
    guard_samples: int = 4096
    turnaround_samples: int = 4096
    early_samples: int = 8
    payload_rms: float = 0.2
    confidence: float = 0.999
    gain_margin: float = 1.0
    noise_std_real_limit: float = math.inf

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
        if not (1.0 <= self.gain_margin < math.inf and self.noise_std_real_limit > 0):
            raise ConfigError(
                f"gain_margin is {self.gain_margin} and noise_std_real_limit {self.noise_std_real_limit}: expected a "
                "factor of 1 or more, and noise above 0"
            )
        if not 0 <= self.early_samples < self.numerology.cp_samples:
            raise ConfigError(f"early_samples is {self.early_samples}: expected less than the prefix")
        least = MIN_BLOCKS * self.numerology.fft_size
        for name, silent in (
            ("quiet_samples", self.quiet_samples),
            ("guard_samples", 2 * (self.guard_samples - self.gap_samples)),
        ):
            if silent < least:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}: too short to measure noise in, which takes {least} samples "
                    f"for symbols of {self.numerology.fft_size}"
                )

    @cached_property
    def payload_numerology(self) -> Numerology:
        """Of payloads: the same band in longer symbols, whose sidelobes have less energy, and no prefix.

        Transmitters undo their channels over the whole burst, so symbols need not be kept apart; a prefix would send a
        part of the update twice.
        """
        base = self.numerology
        return Numerology(
            PAYLOAD_SYMBOL * base.fft_size, 0, PAYLOAD_SYMBOL * base.data_subcarriers, base.sample_rate_hz
        )

    @cached_property
    def sounding_numerology(self) -> Numerology:
        """Of soundings: all subcarriers but DC and the one at half the sampling rate."""
        base = self.numerology
        return Numerology(base.fft_size, base.cp_samples, base.fft_size - 2, base.sample_rate_hz)

    @cached_property
    def grid(self) -> CoordinateGrid:
        """Where coordinates stand."""
        return CoordinateGrid(self.payload_numerology, self.coordinates, self.whitening_seed)

    @cached_property
    def sounding(self) -> SoundingFrame:
        """One transmitter's sounding."""
        level = min(1.0, self.payload_rms / SOUNDING_RMS)
        quiet_symbols = self.level_symbols if self.measures_level else 0
        return SoundingFrame(self.sounding_numerology, self.sounding_symbols, quiet_symbols, level)

    @property
    def measures_level(self) -> bool:
        """Whether soundings show how a transmitter's gain changes with its level: where no calibration says it."""
        return self.level_symbols > 0 and self.gain_margin == 1.0

    @cached_property
    def payload(self) -> PayloadFrame:
        """Everybody's payload, with margins for filters' tails and a jammer alone, and quiet guards."""
        tail = HALF_LENGTH * self.numerology.fft_size
        margin = 2 * tail + MARGIN_SYMBOLS * self.numerology.fft_size
        return PayloadFrame(self.payload_numerology, self.grid.symbols, self.guard_samples, margin, tail)

    @property
    def ahead_samples(self) -> int:
        """Room in simulated time for the silence before the first uplink."""
        return SilenceListener.ahead_samples(self.quiet_samples, self.first_quiet_samples)

    @property
    def slot_samples(self) -> int:
        """From one sounding to the next."""
        return self.sounding.length + self.gap_samples

    @property
    def margin_samples(self) -> int:
        """How much earlier than a slot the server begins to listen."""
        return self.gap_samples // 2

    @property
    def window_start(self) -> int:
        """Where FFT windows begin in a symbol."""
        return self.numerology.cp_samples - self.early_samples

    @property
    def energy_limit(self) -> float:
        """P: limit on ||x||^2 over the samples of a payload."""
        return self.payload_rms**2 * self.payload_numerology.fft_size * self.grid.symbols

    @property
    def jamming_limit(self) -> float:
        """Largest alpha_CJ: a sample of noise has energy 2 alpha_CJ^2, on both axes. It keeps the noise unclipped."""
        return min(self.payload_rms, JAMMER_RMS) / math.sqrt(2.0)

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
        around = 2 * (self.guard_samples + self.payload.margin_samples)
        return self.sounding_phase_samples(transmitters) + self.turnaround_samples + around

    @property
    def delay_windows(self) -> tuple[float, ...]:
        """Latest delays that a channel is taken to have, in samples: the one that suits a sounding best is chosen."""
        return tuple(float(max(1, self.numerology.cp_samples // part)) for part in (4, 2, 1))

    @property
    def error_points(self) -> int:
        """At which the noise of a channel's estimate is bounded, for all windows."""
        return len(self.delay_windows) * ERROR_POINTS * self.sounding_numerology.data_subcarriers

    def error_quantile(self) -> float:
        """q with P(|e(f)| > q std(f) anywhere in the band) <= 1 - confidence: exp(-q^2) for each circular Gaussian.

        The error is a response of a few dozen taps: bounded at `ERROR_POINTS` frequencies per subcarrier, it is bounded
        between them within 2 %, which is in q.
        """
        count = ERROR_POINTS * self.sounding_numerology.data_subcarriers
        return 1.02 * math.sqrt(math.log(count / (1.0 - self.confidence)))
