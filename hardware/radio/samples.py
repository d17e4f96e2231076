"""Arrays of samples at the border of a radio: what may be sent, and what was received."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hardware.radio.errors import CaptureError, TxClippingError, TxSamplesError
from hardware.radio.settings import RadioSettings

FULL_SCALE = np.float32(1.0 + 1e-6)
"""Largest |x| that may be sent: 1, and what float32 arithmetic adds to it."""


@dataclass(frozen=True)
class TransmitReport:
    """What a radio took. clipped_samples: samples that were shortened to full scale because the caller allowed it."""

    start_sample: int
    sample_count: int
    clipped_samples: int

    @property
    def end_sample(self) -> int:
        """First sample after the burst."""
        return self.start_sample + self.sample_count


@dataclass(frozen=True)
class Capture:
    """What a radio received. samples: complex64 (n,), samples[k] being that of the counter value start_sample + k.

    settings: as read back. clipped_samples: samples at which the converter was driven beyond full scale.
    temperature_c, rssi_db: of the receiver about that time, where it measures them; an RSSI is in dB below full scale.
    """

    samples: NDArray[np.complex64]
    start_sample: int
    settings: RadioSettings
    clipped_samples: int
    temperature_c: float | None = None
    rssi_db: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is not a vector of complex64 samples."""
        if self.samples.ndim != 1 or self.samples.dtype != np.complex64:
            raise CaptureError(
                f"a capture is {self.samples.dtype} of shape {self.samples.shape}: expected complex64 of shape (n,)"
            )
        if not 0 <= self.clipped_samples <= self.samples.size:
            raise CaptureError(f"{self.clipped_samples} of {self.samples.size} samples clipped: expected 0 to all")

    @property
    def end_sample(self) -> int:
        """First sample after the capture."""
        return self.start_sample + self.samples.size

    def checked(self, min_samples: int = 1, max_clipped_fraction: float = 1e-3) -> "Capture":
        """This capture, or `CaptureError` where no measurement may rest on it.

        Refused: fewer than `min_samples`, NaN or infinite values, nothing but zeros (a dead receiver: a live one has
        noise), and more than `max_clipped_fraction` of the samples at the converter's limit.
        """
        where = f"the capture at sample {self.start_sample}"
        if self.samples.size < min_samples:
            raise CaptureError(f"{where} has {self.samples.size} samples: expected at least {min_samples}")
        parts = np.ascontiguousarray(self.samples).view(np.float32)
        if not np.isfinite(np.dot(parts, parts)) and not np.all(np.isfinite(parts)):
            broken = np.count_nonzero(~np.isfinite(self.samples))
            raise CaptureError(f"{where} has {broken} NaN or infinite samples: the receiver or its driver is broken")
        if not np.any(parts):
            raise CaptureError(f"{where} is all zero: is the receiver on, and is its antenna connected?")
        if self.clipped_samples > max_clipped_fraction * self.samples.size:
            raise CaptureError(
                f"{where} is saturated: {self.clipped_samples} of {self.samples.size} samples clipped, at most "
                f"{max_clipped_fraction:g} of them may be; lower rx_gain_db or the transmitters' gains"
            )
        return self


def sendable(samples: NDArray[np.complex64], allow_clipping: bool) -> tuple[NDArray[np.complex64], int]:
    """`samples` as they may be sent, and how many of them had to be clipped.

    Samples within full scale are returned as they are, without a copy. Beyond it they raise `TxClippingError`, or
    with `allow_clipping` are shortened to |x| = 1 with their phase kept. NaN and infinity always raise.
    """
    if samples.dtype != np.complex64 or samples.ndim != 1 or samples.size == 0:
        raise TxSamplesError(
            f"samples to send are {samples.dtype} of shape {samples.shape}: expected complex64 of shape (n,), n >= 1"
        )
    samples = np.ascontiguousarray(samples)
    from phy.compute.kernels import largest_part

    # No |x| is beyond 1 while both of its parts are within 1/sqrt(2).
    largest = largest_part(samples)
    if not math.isfinite(largest):
        raise TxSamplesError(f"{np.count_nonzero(~np.isfinite(samples))} samples to send are NaN or infinite")
    if largest <= math.sqrt(0.5):
        return samples, 0
    magnitude = np.abs(samples)
    beyond = np.flatnonzero(magnitude > FULL_SCALE)
    if beyond.size == 0:
        return samples, 0
    if not allow_clipping:
        raise TxClippingError(
            f"{beyond.size} of {samples.size} samples to send are beyond full scale, the largest is "
            f"{magnitude.max():.4g}: expected |x| <= 1; lower the scale, or allow clipping"
        )
    clipped = samples.copy()
    clipped[beyond] /= magnitude[beyond]
    return clipped, int(beyond.size)
