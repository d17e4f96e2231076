"""The tone generators of the transmit core, heard while no buffer is open.

Two tones each for I and Q: scale x 32767 x sin(2 pi f n + phase), full scale of the converter, which is 2.0 here (see
`words`). Frequencies are multiples of the sample rate / 65536, phases of 1/65536 turn.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hardware.virtual.iiod.attributes import decimal, flag
from hardware.virtual.iiod.chip.words import TX_CONVERTER_FULL_SCALE

TONES = ("TX1_I_F1", "TX1_I_F2", "TX1_Q_F1", "TX1_Q_F2")
_TURN = 1 << 16
_SINE = np.sin(2.0 * np.pi * np.arange(_TURN) / _TURN).astype(np.float32)


@dataclass
class Tone:
    """One generator. increment, phase: in 1/65536 of a turn."""

    increment: int = 0
    phase: int = 0
    scale: float = 0.0
    on: bool = False


@dataclass
class Dds:
    """The four generators. They begin switched on at scale zero, I a quarter of a turn ahead, as in a Pluto's dump."""

    tones: tuple[Tone, ...] = field(
        default_factory=lambda: tuple(Tone(phase=_TURN // 4 if "_I_" in name else 0, on=True) for name in TONES)
    )

    @property
    def on(self) -> bool:
        """Whether any tone can be heard."""
        return any(tone.on and tone.scale for tone in self.tones)

    def set_frequency(self, tone: Tone, value: str, rate_hz: int) -> None:
        """In Hz."""
        # The kernel parses decimals of it and takes the whole part (cf_axi_dds_write_raw).
        frequency_hz = int(decimal(value, (0, rate_hz // 2)))
        tone.increment = round(frequency_hz * _TURN / rate_hz)

    def frequency_hz(self, tone: Tone, rate_hz: int) -> int:
        """What the increment is at a sample rate."""
        return round(tone.increment * rate_hz / _TURN)

    def set_phase(self, tone: Tone, value: str) -> None:
        """In thousandths of a degree."""
        tone.phase = round(decimal(value, (-360_000, 360_000)) * _TURN / 360_000) % _TURN

    def phase_millidegrees(self, tone: Tone) -> int:
        """As written, to the nearest step."""
        return round(tone.phase * 360_000 / _TURN)

    def set_scale(self, tone: Tone, value: str) -> None:
        """Of full scale."""
        tone.scale = decimal(value, (0.0, 1.0))

    def set_on(self, tone: Tone, value: str) -> None:
        """Switch one generator."""
        tone.on = flag(value)

    def samples(self, count: int, start_sample: int) -> NDArray[np.complex64]:
        """Samples (count,) from the radio's sample `start_sample` on."""
        out = np.zeros((count, 2), np.float32)
        index = np.arange(count, dtype=np.int64)
        for number, tone in enumerate(self.tones):
            if tone.on and tone.scale:
                start = (tone.phase + start_sample * tone.increment) % _TURN
                turns = (start + index * tone.increment) % _TURN
                out[:, number // 2] += np.float32(tone.scale * TX_CONVERTER_FULL_SCALE) * _SINE[turns]
        limit = np.float32(TX_CONVERTER_FULL_SCALE)
        return np.clip(out, -limit, limit).view(np.complex64).reshape(-1)

    def power(self) -> float:
        """Mean of |x|^2, over one period of the slowest step."""
        return 2.0 * float(np.mean(np.square(self.samples(_TURN, 0).view(np.float32), dtype=np.float64)))
