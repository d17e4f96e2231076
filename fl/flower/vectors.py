"""A model as Flower's arrays, and as one vector of coordinates."""

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fl.errors import ModelError

Vector = NDArray[np.float32]


def to_vector(arrays: ArrayRecord) -> Vector:
    """All arrays one after the other, (d,). Only float32 travels: others are counters and buffers, and are refused."""
    parts = {name: array.numpy() for name, array in arrays.items()}
    others = [f"{name} ({part.dtype})" for name, part in parts.items() if part.dtype != np.float32]
    if others or not parts:
        raise ModelError(
            f"arrays that are not float32: {', '.join(others) or 'none at all'}; buffers do not travel over the air: "
            "use layers without them (nn.GroupNorm in place of batch normalisation)"
        )
    return np.concatenate([part.ravel() for part in parts.values()])


def to_arrays(vector: Vector, like: ArrayRecord) -> ArrayRecord:
    """Inverse of `to_vector`, with the names and shapes of `like`."""
    made, start = {}, 0
    for name, array in like.items():
        stop = start + int(np.prod(array.shape, dtype=np.int64))
        made[name] = Array(np.ascontiguousarray(vector[start:stop].reshape(array.shape)))
        start = stop
    if start != vector.size:
        raise ModelError(f"a vector of {vector.size} coordinates does not fit arrays of {start}")
    return ArrayRecord(made)
