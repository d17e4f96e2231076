"""What a transmitter's own circuits do to a payload: how peaks are kept within full scale, how samples are rounded, and
by how much more than nominally both, and the mirror image, let a client's gain be charged.

*Peaks.* Shortening samples where they leave would spread over all frequencies, from those at which the channel is weak
and the filter strong to those at which it is the other way round, and bring neighbours further apart in what arrives.
So a burst is shortened before the filter, where it is what shall arrive: a projection, which brings no two signals
further apart. The filter makes of samples of at most c samples of at most c sum |g|: with c = 1/sum |g| nothing
reaches full scale, whatever the update.

*Rounding.* Dithered, and charged: `fl.privacy.converters`. A jammer's noise is rounded too, and must be some steps of
its converter that are not too coarse where they arrive: `fl.privacy.coarse_noise`.

*Image.* A mixer adds a * x* to what is sent. Of a payload s(f), at f and -f, there arrive, with m(f) = A(f) H(f),

    H(f) G(f) s(f) + m(f) G*(-f) s*(-f)      and      H(-f) G(-f) s(-f) + m(-f) G*(f) s*(f)

two by two, so the gain is at most the largest singular value of [|H G|(f), |m(f) G(-f)|; |m(-f) G(f)|, |H G|(-f)].
Where the channel is R times as strong at f as at -f this is about 1 + |A| R/2. m is measured
(`fl.nodes.soundings.image`); what the lab file says about a radio limits it from above, unless the sounding shows more.
"""

import math
from collections.abc import Callable
from functools import lru_cache, wraps

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.nodes.air_format import AirFormat
from fl.nodes.messages import Circuits, Rounding, SoundedChannel
from fl.nodes.precoding import (
    channel_gains_upper,
    gain_margin,
    noise_gain_lower,
    noise_gains_lower,
    noise_inverse,
    noise_unevenness,
    relative_gain_upper,
)
from fl.nodes.soundings.errors import error_bound
from fl.nodes.soundings.image import image_response
from fl.privacy.coarse_noise import least_sent_std
from fl.privacy.converters import choose_dither, gain_excess, rounding_distance, tail_delta
from hardware.radio.contract import Radio
from phy.dither import Dither, headroom
from phy.inversion import BETWEEN, fine_values, window
from phy.units import db_to_amplitude_ratio

# What a filter in float32 may add.
_ARITHMETIC = 1.0 - 1e-5
# More than float64 may lose in a sum of a few numbers.
_SLACK = 1.0 + 1e-9

_Number = Callable[[SoundedChannel, AirFormat, float | None], float]


def _found_once(function: _Number) -> _Number:
    """The same function, whose result stays with the state that it follows from."""

    @wraps(function)
    def found(state: SoundedChannel, air: AirFormat, limit: float | None) -> float:
        key = (function, air, limit)
        if key not in state.numbers:
            state.numbers[key] = function(state, air, limit)
        return state.numbers[key]

    return found


def circuits_of(radio: Radio) -> Circuits:
    """What a radio says of itself."""
    image_db = radio.tx_image_db
    return Circuits(radio.tx_step, None if image_db is None else db_to_amplitude_ratio(image_db))


def charged_gain_upper(
    state: SoundedChannel,
    air: AirFormat,
    circuits: Circuits,
    noise_std_real: float,
    left_std_real: float | None = None,
) -> float:
    """Upper bound on the factor by which what a client sends moves what arrives.

    noise_std_real: lower bound on the noise that is always there, for which dither is chosen. left_std_real: what of it
    was there when that was sent, where it was less. `PrivacyError` where nothing bounds it.
    """
    gain = gain_with_image(state, air, circuits.image)
    dither = dither_for(state, air, circuits, noise_std_real)
    if circuits.step is None or dither is None:
        return gain
    scene = _scene(state, air, circuits, noise_std_real if left_std_real is None else left_std_real)
    rounding = gain_excess(dither, circuits.step, **scene)
    if math.isinf(rounding):
        raise PrivacyError(
            f"a step of the transmitter's converter arrives as {circuits.step * scene['gain']:.3g}, more than twice "
            f"the receiver's noise of {scene['noise_std_real']:.3g}: lower tx_gain_db or rx_gain_db, or use more bits"
        )
    return gain + rounding


