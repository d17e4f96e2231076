"""Derived sizes, and numerologies that cannot be."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phy.errors import SignalError
from phy.numerology import Numerology


@st.composite
def numerologies(draw: st.DrawFn) -> Numerology:
    size = draw(st.integers(8, 600))
    return Numerology(size, draw(st.integers(0, size - 1)), draw(st.integers(2, size - 1)), draw(st.floats(1e3, 1e8)))


def test_default_is_the_documented_one() -> None:
    numerology = Numerology()
    assert numerology.symbol_samples == 320
    assert numerology.subcarrier_spacing_hz == 19531.25
    assert numerology.coordinates_per_symbol == 384
    assert numerology.symbols_for(77_915) == 406
    assert numerology.used_bins.dtype == np.int64
    assert numerology.used_bins[[0, 95, 96, 191]].tolist() == [160, 255, 1, 96]
    assert numerology.null_bins.size == 64
    assert numerology.guard_bins.tolist() == list(range(97, 160))


@given(numerology=numerologies())
def test_bins_are_a_partition_in_ascending_frequency(numerology: Numerology) -> None:
    used, null = set(numerology.used_bins.tolist()), set(numerology.null_bins.tolist())
    assert len(used) == numerology.data_subcarriers
    assert used | null == set(range(numerology.fft_size))
    assert not used & null
    assert numerology.dc_bin in null
    assert set(numerology.guard_bins.tolist()) == null - {numerology.dc_bin}
    frequencies = numerology.used_frequencies
    assert np.all(np.diff(frequencies) > 0)
    assert frequencies[0] >= -0.5
    assert frequencies[-1] < 0.5
    np.testing.assert_allclose(np.fft.fftfreq(numerology.fft_size)[numerology.used_bins], frequencies, atol=1e-12)
    # Symmetric as far as possible: the sum of the subcarriers' numbers is zero, or one is left over.
    below, above = -numerology.used_subcarriers[0], numerology.used_subcarriers[-1]
    assert 0 <= below - above <= 1


@given(numerology=numerologies(), cells=st.integers(1, 10**6))
def test_symbols_are_just_enough(numerology: Numerology, cells: int) -> None:
    symbols = numerology.symbols_for(cells)
    assert (symbols - 1) * numerology.data_subcarriers < cells <= symbols * numerology.data_subcarriers


def test_arrays_cannot_be_changed_and_equal_numerologies_hash_equal() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Numerology().used_bins[0] = 1
    assert hash(Numerology()) == hash(Numerology(256, 64, 192, 5e6))
    assert Numerology() != Numerology(cp_samples=32)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fft_size", 4),
        ("fft_size", 256.0),
        ("fft_size", True),
        ("cp_samples", -1),
        ("cp_samples", 256),
        ("data_subcarriers", 1),
        ("data_subcarriers", 256),
        ("sample_rate_hz", 0.0),
        ("sample_rate_hz", math.nan),
        ("sample_rate_hz", math.inf),
    ],
)
def test_impossible_sizes_are_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(SignalError, match=f"^{field} is .*; expected "):
        Numerology(**{field: value})
