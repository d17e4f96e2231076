"""The filters of the FPGA between the chip and the buffers: one sample in eight is kept, or seven are put in between.

They are switched by writing an eighth of the chip's rate to `sampling_frequency` of a data device (ADI's HDL for the
Pluto, `util_fir_dec` and `util_fir_int`). Passed are 80 % of the slower rate's band; what would alias is down by 70 dB.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.signal import firwin, lfilter

FACTOR = 8
_TAPS = firwin(321, 0.9, window=("kaiser", 7.0), fs=2 * FACTOR)

Samples = NDArray[np.complex64]


class Decimator:
    """From the chip's rate to an eighth of it. It goes on from where it was, however its input is cut."""

    def __init__(self) -> None:
        self._state = np.zeros(_TAPS.size - 1, np.complex128)
        self._skip = 0

    def until(self, count: int) -> int:
        """Samples to put in until `count` have come out; at least 1."""
        return self._skip + FACTOR * (count - 1) + 1

    def put(self, samples: Samples) -> Samples:
        """What comes out for samples (n,)."""
        filtered, self._state = lfilter(_TAPS, 1.0, samples, zi=self._state)
        kept = filtered[self._skip :: FACTOR]
        self._skip = (self._skip - samples.size) % FACTOR
        return np.asarray(kept, np.complex64)


class Interpolator:
    """From an eighth of the chip's rate to it. What has come out and was not taken yet waits here."""

    def __init__(self) -> None:
        self._state = np.zeros(_TAPS.size - 1, np.complex128)
        self._waiting = np.zeros(0, np.complex64)

    @property
    def waiting(self) -> int:
        """Samples that can be taken without putting anything in."""
        return self._waiting.size

    def needed(self, count: int) -> int:
        """Samples to put in so that `count` can be taken."""
        return max(0, -(-(count - self.waiting) // FACTOR))

    def put(self, samples: Samples | None, count: int) -> None:
        """Take over `count` samples; None is silence."""
        spread = np.zeros(FACTOR * count, np.complex64)
        if samples is not None:
            spread[::FACTOR] = FACTOR * samples
        filtered, self._state = lfilter(_TAPS, 1.0, spread, zi=self._state)
        self._waiting = np.concatenate([self._waiting, filtered.astype(np.complex64)])

    def take(self, count: int) -> Samples:
        """The next `count` <= waiting samples."""
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken
