"""The order in which a client sees its samples; the same for every trainer, so that they can be compared."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def epoch_orders(samples: int, epochs: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """One permutation of 0..samples-1 per epoch. Batches are consecutive slices of it; the last may be shorter."""
    for _ in range(epochs):
        yield rng.permutation(samples)


def batch_slices(samples: int, batch_size: int) -> list[slice]:
    """Consecutive slices that cover 0..samples-1."""
    return [slice(start, min(start + batch_size, samples)) for start in range(0, samples, batch_size)]
