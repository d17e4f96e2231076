"""One epoch of momentum SGD on the MLP as machine code (Numba), which runs without the interpreter lock.

A batch of 16 is some 40 microseconds of arithmetic. As a dozen calls into a library it takes four times as long, most
of it on the way to the library and under the lock, where a second core cannot help.

Arrays are float32 with contiguous rows; a row of weights belongs to one unit. Products are taken in blocks of
`SAMPLES` by `UNITS`, whose twelve sums fill the vector registers, and over multiples of `LANES`, two registers' width.
Arrays are padded to such multiples; the padding is zero and stays zero. Loops stand where NumPy would have slices,
because Numba compiles them several times faster, into code that is no slower.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Indices = NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., Any])

SAMPLES, UNITS, LANES = 4, 3, 16
_ZERO, _ONE = np.float32(0), np.float32(1)


class Samples(NamedTuple):
    """A client's data as the first layer sees it.

    inputs: (n, K padded), what the layer's change is multiplied with. start: (n, hidden), the layer's output before any
    change. labels: (n,).
    """

    inputs: Array
    start: Array
    labels: Indices


class First(NamedTuple):
    """The first layer's change so far and its velocity: (hidden padded, K padded)."""

    change: Array
    velocity: Array


class Second(NamedTuple):
    """The second layer, its start and its velocity: (classes padded, hidden + 1 padded), biases in column `hidden`."""

    weights: Array
    start: Array
    velocity: Array


class Rates(NamedTuple):
    """v <- momentum v + gradient + mu (w - start), w <- w - lr v."""

    lr: np.float32
    momentum: np.float32
    mu: np.float32


def _compiled(function: Function) -> Function:
    """Compile for this processor at the first call; the result is kept on disk, where a folder can be written."""
    # Sums may be reordered, which vector registers need; NaN and infinity keep their meaning.
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}
    try:
        made: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        made = numba.njit(**options)(function)
    return made


@_compiled
def padded(count: int, multiple: int) -> int:
    """The smallest multiple that is not below `count`."""
    return (count + multiple - 1) // multiple * multiple


@_compiled
def _products(x: Array, rows: Indices, y: Array, columns: int, out: Array) -> None:
    """out[i, j] = x[rows[i]] . y[j], over the first `columns`. Written out, because no loop keeps the sums in
    registers."""
    for j in range(0, len(y), UNITS):
        y0, y1, y2 = y[j], y[j + 1], y[j + 2]
        for i in range(0, len(rows), SAMPLES):
            x0, x1, x2, x3 = x[rows[i]], x[rows[i + 1]], x[rows[i + 2]], x[rows[i + 3]]
            s00 = s01 = s02 = s10 = s11 = s12 = s20 = s21 = s22 = s30 = s31 = s32 = _ZERO
            for k in range(columns):
                s00 += x0[k] * y0[k]
                s01 += x0[k] * y1[k]
                s02 += x0[k] * y2[k]
                s10 += x1[k] * y0[k]
                s11 += x1[k] * y1[k]
                s12 += x1[k] * y2[k]
                s20 += x2[k] * y0[k]
                s21 += x2[k] * y1[k]
                s22 += x2[k] * y2[k]
                s30 += x3[k] * y0[k]
                s31 += x3[k] * y1[k]
                s32 += x3[k] * y2[k]
            out[i, j], out[i, j + 1], out[i, j + 2] = s00, s01, s02
            out[i + 1, j], out[i + 1, j + 1], out[i + 1, j + 2] = s10, s11, s12
            out[i + 2, j], out[i + 2, j + 1], out[i + 2, j + 2] = s20, s21, s22
            out[i + 3, j], out[i + 3, j + 1], out[i + 3, j + 2] = s30, s31, s32


@_compiled
def _add_combination(weights: Array, x: Array, rows: Indices, out: Array) -> None:
    """out += sum_i weights[i] x[rows[i]], four terms at a time."""
    fours = len(rows) // 4 * 4
    for i in range(0, fours, 4):
        w0, w1, w2, w3 = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        x0, x1, x2, x3 = x[rows[i]], x[rows[i + 1]], x[rows[i + 2]], x[rows[i + 3]]
        for k in range(len(out)):
            out[k] += (w0 * x0[k] + w1 * x1[k]) + (w2 * x2[k] + w3 * x3[k])
    for i in range(fours, len(rows)):
        w0, x0 = weights[i], x[rows[i]]
        for k in range(len(out)):
            out[k] += w0 * x0[k]