def rounding_of(state: SoundedChannel, air: AirFormat, circuits: Circuits, alpha_u: float) -> Rounding:
    """What a payload's rounding is charged with besides its gain."""
    if circuits.step is None:
        return Rounding()
    reach = 0 if state.flat is not None else state.inverse.reach
    samples = air.payload_numerology.symbol_samples * air.grid.symbols + 2 * reach
    gain = _arriving_gain(state, air, circuits.image)
    return Rounding(rounding_distance(circuits.step, samples, gain) / alpha_u, tail_delta(samples))


def least_jamming(state: SoundedChannel, air: AirFormat, circuits: Circuits, noise_std_real: float) -> float:
    """Smallest alpha_CJ whose noise is still Gaussian when it was rounded; 0 where nothing is, infinite where none is.

    alpha_CJ is the largest amplitude that the jammer's filter makes of its noise; the smallest decides here.
    """
    if circuits.step is None:
        return 0.0
    frame = air.payload
    samples = frame.jamming_slice.stop - frame.jamming_slice.start
    gain = _arriving_gain(state, air, circuits.image)
    least = least_sent_std(circuits.step, noise_std_real=noise_std_real, gain=gain, samples=samples)
    return least * noise_unevenness(state, air)


def dither_for(state: SoundedChannel, air: AirFormat, circuits: Circuits, noise_std_real: float) -> Dither | None:
    """What is added before rounding, None where nothing is rounded. All that it rests on is public."""
    if circuits.step is None:
        return None
    return choose_dither(circuits.step, **_scene(state, air, circuits, noise_std_real))


@_found_once
def gain_with_image(state: SoundedChannel, air: AirFormat, limit: float | None) -> float:
    """Upper bound on the gain of a payload with its image: the largest singular value over all pairs f, -f.

    limit: see `image_upper`.
    """
    plain, image = relative_gain_upper(state, air), image_upper(state, air, limit)
    if not image.any():
        return plain
    if state.flat is not None:
        return plain + float(image.max()) / abs(state.flat.gain)
    channel, inverse = channel_gains_upper(state, air), state.inverse.gains
    own, opposite = channel * inverse, _mirrored(channel * inverse)
    leaked, lost = image * _mirrored(inverse), _mirrored(image) * inverse
    squares = own**2 + opposite**2 + leaked**2 + lost**2
    determinants = own * opposite - leaked * lost
    largest = np.sqrt((squares + np.sqrt(np.maximum(squares**2 - 4.0 * determinants**2, 0.0))) / 2.0)
    return max(plain, BETWEEN * float(largest.max()))


def noise_kept(state: SoundedChannel, air: AirFormat, limit: float | None) -> float:
    """Part of `noise_gain_lower` that a jammer's noise has in its quietest direction, its own image considered.

    White noise z with its image is H G z + m (G z)* at f: circular no more, and quieter in one direction of every pair
    f, -f than in the other, which whoever knows both channels can choose. What is left there is the smallest singular
    value of [|H G|(f), -|m(f) G(-f)|; -|m(-f) G(f)|, |H G|(-f)], phases at their worst. Its inverse has no negative
    entry, so that this is the smaller the smaller the diagonal and the larger the rest: bounds give a bound. limit: see
    `image_upper`.
    """
    plain, image = noise_gain_lower(state, air), image_upper(state, air, limit)
    if not image.any() or not plain > 0.0:
        return 1.0
    if state.flat is not None:
        return max(0.0, 1.0 - float(image.max()) / (abs(state.flat.gain) * plain))
    inverse, inside = noise_inverse(state, air).gains, window(state.numerology) > 0
    own = noise_gains_lower(state, air)
    opposite = _mirrored(own)
    leaked = BETWEEN * image * _mirrored(inverse)
    lost = _mirrored(leaked)
    squares = own**2 + opposite**2 + leaked**2 + lost**2
    determinants = np.maximum(own * opposite - leaked * lost, 0.0)
    smallest = np.sqrt(np.maximum(squares - np.sqrt(np.maximum(squares**2 - 4.0 * determinants**2, 0.0)), 0.0) / 2.0)
    return min(1.0, float(smallest[inside].min()) / plain)


