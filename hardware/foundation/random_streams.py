"""Independent random generators of one seed, addressed by keys instead of by order of use.

What a generator draws depends only on the seed and its keys, never on what was drawn before. Packages number their own
purposes: the first key is one of theirs.
"""

import hashlib

import numpy as np


def keyed_generator(seed: int, *keys: int | str) -> np.random.Generator:
    """Generator for numbers (>= 0) and names. SFC64: the fastest of NumPy's for Gaussians."""
    numbers = tuple(_number(key) if isinstance(key, str) else int(key) for key in keys)
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=numbers)))


def _number(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