@_compiled
def _errors(logits: Array, labels: Indices, batch: Indices, out: Array) -> None:
    """Gradient of the batch's mean cross-entropy with respect to its logits: (softmax - one-hot)/b, (b, classes)."""
    share = _ONE / np.float32(len(batch))
    for i in range(len(batch)):
        largest, total = logits[i, 0], _ZERO
        for c in range(out.shape[1]):
            largest = max(largest, logits[i, c])
        for c in range(out.shape[1]):
            out[i, c] = np.exp(logits[i, c] - largest)
            total += out[i, c]
        for c in range(out.shape[1]):
            out[i, c] *= share / total
        out[i, labels[batch[i]]] -= share


@_compiled
def _step_second(second: Second, errors: Array, active: Array, batch: Indices, rates: Rates) -> None:
    """One step from errors (b, classes) and the activations that they came from; batch: 0 .. b-1."""
    for c in range(errors.shape[1]):
        weights, start, velocity = second.weights[c], second.start[c], second.velocity[c]
        for k in range(len(weights)):
            velocity[k] = rates.momentum * velocity[k] + rates.mu * (weights[k] - start[k])
        _add_combination(errors[:, c], active, batch, velocity)
        for k in range(len(weights)):
            weights[k] -= rates.lr * velocity[k]


@_compiled
def _step_first(first: First, back: Array, inputs: Array, rows: Indices, rates: Rates, in_sample_space: bool) -> None:
    """One step from dL/dZ (b, hidden) of samples `rows`, unit by unit while its weights are in the cache.

    In sample space a sample's gradient is its own coordinate, else its inputs.
    """
    for j in range(back.shape[1]):
        change, velocity = first.change[j], first.velocity[j]
        for k in range(len(change)):
            velocity[k] = rates.momentum * velocity[k] + rates.mu * change[k]
        if in_sample_space:
            for i in range(len(rows)):
                velocity[rows[i]] += back[i, j]
        else:
            _add_combination(back[:, j], inputs, rows, velocity)
        for k in range(len(change)):
            change[k] -= rates.lr * velocity[k]


@_compiled
def train_epoch(
    samples: Samples,
    order: Indices,
    first: First,
    second: Second,
    rates: Rates,
    batch_size: int,
    classes: int,
    in_sample_space: bool,
    anew: bool,
) -> None:
    """Go once through `order` (n,) in batches, the last perhaps smaller; both layers are changed in place.

    anew: the first epoch, with samples in the order in which they are seen. In sample space a sample's column of the
    change is zero until it is, so that inputs beyond the batches before are not looked at.
    """
    hidden = samples.start.shape[1]
    rows = padded(min(batch_size, len(order)), SAMPLES)
    counting = np.arange(max(rows, classes))
    blocks = np.zeros(rows, np.int64)
    z = np.zeros((rows, len(first.change)), np.float32)
    active = np.zeros((rows, second.weights.shape[1]), np.float32)
    for i in range(rows):
        active[i, hidden] = _ONE
    logits = np.zeros((rows, len(second.weights)), np.float32)
    errors = np.zeros((rows, classes), np.float32)
    back = np.zeros((rows, hidden), np.float32)
    for begin in range(0, len(order), batch_size):
        batch = order[begin : begin + batch_size]
        b = len(batch)
        # Rows beyond the batch are computed for the sake of whole blocks and not looked at.
        for i in range(b):
            blocks[i] = batch[i]
        columns = padded(begin, LANES) if anew and in_sample_space else first.change.shape[1]
        _products(samples.inputs, blocks, first.change, columns, z)
        for i in range(b):
            start = samples.start[batch[i]]
            for j in range(hidden):
                value = start[j] + z[i, j]
                # So that NaN stays NaN.
                active[i, j] = _ZERO if value <= _ZERO else value
        _products(active, counting[:rows], second.weights, active.shape[1], logits)
        _errors(logits, samples.labels, batch, errors)
        for i in range(b):
            for j in range(hidden):
                back[i, j] = _ZERO
            _add_combination(errors[i], second.weights, counting[:classes], back[i])
            for j in range(hidden):
                if active[i, j] == _ZERO:
                    back[i, j] = _ZERO
        _step_second(second, errors, active, counting[:b], rates)
        _step_first(first, back, samples.inputs, batch, rates, in_sample_space)
