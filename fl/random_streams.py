"""Independent random streams of one seed, addressed by purpose and number instead of by order of use.

What a stream draws depends only on (seed, purpose, numbers), never on what was drawn before. A resumed run therefore
draws what an uninterrupted one would have, and the number of workers changes nothing.

These are for simulation. Noise that protects data on a real radio must not come from a seed.
"""

from enum import IntEnum

import numpy as np

from hardware.foundation.random_streams import keyed_generator


class Stream(IntEnum):
    """Purposes. The numbers are part of what makes a run reproducible: append, never renumber."""

    DATA = 0
    PARTITION = 1
    MODEL = 2
    LOCAL = 3
    CHANNEL = 4
    NOISE = 5
    JAMMER = 6
    BOUND = 7
    AUDIT = 8
    DITHER = 9


def generator(seed: int, stream: Stream, *numbers: int) -> np.random.Generator:
    """Generator of `stream` for, say, one uplink and one client."""
    return keyed_generator(seed, stream, *numbers)
