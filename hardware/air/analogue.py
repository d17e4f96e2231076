"""The analogue filters of a transceiver such as the AD9361, as far as they cut into the band.

With B half of the bandwidth that a radio is set to, in Hz, within what the filter can be tuned to:

* transmit: a third-order Butterworth low-pass with its corner at 1.6 B, then a single pole at 5 B; B from 625 kHz to
  20 MHz, and from 530 kHz for the pole;
* receive: a single pole (the transimpedance amplifier) at 2.5 B, B from 200 kHz to 20 MHz, then a third-order
  Butterworth low-pass at 1.4 B, B from 200 kHz to 28 MHz.

Sources: AD9361 Reference Manual (UG-570), "Filter guide", and the calibration of these filters in the kernel's driver
(`ad9361_rx_bb_analog_filter_calib`, `ad9361_tx_bb_analog_filter_calib`). A filter as wide as the sample rate or wider
is left out: its droop, 1.2 dB at the edge of the band, is what the FIR filters that vendors' tools design make up for.
They are discrete here (bilinear): from an eighth of the rate on they attenuate more than these formulas.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.signal import butter, sosfilt

Taps = NDArray[np.complex64]
# Corners beyond this part of half the sample rate change nothing below it.
_HIGHEST_CORNER = 0.95
# What is left of an impulse's energy when its response is cut off.
_CUT_OFF = 1e-8
_LONGEST_TAPS = 8192


@dataclass(frozen=True)
class _LowPass:
    """corner: relative to half of the bandwidth. lowest_hz, highest_hz: of that half."""

    order: int
    corner: float
    lowest_hz: float
    highest_hz: float

    def corner_hz(self, bandwidth_hz: float) -> float:
        return self.corner * min(max(bandwidth_hz / 2, self.lowest_hz), self.highest_hz)


_TRANSMIT = (_LowPass(3, 1.6, 625e3, 20e6), _LowPass(1, 5.0, 530e3, 20e6))
_RECEIVE = (_LowPass(1, 2.5, 200e3, 20e6), _LowPass(3, 1.4, 200e3, 28e6))


@dataclass(frozen=True)
class AnalogueFilters:
    """Bandwidths, both sides of the carrier together, that a radio's filters are set to."""

    tx_bandwidth_hz: float
    rx_bandwidth_hz: float


def link_taps(
    tx_bandwidth_hz: float | None, rx_bandwidth_hz: float | None, rate_hz: float, offset_hz: float
) -> Taps | None:
    """Impulse response, at the sender's rate, of the sender's and the receiver's filter; None where both are flat.

    None for a bandwidth leaves its filter out. offset_hz: the sender's carrier minus the receiver's.
    """
    taps: Taps | None = None
    if tx_bandwidth_hz is not None:
        taps = _response(_TRANSMIT, tx_bandwidth_hz, rate_hz)
    if rx_bandwidth_hz is not None:
        receive = _response(_RECEIVE, rx_bandwidth_hz, rate_hz)
        if receive is not None:
            # Its middle is the receiver's carrier, which lies below the sender's by the offset.
            turns = -offset_hz / rate_hz * np.arange(receive.size)
            receive = (receive * np.exp(2j * math.pi * turns)).astype(np.complex64)
            taps = receive if taps is None else np.convolve(taps, receive)
    return taps


@lru_cache(maxsize=64)
def _response(filters: tuple[_LowPass, ...], bandwidth_hz: float, rate_hz: float) -> Taps | None:
    response = np.zeros(_LONGEST_TAPS)
    response[0] = 1.0
    changed = False
    for low_pass in filters:
        corner_hz = low_pass.corner_hz(bandwidth_hz)
        if corner_hz < _HIGHEST_CORNER * rate_hz / 2:
            response = sosfilt(butter(low_pass.order, corner_hz, fs=rate_hz, output="sos"), response)
            changed = True
    if not changed:
        return None
    left = np.cumsum(response[::-1] ** 2)[::-1]
    return response[: int(np.count_nonzero(left > _CUT_OFF * left[0]))].astype(np.complex64)
