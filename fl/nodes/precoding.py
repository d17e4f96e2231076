"""Bounds on what arrives through a channel that was measured, and the bursts that are sent so that it arrives.

With H the true channel, H^ the sounded one and G the filter that undoes it, what arrives of an update has at most
sup_f |H(f) G(f)| times its norm (`phy.inversion`). |H| <= |H^| + e(f), where e(f) holds at all frequencies of the band
at once with the agreed confidence: for noise, for what else was in the sounding (`fl.nodes.soundings.errors`), and for
the estimator's own error. Gains of clients are raised by what a transmitter's gain may differ between the levels of
sounding and payload (`fl.nodes.soundings.level`). A jammer's is measured at its own level, in the payload's margins.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fl.nodes.air_format import AirFormat
from fl.nodes.messages import FlatChannel, SoundedChannel
from fl.nodes.soundings.errors import error_bound
from fl.nodes.soundings.level import level_upper
from phy.inversion import BETWEEN, ChannelInverse, band_numerology, fine_values, invert_everywhere, window

ESTIMATOR_BIAS = 1e-3
"""Largest error of `phy.estimation.estimate_channel` without noise, relative to the channel's rms: 5e-4 for paths that
are 1 sample or more inside of its range of delays."""
OUT_OF_BAND = 0.4
"""Most of the energy of a payload without filter that lies outside of the band, for any update: 0.37 where symbols
begin or end with a jump."""
_BETWEEN_BINS = 1.1
"""What a response of no more taps than a prefix may be above its largest value at the subcarriers."""


@lru_cache(maxsize=128)
def channel_error(state: SoundedChannel, air: AirFormat) -> NDArray[np.float64]:
    """Bound on |H - H^| at the band's subcarriers (U',), and between them, at the agreed confidence."""
    bias = ESTIMATOR_BIAS * float(np.sqrt(np.mean(np.abs(state.channel) ** 2)))
    std = np.sqrt(state.channel_var)
    if state.unexplained is None:
        return np.asarray(air.error_quantile() * std + bias)
    return bias + error_bound(std, state.unexplained, points=air.error_points, failure=1.0 - air.confidence)


def gain_margin(state: SoundedChannel, air: AirFormat) -> float:
    """Factor by which a transmitter's gain may be above the sounded one in a payload."""
    return air.gain_margin * level_upper(state.level, air.confidence)


def relative_gain_upper(state: SoundedChannel, air: AirFormat) -> float:
    """sup_f |H G| of a payload at the agreed confidence, with the margin between sounding and payload level."""
    margin = gain_margin(state, air)
    if state.flat is not None:
        inside, outside = _flat_errors(state, state.flat, air)
        worst = (1.0 - OUT_OF_BAND) * (1.0 + inside) ** 2 + OUT_OF_BAND * (1.0 + outside) ** 2
        return margin * math.sqrt(max(worst, (1.0 + inside) ** 2))
    inside_band = window(state.numerology) > 0
    magnitude = np.abs(state.response)
    error = fine_values(channel_error(state, air), state.numerology)
    gains = state.inverse.gains
    beyond = float(gains[~inside_band].max(initial=0.0)) * _beyond_upper(
        state, air, float(magnitude[inside_band].max())
    )
    inside = float(((magnitude + error) * gains)[inside_band].max())
    return margin * BETWEEN * max(inside, beyond)


def channel_gains_upper(state: SoundedChannel, air: AirFormat) -> NDArray[np.float64]:
    """Upper bounds on |H(f)| for payloads on the fine grid, and between its points."""
    margin = gain_margin(state, air)
    if state.flat is not None:
        return np.full(1, margin * abs(state.flat.gain) * (1.0 + flat_error(state, air)))
    inside_band = window(state.numerology) > 0
    upper = np.abs(state.response) + fine_values(channel_error(state, air), state.numerology)
    beyond = _beyond_upper(state, air, float(upper[inside_band].max()))
    return np.asarray(margin * np.where(inside_band, upper, beyond))


def _beyond_upper(state: SoundedChannel, air: AirFormat, largest_within: float) -> float:
    """Upper bound on |H(f)| beyond the band: as sounded there, or the largest within where it was not."""
    if state.beyond is None:
        return largest_within
    return _BETWEEN_BINS * (state.beyond + air.error_quantile() * state.beyond_std)


def flat_error(state: SoundedChannel, air: AirFormat) -> float:
    """Bound on |H - H_flat| relative to it at any frequency, for a channel that is taken to be flat."""
    return 0.0 if state.flat is None else max(_flat_errors(state, state.flat, air))


def noise_gain_lower(state: SoundedChannel, air: AirFormat) -> float:
    """inf_f |H G| of noise where a payload may be, at the agreed confidence; 0 where it cannot be told from nothing."""
    if state.flat is not None:
        return max(0.0, 1.0 - max(_flat_errors(state, state.flat, air))) / air.gain_margin
    return max(0.0, float(noise_gains_lower(state, air)[window(state.numerology) > 0].min()))


def noise_gains_lower(state: SoundedChannel, air: AirFormat) -> NDArray[np.float64]:
    """Lower bounds on |H(f) G(f)| of noise through a filter, on the fine grid and between its points."""
    return _weakest(state, air) * noise_inverse(state, air).gains / (BETWEEN * air.gain_margin)


def noise_gain(state: SoundedChannel, air: AirFormat) -> float:
    """What arrives at least of noise, relative to the largest amplitude that its filter makes of it."""
    largest = 1.0 / abs(state.flat.gain) if state.flat is not None else noise_inverse(state, air).largest_gain
    return noise_gain_lower(state, air) / largest


def noise_unevenness(state: SoundedChannel, air: AirFormat) -> float:
    """Largest over smallest amplitude that the noise's filter makes of it, over all frequencies; infinite at worst."""
    if state.flat is not None:
        return 1.0
    gains = noise_inverse(state, air).gains
    return BETWEEN**2 * float(gains.max() / gains.min()) if gains.min() > 0.0 else math.inf


@lru_cache(maxsize=4)
def noise_inverse(state: SoundedChannel, air: AirFormat) -> ChannelInverse:
    """The filter that undoes the channel for noise, were it as weak at each frequency as its measurement allows.

    So noise arrives at its level where the channel is least certain, and hardly above it elsewhere.
    """
    magnitude = np.maximum(np.abs(state.response), 1e-12)
    weakest = np.maximum(_weakest(state, air), 1e-3 * magnitude)
    return invert_everywhere(state.response * (weakest / magnitude), state.numerology)


def _weakest(state: SoundedChannel, air: AirFormat) -> NDArray[np.float64]:
    """Lower bound on |H(f)| on the fine grid; not above 0 where the channel cannot be told from nothing."""
    return np.asarray(np.abs(state.response) - fine_values(channel_error(state, air), state.numerology))


@lru_cache(maxsize=8)
def _flat_errors(state: SoundedChannel, flat: FlatChannel, air: AirFormat) -> tuple[float, float]:
    """Bounds on |H - H_flat| relative to it: in the band, where the estimate is good, and anywhere."""
    f = band_numerology(state.numerology).used_frequencies
    model = flat.gain * np.exp(-2j * np.pi * f * flat.delay_samples)
    inside = float((np.abs(state.channel - model) + channel_error(state, air)).max()) / abs(flat.gain)
    return inside, _BETWEEN_BINS * (flat.deviation + air.error_quantile() * flat.std)
