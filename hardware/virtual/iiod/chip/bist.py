"""The chip's built-in self tests: a tone or pseudo-random words in place of what is sent or received.

By the debug attributes of the kernel's driver (ad9361.c):

    bist_tone  "MODE FREQUENCY LEVEL MASK": mode 0 off, 1 into the transmitter, 2 into the receiver's words; frequency
               in Hz, or 0 to 3 for 1/32 to 4/32 of the rate, to which it is rounded; level in dB below full scale, of
               which multiples of 6 up to 18 are taken; bit 0 and 1 of the mask switch I and Q off
    bist_prbs  MODE, as above

The words are those of a maximal sequence of 2^15 - 1, not the chip's own polynomial.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hardware.virtual.iiod.attributes import whole
from hardware.virtual.iiod.chip.words import RX_FULL_SCALE_WORD, TX_CONVERTER_FULL_SCALE, Words
from hardware.virtual.iiod.refusal import invalid
from hardware.virtual.shared_time import Samples

OFF, TRANSMIT, RECEIVE = 0, 1, 2
_FOUR = re.compile(r"\s*(\d{1,10})\s+(\d{1,10})\s+(\d{1,10})\s+(\d{1,10})\s*")
_STEPS = 32
_PERIOD = (1 << 15) - 1


@dataclass
class Bist:
    """What is injected, and where."""

    mode: int = OFF
    random: bool = False
    step: int = 1
    level: float = 1.0
    mask: int = 0

    def set_tone(self, value: str, rate_hz: int) -> None:
        """What writing to `bist_tone` does."""
        match = _FOUR.fullmatch(value)
        if match is None or int(match[1]) > RECEIVE:
            raise invalid(f"{value!r} is not a mode up to {RECEIVE}, a frequency, a level and a mask")
        mode, frequency_hz, level_db, mask = (int(number) for number in match.groups())
        step = frequency_hz if frequency_hz < 4 else round(frequency_hz * _STEPS / rate_hz) - 1
        # Fields of two bits.
        self.mode, self.random, self.mask = mode, False, mask & 3
        self.step, self.level = (step & 3) + 1, 10.0 ** (-6 * (level_db // 6 & 3) / 20)

    def set_prbs(self, value: str) -> None:
        """What writing to `bist_prbs` does."""
        self.mode, self.random, self.mask = whole(value, (OFF, RECEIVE)), True, 0

    def said(self, *, random: bool) -> str:
        """What reading gives: the mode."""
        return str(self.mode if self.random is random else OFF)

    def samples(self, count: int, start_sample: int) -> Samples:
        """What is injected, full scale being 1.0, from the radio's sample `start_sample` on."""
        index = start_sample + np.arange(count)
        if self.random:
            words = _sequence()[np.stack([2 * index, 2 * index + 1], axis=1) % _PERIOD]
            values = words / np.float32(RX_FULL_SCALE_WORD)
        else:
            angles = 2.0 * np.pi / _STEPS * (self.step * (index % _STEPS))
            values = self.level * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        for part in (0, 1):
            if self.mask >> part & 1:
                values[:, part] = 0.0
        return np.ascontiguousarray(values, np.float32).view(np.complex64).reshape(-1)

    def sent(self, count: int, start_sample: int) -> Samples:
        """The same at the transmit converter's full scale."""
        return self.samples(count, start_sample) * np.float32(TX_CONVERTER_FULL_SCALE)

    def words(self, count: int, start_sample: int) -> Words:
        """The same as received words (count, 2)."""
        values = self.samples(count, start_sample).view(np.float32) * RX_FULL_SCALE_WORD
        limits = -RX_FULL_SCALE_WORD, RX_FULL_SCALE_WORD - 1
        return np.asarray(np.clip(np.rint(values), *limits), np.int16).reshape(-1, 2)


@lru_cache(maxsize=1)
def _sequence() -> Words:
    """Twelve bits of the shift register x^15 + x^14 + 1 at each of its states."""
    bits = np.ones(_PERIOD + 12, np.int16)
    for index in range(15, bits.size):
        bits[index] = bits[index - 15] ^ bits[index - 14]
    weights = np.int16(1) << np.arange(11, -1, -1, dtype=np.int16)
    windows = np.lib.stride_tricks.sliding_window_view(bits, 12)[:_PERIOD]
    values = windows.astype(np.int32) @ weights.astype(np.int32)
    return np.where(values >= 2048, values - 4096, values).astype(np.int16)
