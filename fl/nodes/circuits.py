"""What a transmitter's own circuits do to a payload: how peaks are kept within full scale, how samples are rounded, and
by how much more than nominally both, and the mirror image, let a client's gain be charged.

*Peaks.* Shortening samples where they leave would spread over all frequencies, from those at which the channel is weak
and the filter strong to those at which it is the other way round, and bring neighbours further apart in what arrives.
So a burst is shortened before the filter, where it is what shall arrive: a projection, which brings no two signals
further apart. The filter makes of samples of at most c samples of at most c sum |g|: with c = 1/sum |g| nothing
reaches full scale, whatever the update.

*Rounding.* Dithered, and charged: `fl.privacy.converters`.

*Image.* A mixer adds rho x* to what is sent. Of a payload s(f), at f and -f, there arrive

    H(f) G(f) s(f) + rho H(f) G*(-f) s*(-f)      and      H(-f) G(-f) s(-f) + rho H(-f) G*(f) s*(f)

two by two, so the gain is at most the largest singular value of [|H G|(f), |rho H(f) G(-f)|; |rho H(-f) G(f)|,
|H G|(-f)]. Where the channel is R times as strong at f as at -f this is about 1 + |rho| R/2.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.nodes.air_format import AirFormat
from fl.nodes.messages import Circuits, SoundedChannel
from fl.nodes.precoding import channel_gains_upper, flat_error, relative_gain_upper
from fl.privacy.converters import choose_dither, gain_excess
from hardware.radio.contract import Radio
from phy.dither import Dither, headroom
from phy.inversion import BETWEEN
from phy.units import db_to_amplitude_ratio

# What a filter in float32 may add.
_ARITHMETIC = 1.0 - 1e-5


def circuits_of(radio: Radio) -> Circuits:
    """What a radio says of itself."""
    image_db = radio.tx_image_db
    return Circuits(radio.tx_step, 0.0 if image_db is None else db_to_amplitude_ratio(image_db))


def charged_gain_upper(state: SoundedChannel, air: AirFormat, circuits: Circuits, noise_std_real: float) -> float:
    """Upper bound on the factor by which what a client sends moves what arrives.

    noise_std_real: lower bound on the noise that is always there. `PrivacyError` where nothing bounds it.
    """
    gain = gain_with_image(state, air, circuits.image)
    dither = dither_for(state, air, circuits, noise_std_real)
    if circuits.step is None or dither is None:
        return gain
    scene = _scene(state, air, circuits, noise_std_real)
    rounding = gain_excess(dither, circuits.step, **scene)
    if math.isinf(rounding):
        raise PrivacyError(
            f"a step of the transmitter's converter arrives as {circuits.step * scene['gain']:.3g}, more than twice "
            f"the receiver's noise of {noise_std_real:.3g}: lower tx_gain_db or rx_gain_db, or use more bits"
        )
    return gain + rounding


def dither_for(state: SoundedChannel, air: AirFormat, circuits: Circuits, noise_std_real: float) -> Dither | None:
    """What is added before rounding, None where nothing is rounded. All that it rests on is public."""
    if circuits.step is None:
        return None
    return choose_dither(circuits.step, **_scene(state, air, circuits, noise_std_real))


def gain_with_image(state: SoundedChannel, air: AirFormat, image: float) -> float:
    """Upper bound on the gain of a payload, |rho| = `image`: the largest singular value over all pairs f, -f."""
    plain = relative_gain_upper(state, air)
    if image == 0.0:
        return plain
    if state.flat is not None:
        return plain + image * air.gain_margin * (1.0 + flat_error(state, air))
    channel, inverse = channel_gains_upper(state, air), state.inverse.gains
    opposite_channel, opposite_inverse = _mirrored(channel), _mirrored(inverse)
    own, opposite = channel * inverse, opposite_channel * opposite_inverse
    leaked, lost = image * channel * opposite_inverse, image * opposite_channel * inverse
    squares = own**2 + opposite**2 + leaked**2 + lost**2
    determinants = own * opposite - leaked * lost
    largest = np.sqrt((squares + np.sqrt(np.maximum(squares**2 - 4.0 * determinants**2, 0.0))) / 2.0)
    return max(plain, BETWEEN * float(largest.max()))


def peak_limit(state: SoundedChannel, step: float | None, dither: Dither | None) -> float:
    """Largest sample before the filter with which none behind it is beyond full scale."""
    within = _ARITHMETIC * (1.0 if step is None or dither is None else headroom(step, dither))
    if state.flat is not None:
        return within * abs(state.flat.gain)
    return within / float(np.abs(state.inverse.taps).sum())


def _scene(state: SoundedChannel, air: AirFormat, circuits: Circuits, noise_std_real: float) -> dict[str, float]:
    """h, G and noise of `fl.privacy.converters`. The image of a level arrives as the level does."""
    gain = float(channel_gains_upper(state, air).max()) * (1.0 + circuits.image)
    return {"gain": gain, "inverse_gain": 1.0 / state.weakest_gain, "noise_std_real": noise_std_real}


def _mirrored(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values on the fine grid, in FFT order, at the negative frequencies."""
    return np.roll(values[::-1], 1)
