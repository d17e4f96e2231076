"""Gaussian numbers in single precision: those of NumPy's generator on SFC64, bit for bit, in a third of its time.

NumPy's ziggurat (Marsaglia and Tsang 2000, 256 layers) asks its generator for each number through a pointer. Here the
generator's few operations stand in the loop. State is taken from the generator and given back, so that whoever draws
from it next gets what he would have got.

Layer i reaches from 0 to x_i, with f(x) = exp(-x^2/2); all have the area v, the lowest with the tail beyond r.
"""

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phy.compute.compiled import compiled_exactly

_LAYERS = 256
_R = 3.6541528853610088
_AREA = 0.00492867323399141
"""v of 256 layers, to the last bit of float64."""
_SCALE = float(1 << 23)
_R_SINGLE, _INVERSE_R_SINGLE = np.float32(_R), np.float32(1.0 / _R)
_UNIT = np.float32(1.0 / (1 << 24))
_FEWEST = 512
"""Numbers from which on it pays to fetch a generator's state and to give it back."""


def gaussian(count: int, std: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """`np.float32(std) * rng.standard_normal(count, dtype=np.float32)`."""
    source, scale = rng.bit_generator, np.float32(std)
    if count < _FEWEST or not isinstance(source, np.random.SFC64):
        numbers = rng.standard_normal(count, dtype=np.float32)
        numbers *= scale
        return numbers
    out = np.empty(count, np.float32)
    with source.lock:
        state = source.state
        rest = np.array([state["uinteger"], state["has_uint32"]], np.uint64)
        words = np.concatenate([state["state"]["state"], rest])
        _fill(words, *_tables(), scale, out)
        state["state"]["state"], state["uinteger"], state["has_uint32"] = words[:4], int(words[4]), int(words[5])
        source.state = state
    return out


@cache
def _tables() -> tuple[NDArray[np.uint32], NDArray[np.float32], NDArray[np.float32]]:
    """Of each layer: the whole numbers below which x is within the next one, x_i over 2^23, and f(x_i)."""
    within, widths, heights = np.zeros(_LAYERS), np.zeros(_LAYERS), np.ones(_LAYERS)
    height = math.exp(-0.5 * _R * _R)
    within[0], widths[0] = _R * height / _AREA, _AREA / height
    x = _R
    for layer in range(_LAYERS - 1, 0, -1):
        widths[layer], heights[layer] = x, math.exp(-0.5 * x * x)
        narrower = math.sqrt(-2.0 * math.log(_AREA / x + heights[layer])) if layer > 1 else 0.0
        within[layer], x = narrower / x, narrower
    return np.rint(within * _SCALE).astype(np.uint32), (widths / _SCALE).astype(np.float32), heights.astype(np.float32)


@compiled_exactly
def _word(state: NDArray[np.uint64]) -> np.uint32:
    """32 bits of SFC64 (Doty-Humphrey 2018): the lower half of a word, then the upper one. See `_fill`."""
    if state[5]:
        state[5] = np.uint64(0)
        return np.uint32(state[4])
    a, b, c = state[0], state[1], state[2]
    mixed = a + b + state[3]
    state[3] += np.uint64(1)
    state[0] = b ^ (b >> np.uint64(11))
    state[1] = c + (c << np.uint64(3))
    state[2] = ((c << np.uint64(24)) | (c >> np.uint64(40))) + mixed
    state[4], state[5] = mixed >> np.uint64(32), np.uint64(1)
    return np.uint32(mixed & np.uint64(0xFFFFFFFF))


@compiled_exactly
def _uniform(state: NDArray[np.uint64]) -> np.float32:
    return np.float32(np.float32(_word(state) >> np.uint32(8)) * _UNIT)


@compiled_exactly
def _tail(state: NDArray[np.uint64], bits: np.uint32) -> np.float32:
    while True:
        beyond = np.float32(-_INVERSE_R_SINGLE * np.float32(math.log1p(-_uniform(state))))
        height = np.float32(-np.float32(math.log1p(-_uniform(state))))
        if height + height > beyond * beyond:
            # The sign is another bit than elsewhere.
            return np.float32(-(_R_SINGLE + beyond)) if bits & np.uint32(1 << 17) else np.float32(_R_SINGLE + beyond)


@compiled_exactly
def _number(state: NDArray[np.uint64], bits: np.uint32, within: Any, widths: Any, heights: Any) -> np.float32:
    """The number that begins with these bits, whatever it takes."""
    while True:
        layer, size = np.uintp(bits & np.uint32(0xFF)), (bits >> np.uint32(9)) & np.uint32(0x7FFFFF)
        number = np.float32(np.float32(size) * widths[layer])
        if bits & np.uint32(0x100):
            number = np.float32(-number)
        if size < within[layer]:
            return number
        if not layer:
            return _tail(state, bits)
        # Between two layers: below the curve, or once more from the beginning.
        height = (heights[layer - np.uintp(1)] - heights[layer]) * _uniform(state) + heights[layer]
        if np.float64(height) < math.exp(-0.5 * np.float64(number) * np.float64(number)):
            return number
        bits = _word(state)


@compiled_exactly
def _fill(
    state: NDArray[np.uint64], within: Any, widths: Any, heights: Any, scale: np.float32, out: NDArray[np.float32]
) -> None:
    """Fill `out`, `scale` times, and change `state`.

    That is four words of the generator, half of its last one, and 1 where this half is still to be used. Two numbers at
    a time, of one word, as long as both are found at once: 98 times in a hundred.
    """
    place, count = np.uintp(0), np.uintp(out.size)
    while place < count:
        a, b, c, counter = state[0], state[1], state[2], state[3]
        while not state[5] and place + np.uintp(1) < count:
            mixed = a + b + counter
            low, high = np.uint32(mixed & np.uint64(0xFFFFFFFF)), np.uint32(mixed >> np.uint64(32))
            layer, size = np.uintp(low & np.uint32(0xFF)), (low >> np.uint32(9)) & np.uint32(0x7FFFFF)
            other, length = np.uintp(high & np.uint32(0xFF)), (high >> np.uint32(9)) & np.uint32(0x7FFFFF)
            if size >= within[layer] or length >= within[other]:
                break
            sign = np.int32(1) - np.int32((low >> np.uint32(7)) & np.uint32(2))
            opposite = np.int32(1) - np.int32((high >> np.uint32(7)) & np.uint32(2))
            out[place] = np.float32(np.int32(size)) * widths[layer] * np.float32(sign) * scale
            out[place + np.uintp(1)] = np.float32(np.int32(length)) * widths[other] * np.float32(opposite) * scale
            counter += np.uint64(1)
            a = b ^ (b >> np.uint64(11))
            b = c + (c << np.uint64(3))
            c = ((c << np.uint64(24)) | (c >> np.uint64(40))) + mixed
            place += np.uintp(2)
        state[0], state[1], state[2], state[3] = a, b, c, counter
        if place < count:
            out[place] = _number(state, _word(state), within, widths, heights) * scale
            place += np.uintp(1)
