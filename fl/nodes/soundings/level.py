"""Does a transmitter have the gain at a payload's level that it has at full scale, where it is sounded?

An amplifier that compresses the sounding makes its channel look weaker than it is for a payload, 11 dB below. So a
sounding ends with symbols at a payload's own level, and their gain g over that of the others is measured, as one number
for all subcarriers.

An amplifier that turns x into x G(|x|), with a gain that falls and an output |x| G(|x|) that is concave, as one that
saturates does, moves no two signals further apart than G(0) times their distance. At amplitude r of the sounding's,
g - 1 has grown to all but r^2 of what it is at 0 for distortion of third order, and to more for higher orders: what
is found is divided by 1 - r^2.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fl.nodes.messages import LevelChange


def measure_level(
    loud: NDArray[np.complex64], quiet: NDArray[np.complex64], *, loud_var: float, quiet_var: float, level: float
) -> LevelChange:
    """Of raw channels (V,) at full scale and at `level` of it, each entry with noise of its variance.

    Its deviation is infinite where the channel does not stand out of the noise.
    """
    reference = loud.astype(np.complex128)
    # Noise of the reference is in its own power too, and would let any gain look smaller.
    power = float(np.vdot(reference, reference).real) - loud.size * loud_var
    if not power > loud.size * loud_var:
        return LevelChange(1.0, math.inf, level)
    gain = abs(complex(np.vdot(reference, quiet.astype(np.complex128)))) / power
    std = math.sqrt((quiet_var + gain**2 * loud_var) / (2.0 * power))
    return LevelChange(gain, std, level)


def level_upper(change: LevelChange | None, confidence: float) -> float:
    """Factor of 1 or more by which the gain at low levels is not above that at full scale, at `confidence`."""
    if change is None:
        return 1.0
    high = change.gain - float(special.ndtri(1.0 - confidence)) * change.std
    return max(1.0, 1.0 + (high - 1.0) / (1.0 - change.level**2))