# Few, because each is as large as a hundred channels; what follows from it is kept for more.
@lru_cache(maxsize=8)
def image_upper(state: SoundedChannel, air: AirFormat, limit: float | None) -> NDArray[np.float64]:
    """Upper bound on |m(f)| on the fine grid: as measured, and not above `limit` times the channel.

    limit: largest |A| that somebody vouches for, None where nobody does. A limit that the sounding refutes, at the
    agreed confidence, does not count.
    """
    inside = window(state.numerology) > 0
    channel = np.broadcast_to(channel_gains_upper(state, air), inside.shape)
    vouched = None if limit is None else np.asarray(limit * channel)
    if state.image is None:
        if vouched is None:
            raise PrivacyError(
                "how strong a transmitter's mirror image is was not measured, and the lab file does not say it: sound "
                "with 4 symbols or more, or set tx_image_db"
            )
        return vouched
    image = state.image
    failure = 1.0 - air.confidence
    coarse = error_bound(image.std, image.unexplained, points=air.error_points, failure=failure)
    # A flat channel's own bound is near enough, and its response need not be kept for every client.
    magnitude = np.abs(state.response) if state.flat is None else channel
    if limit == 0.0 and vouched is not None and _SLACK * np.abs(image.taps).sum() * magnitude.max() <= coarse.min():
        # None is vouched for, and none of any shape would stand out of the errors.
        return vouched
    error = fine_values(coarse, state.numerology)
    found = np.abs(image_response(image.taps, channel.size)) * magnitude
    if vouched is not None and not np.any((found - error > vouched)[inside]):
        return np.minimum(_upper(found, error, state, air), vouched)
    return _upper(found, error, state, air)


def _upper(
    found: NDArray[np.float64], error: NDArray[np.float64], state: SoundedChannel, air: AirFormat
) -> NDArray[np.float64]:
    """found + error within the band; beyond it, where nothing was fitted, the largest of it."""
    inside = window(state.numerology) > 0
    upper = gain_margin(state, air) * (found + error)
    return np.where(inside, upper, upper[inside].max())


def peak_limit(state: SoundedChannel, step: float | None, dither: Dither | None) -> float:
    """Largest sample before the filter with which none behind it is beyond full scale."""
    within = _ARITHMETIC * (1.0 if step is None or dither is None else headroom(step, dither))
    if state.flat is not None:
        return within * abs(state.flat.gain)
    return within / float(np.abs(state.inverse.taps).sum())


@_found_once
def _arriving_gain(state: SoundedChannel, air: AirFormat, limit: float | None) -> float:
    """Largest gain of the channel and its image together."""
    return float(channel_gains_upper(state, air).max() + image_upper(state, air, limit).max())


def _scene(state: SoundedChannel, air: AirFormat, circuits: Circuits, noise_std_real: float) -> dict[str, float]:
    """h, G and noise of `fl.privacy.converters`. The image of a level arrives too."""
    gain = _arriving_gain(state, air, circuits.image)
    return {"gain": gain, "inverse_gain": 1.0 / state.weakest_gain, "noise_std_real": noise_std_real}


def _mirrored(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values on the fine grid, in FFT order, at the negative frequencies."""
    return np.roll(values[::-1], 1)
