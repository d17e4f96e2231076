"""The modem against GNU Radio's OFDM blocks, which share no line of code with it.

GNU Radio's FFTs leave out every factor, forward and inverse; ours have 1/sqrt(N) both ways. Its samples of the same
cells are therefore sqrt(N) times ours, and so are its cells of the same samples.
"""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from phy.modem import demodulate, modulate
from phy.numerology import Numerology
from tests.gnuradio_needed import needs_gnuradio, through
from tests.phy.signals import circular

pytestmark = needs_gnuradio
NUMEROLOGIES = (Numerology(64, 16, 52), Numerology(), Numerology(1024, 72, 601))
SYMBOLS = 7
RIGHT, WRONG = 1e-5, 0.1
"""Relative errors: of float32 arithmetic through an FFT, and of anything that is not the same transform."""

Complex = NDArray[np.complex64]


@pytest.fixture(params=NUMEROLOGIES, ids=lambda numerology: f"fft{numerology.fft_size}")
def numerology(request: pytest.FixtureRequest) -> Numerology:
    chosen: Numerology = request.param
    return chosen


def cells_of(numerology: Numerology) -> Complex:
    return circular((SYMBOLS, numerology.data_subcarriers), 1.0, np.random.default_rng(5))


def relative_error(values: Complex, expected: Complex) -> float:
    assert values.shape == expected.shape
    return float(np.linalg.norm(values - expected) / np.linalg.norm(expected))


def carriers(numerology: Numerology) -> list[list[int]]:
    """One set of carriers, the same in each symbol: signed numbers as GNU Radio counts them."""
    return [numerology.used_subcarriers.tolist()]


def roomy(block: Any, items: int) -> Any:
    """The block with room for two packets at its output: with less than that its thread ends and the graph hangs."""
    block.set_min_output_buffer(2 * items)
    return block


def gnuradio_modulate(
    cells: Complex, numerology: Numerology, cp_samples: int | None = None, shift: bool = True
) -> Complex:
    """Allocator, inverse FFT and prefixer, as gr-digital's own OFDM transmitter connects them.

    Its cells are FFT-shifted, DC in the middle: `shift` tells the FFT so.
    """
    from gnuradio import blocks, digital, fft, gr

    size, prefix = numerology.fft_size, numerology.cp_samples if cp_samples is None else cp_samples
    samples = through(
        cells.reshape(-1),
        roomy(blocks.stream_to_tagged_stream(gr.sizeof_gr_complex, 1, cells.size, "cells"), cells.size),
        roomy(digital.ofdm_carrier_allocator_cvc(size, carriers(numerology), [[]], [[]], [], "cells"), SYMBOLS),
        roomy(fft.fft_vcc(size, False, [], shift), SYMBOLS),
        roomy(digital.ofdm_cyclic_prefixer(size, size + prefix, 0, "cells"), SYMBOLS * (size + prefix)),
    )
    return np.asarray(samples / np.float32(np.sqrt(size)))


def gnuradio_demodulate(
    samples: Complex, numerology: Numerology, window_start: int | None = None, shift: bool = True
) -> Complex:
    """Removal of the prefix, FFT and serializer; no block of GNU Radio removes prefixes and nothing else."""
    from gnuradio import blocks, digital, fft, gr

    size, start = numerology.fft_size, numerology.cp_samples if window_start is None else window_start
    cells = through(
        samples,
        blocks.keep_m_in_n(gr.sizeof_gr_complex, size, numerology.symbol_samples, start),
        blocks.stream_to_vector(gr.sizeof_gr_complex, size),
        roomy(blocks.stream_to_tagged_stream(gr.sizeof_gr_complex, size, SYMBOLS, "symbols"), SYMBOLS),
        roomy(fft.fft_vcc(size, True, [], shift), SYMBOLS),
        roomy(digital.ofdm_serializer_vcc(size, carriers(numerology), "symbols"), SYMBOLS * size),
    )
    return np.asarray(cells.reshape(SYMBOLS, -1) / np.float32(np.sqrt(size)))


def test_gnuradio_makes_the_same_samples_of_our_cells(numerology: Numerology) -> None:
    cells = cells_of(numerology)
    assert relative_error(gnuradio_modulate(cells, numerology), modulate(cells, numerology)) < RIGHT


def test_gnuradio_demodulates_what_we_modulate(numerology: Numerology) -> None:
    cells = cells_of(numerology)
    assert relative_error(gnuradio_demodulate(modulate(cells, numerology), numerology), cells) < RIGHT


def test_we_demodulate_what_gnuradio_modulates(numerology: Numerology) -> None:
    cells = cells_of(numerology)
    samples = gnuradio_modulate(cells, numerology)
    for window_start in (None, 0, numerology.cp_samples // 2):
        assert relative_error(demodulate(samples, numerology, window_start), cells) < RIGHT


def test_a_window_one_sample_early_is_seen(numerology: Numerology) -> None:
    """The prefix keeps the subcarriers apart, but each turns by 2 pi k / N."""
    cells = cells_of(numerology)
    samples = modulate(cells, numerology)
    assert relative_error(gnuradio_demodulate(samples, numerology, numerology.cp_samples - 1), cells) > WRONG


def test_a_prefix_one_sample_longer_is_seen(numerology: Numerology) -> None:
    cells = cells_of(numerology)
    samples = gnuradio_modulate(cells, numerology, numerology.cp_samples + 1)
    shortened = samples[: SYMBOLS * numerology.symbol_samples]
    assert relative_error(demodulate(shortened, numerology), cells) > WRONG


def test_a_missing_fft_shift_is_seen(numerology: Numerology) -> None:
    """Our row of cells counts from the lowest frequency and GNU Radio's vector has DC in the middle."""
    cells = cells_of(numerology)
    assert relative_error(gnuradio_demodulate(modulate(cells, numerology), numerology, shift=False), cells) > WRONG
    assert relative_error(demodulate(gnuradio_modulate(cells, numerology, shift=False), numerology), cells) > WRONG


def test_the_factor_between_the_two_is_the_root_of_the_size(numerology: Numerology) -> None:
    """Both are the same transform but for it: one that were unitary, or scaled by 1/N one way, would show here."""
    from gnuradio import blocks, fft, gr

    size = numerology.fft_size
    impulse = np.zeros(size, np.complex64)
    impulse[0] = 1.0
    for forward in (True, False):
        spectrum = through(
            impulse,
            blocks.stream_to_vector(gr.sizeof_gr_complex, size),
            fft.fft_vcc(size, forward, [], False),
            blocks.vector_to_stream(gr.sizeof_gr_complex, size),
        )
        np.testing.assert_allclose(spectrum, np.ones(size), atol=1e-6)
