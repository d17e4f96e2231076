"""Gaussian numbers against those of NumPy's own generator, which are the oracle: every bit and every later number."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from phy.compute.gaussian import gaussian

Bits = Callable[[int], np.random.BitGenerator]


def numbers_of_numpy(count: int, std: float, rng: np.random.Generator) -> NDArray[np.float32]:
    return rng.standard_normal(count, dtype=np.float32) * np.float32(std)


# 600,000 numbers hold 156 of the tail (2.6e-4) and some 4,000 between layers (0.7 %).
@pytest.mark.parametrize("seed", range(4))
def test_numbers_are_numpys_and_so_is_what_comes_next(seed: int) -> None:
    ours, theirs = (np.random.Generator(np.random.SFC64(seed)) for _ in range(2))
    # Odd counts leave half a word, few numbers are NumPy's own.
    for count in (600_001, 3, 512, 10_001, 0, 99_999):
        found, expected = gaussian(count, 0.37, ours), numbers_of_numpy(count, 0.37, theirs)
        # By bits: zeros have a sign too.
        assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))
    assert ours.integers(1 << 60) == theirs.integers(1 << 60)
    assert ours.random(dtype=np.float32) == theirs.random(dtype=np.float32)


def test_tails_are_numpys() -> None:
    ours, theirs = (np.random.Generator(np.random.SFC64(7)) for _ in range(2))
    found, expected = gaussian(3_000_000, 1.0, ours), numbers_of_numpy(3_000_000, 1.0, theirs)
    # The lowest layer ends at 3.654: about 780 numbers are beyond it.
    assert np.count_nonzero(np.abs(found) > 3.66) > 500
    assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.Philox, np.random.MT19937])
def test_other_generators_are_left_to_numpy(bits: Bits) -> None:
    ours, theirs = (np.random.Generator(bits(3)) for _ in range(2))
    assert np.array_equal(gaussian(5_000, 2.0, ours), numbers_of_numpy(5_000, 2.0, theirs))
    assert ours.integers(1 << 60) == theirs.integers(1 << 60)
