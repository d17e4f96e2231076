"""Generators that are addressed by keys draw what they always drew: runs are repeatable across versions."""

import numpy as np
import pytest

from fl.random_streams import Stream, generator
from hardware.air.noise import Purpose, Randomness
from hardware.foundation.random_streams import keyed_generator


def test_names_and_numbers_draw_what_they_drew() -> None:
    """Values that NumPy's SFC64 gives for SeedSequence(7, spawn_key=(1, blake2b names, 3)) and (6, 1001)."""
    names = keyed_generator(7, 1, "client-1", "ps", 3).standard_normal(3)
    assert names.tolist() == [1.2519173230150893, 1.605413654921324, -1.949706276525825]
    numbers = keyed_generator(7, 6, 1001).integers(0, 2**32, 3)
    assert numbers.tolist() == [576170918, 1391088180, 200132411]


def test_both_packages_draw_through_it() -> None:
    air = Randomness(7).generator(Purpose.FADING, "client-1", "ps", 3)
    assert air.standard_normal() == keyed_generator(7, 1, "client-1", "ps", 3).standard_normal()
    run = generator(7, Stream.JAMMER, 1001)
    assert run.integers(0, 2**32) == keyed_generator(7, 6, 1001).integers(0, 2**32)


@pytest.mark.parametrize("keys", [(1, "ps", "client-1", 3), (1, "client-1", "ps", 4), (2, "client-1", "ps", 3)])
def test_other_keys_draw_something_else(keys: tuple[int | str, ...]) -> None:
    given = keyed_generator(7, 1, "client-1", "ps", 3).standard_normal(1000)
    assert abs(np.corrcoef(given, keyed_generator(7, *keys).standard_normal(1000))[0, 1]) < 5 / np.sqrt(1000)
