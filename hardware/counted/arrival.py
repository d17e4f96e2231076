"""Where a burst arrives: the measurement that gives radios with counts of their own one common count.

A transmitter counts the samples it hands over, the server those that come. Both count the same clock's ticks, or nearly
so, from different moments on: the difference is constant while nothing is lost. The transmitter sends a preamble at a
sample that it knows, and the server finds it at a sample that it knows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hardware.radio.contract import Radio
from phy.frame import SoundingFrame, sounding_samples
from phy.numerology import Numerology
from phy.preamble import preamble_length
from phy.sync import detect

ARRIVAL_SAMPLES = 16
"""How long after the sample it was sent for a burst's strongest path is received. Not 0: weaker paths may come before
it, and which one is the strongest changes with fading."""
_FALSE_ALARM_PROBABILITY = 1e-9
_CHUNK = 1 << 15
SEARCH_SAMPLES = 3 * _CHUNK
"""After a burst's begin, that a receiver may take to find it."""
FOUND_WITHIN_SAMPLES = 2 * _CHUNK
"""After a burst's begin, that `find_burst` has taken at most when it returns."""


@dataclass(frozen=True)
class Arrival:
    """start_sample: the burst's first one in the receiver's count, as its strongest path shows it.

    clock_ppm: how much faster than the receiver's the sender's clock is.
    """

    start_sample: float
    clock_ppm: float


def alignment_burst(sample_rate_hz: float) -> NDArray[np.complex64]:
    """What is sent to be found, |x| < 1: a preamble, and two symbols after it.

    Without them the second half of the preamble and the silence after it would look as good as both halves.
    """
    return sounding_samples(SoundingFrame(Numerology(sample_rate_hz=sample_rate_hz), symbols=2))


def find_burst(receiver: Radio, begin_sample: int, limit_samples: int) -> Arrival | None:
    """Receive from `begin_sample` on until the burst is found, None where it is not within about `limit_samples`."""
    settings = receiver.settings
    numerology = Numerology(sample_rate_hz=settings.sample_rate_hz)
    length = preamble_length(numerology)
    window, origin, position = np.empty(0, np.complex64), begin_sample, begin_sample
    while position < begin_sample + limit_samples:
        window = np.concatenate([window, receiver.receive(_CHUNK, position).samples])
        position += _CHUNK
        found = detect(window, numerology, _FALSE_ALARM_PROBABILITY)
        if found is not None:
            # A better place may follow: this one may be an echo of it, with the rest still to come.
            first = max(0, found.start_sample - length)
            more = receiver.receive(2 * length, position).samples
            found = detect(np.concatenate([window[first:], more]), numerology, _FALSE_ALARM_PROBABILITY) or found
            offset_hz = found.cfo_cycles_per_sample * settings.sample_rate_hz
            return Arrival(origin + first + found.fine_start, 1e6 * offset_hz / settings.rx_center_hz)
        kept = length - 1
        origin, window = position - kept, window[window.size - kept :]
    return None
