"""Rows of Fourier transforms, against NumPy's in double precision."""

import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from phy.compute.filters import convolve
from phy.compute.transforms import row_blocks, suitable, transform_of
from tests.phy.signals import circular


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize(("rows", "size"), [(1, 8), (7, 256), (3, 1000)])
def test_rows_are_transformed(rows: int, size: int, forward: bool) -> None:
    values = circular((rows, size), 1.0, np.random.default_rng(1))
    transform = transform_of(rows, size, forward=forward)
    transform.source[:] = values
    transform(transform.source, transform.target)
    exact = np.fft.fft(values) if forward else np.fft.ifft(values) * size
    assert np.linalg.norm(transform.target - exact) < 1e-6 * np.linalg.norm(exact)
    np.testing.assert_array_equal(transform.source, values)


def test_into_an_array_with_gaps_between_its_rows() -> None:
    values, out = circular((5, 64), 1.0, np.random.default_rng(2)), np.zeros((5, 80), np.complex64)
    transform = transform_of(5, 64, forward=False, target=out[:, 16:])
    transform.source[:] = values
    transform(transform.source, out[:, 16:])
    assert np.linalg.norm(out[:, 16:] - np.fft.ifft(values) * 64) < 1e-5 * np.linalg.norm(out)
    assert not out[:, :16].any()


def test_an_array_that_fftw_would_be_slow_on_is_not_suitable() -> None:
    array = np.zeros((4, 66), np.complex64)
    assert suitable(array)
    assert suitable(array[:, 2:])
    # A row that begins eight bytes off, rows of an odd length, every second sample.
    assert not suitable(array[:, 1:])
    assert not suitable(np.zeros((4, 65), np.complex64))
    assert not suitable(array[:, ::2])


def test_each_thread_has_scratch_of_its_own() -> None:
    other: list[object] = []
    thread = threading.Thread(target=lambda: other.append(transform_of(2, 16, forward=True)))
    thread.start()
    thread.join()
    mine = transform_of(2, 16, forward=True)
    assert mine is transform_of(2, 16, forward=True)
    assert mine is not transform_of(2, 16, forward=True, purpose="another")
    assert mine is not other[0]


@pytest.mark.parametrize(("rows", "size"), [(0, 256), (1, 1 << 20), (406, 256), (2000, 1024)])
def test_blocks_cover_all_rows_once(rows: int, size: int) -> None:
    covered = [row for block in row_blocks(rows, size) for row in range(rows)[block]]
    assert covered == list(range(rows))


@pytest.mark.parametrize(("count", "length"), [(1, 1), (5000, 2), (104_448, 129), (500, 2049)])
def test_a_filter_is_a_convolution(count: int, length: int) -> None:
    samples, taps = (
        circular((count,), 1.0, np.random.default_rng(3)),
        circular((length,), 1.0, np.random.default_rng(4)),
    )
    exact: NDArray[np.complex128] = np.convolve(samples.astype(np.complex128), taps)
    made = convolve(samples, taps)
    assert made.shape == exact.shape
    assert np.linalg.norm(made - exact) < 1e-6 * np.linalg.norm(exact)
