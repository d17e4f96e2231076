"""Conversions of words as loops that run in one pass and without the interpreter lock: see `phy.compute.compiled`."""

import numpy as np
from numpy.typing import NDArray

from phy.compute.compiled import compiled


@compiled
def round_to_words(values: NDArray[np.float32], scale: np.float32, words: NDArray[np.int16]) -> None:
    """Nearest whole numbers to `scale` times the values, from -scale to scale - 1; halves go to the even one."""
    most = scale - np.float32(1.0)
    for place in range(words.size):
        value = np.rint(values[place] * scale)
        words[place] = np.int16(min(max(value, -scale), most))


@compiled
def scale_words(words: NDArray[np.int16], kept: np.int16, scale: np.float32, values: NDArray[np.float32]) -> None:
    """`scale` times the kept bits of the words."""
    for place in range(values.size):
        values[place] = np.float32(words[place] & kept) * scale
