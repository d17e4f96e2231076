"""Between a sender and a receiver whose rates, carriers or filters differ: what of the one's band the other hears."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hardware.air.analogue import AnalogueFilters, Taps, link_taps
from phy.impairments import apply_taps, fractional_delay
from phy.resampling import Band, take_band

LEAST_OVERLAP = 0.02
"""Of two bands, relative to the sender's rate, for anything to be heard."""
# Carriers that differ by less than this part of the rate leave the bands alike, but for their edges.
_SAME_CARRIER = 0.02
# Clocks that differ by less than this drift, and are no different rates.
_DRIFT = 1e-3


@dataclass(frozen=True)
class Path:
    """taps: of the filters, at the sender's rate. band: what is converted; None where rates and carriers are alike."""

    taps: Taps | None
    band: Band | None
    ratio: float

    def taken(
        self, samples: NDArray[np.complex64], start_sample: int, delay_samples: float
    ) -> tuple[NDArray[np.complex64], int]:
        """Samples (n,) sent from `start_sample` on as they arrive, and the receiver's index of the first of them.

        delay_samples: of the link, in samples of the receiver; filters that look ahead make it longer.
        """
        if self.taps is not None:
            samples = apply_taps(samples, self.taps)
        if self.band is None:
            samples, offset = fractional_delay(samples, delay_samples)
            return samples, start_sample + offset
        lead = math.ceil(self.band.reach / self.ratio) + 1
        return take_band(samples, start_sample, self.band, self.ratio, delay_samples + lead)


def path_between(
    tx_rate_hz: float,
    rx_rate_hz: float,
    offset_hz: float,
    ratio: float,
    filters: tuple[AnalogueFilters | None, AnalogueFilters | None],
    *,
    drifts: bool,
) -> Path | None:
    """None where delay and drift are all that is between them.

    offset_hz: the sender's carrier minus the receiver's. ratio: of their clocks. drifts: whether a small difference of
    these is somebody else's business.
    """
    sender, receiver = filters
    taps = link_taps(
        sender.tx_bandwidth_hz if sender and sender.tx_bandwidth_hz < tx_rate_hz else None,
        receiver.rx_bandwidth_hz if receiver and receiver.rx_bandwidth_hz < rx_rate_hz else None,
        tx_rate_hz,
        offset_hz,
    )
    drifting = drifts and abs(ratio - 1.0) <= _DRIFT
    alike = (ratio == 1.0 or drifting) and abs(offset_hz) <= _SAME_CARRIER * tx_rate_hz
    if taps is None and alike:
        return None
    if ratio == 1.0 and alike:
        return Path(taps, None, ratio)
    offset, half = offset_hz / tx_rate_hz, 0.5 / ratio
    return Path(taps, Band(max(-0.5, -half - offset), min(0.5, half - offset)), ratio)
