"""The preamble's structure, and the properties that timing and frequency estimation need."""

import numpy as np
import pytest

from phy.frame import sounding_cells
from phy.modem import modulate
from phy.numerology import Numerology
from phy.preamble import preamble_half, preamble_length, preamble_samples

NUMEROLOGIES = (Numerology(), Numerology(64, 16, 52), Numerology(1024, 72, 600), Numerology(128, 0, 100))


@pytest.mark.parametrize("numerology", NUMEROLOGIES)
def test_two_equal_halves_after_their_own_end(numerology: Numerology) -> None:
    samples, half = preamble_samples(numerology), preamble_half(numerology)
    prefix, size = numerology.cp_samples, numerology.fft_size
    assert samples.size == preamble_length(numerology) == prefix + 2 * size
    np.testing.assert_array_equal(samples[prefix : prefix + size], half)
    np.testing.assert_array_equal(samples[prefix + size :], half)
    np.testing.assert_array_equal(samples[:prefix], half[size - prefix :])


@pytest.mark.parametrize("numerology", NUMEROLOGIES)
def test_nothing_is_sent_at_dc_and_in_the_guards(numerology: Numerology) -> None:
    spectrum = np.fft.fft(preamble_half(numerology).astype(np.complex128), norm="ortho")
    np.testing.assert_allclose(np.abs(spectrum[numerology.null_bins]), 0.0, atol=1e-5)
    used = np.abs(spectrum[numerology.used_bins])
    np.testing.assert_allclose(used, used[0], rtol=1e-4)


def test_autocorrelation_has_one_peak() -> None:
    """Oracle: the autocorrelation of a flat spectrum of width 0.75 is its transform: sidelobes as of a sinc, -13 dB."""
    spectrum = np.zeros(256)
    spectrum[Numerology().used_bins] = 1.0
    expected = np.abs(np.fft.ifft(spectrum)) * 256 / 192
    half = preamble_half(Numerology()).astype(np.complex128)
    correlation = np.abs(np.fft.ifft(np.abs(np.fft.fft(half)) ** 2))
    np.testing.assert_allclose(correlation / correlation[0], expected, atol=1e-5)
    assert expected[3:-2].max() < 10 ** (-13 / 20)


def test_sounding_symbols_are_not_taken_for_the_preamble() -> None:
    numerology = Numerology()
    half = preamble_half(numerology)
    symbols = modulate(sounding_cells(numerology, 4), numerology)
    correlation = np.abs(np.correlate(symbols, half, mode="valid")) / np.sum(np.abs(half) ** 2)
    assert correlation.max() < 0.2


def test_cached_arrays_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        preamble_samples(Numerology())[0] = 0.0
