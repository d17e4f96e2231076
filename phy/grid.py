"""Coordinates to cells and back, through a public orthogonal transform that spreads every coordinate.

Neighbouring coordinates of a model update are alike in size, and many are zero: sent as they are they would make peaks
and idle subcarriers. Random signs followed by a Walsh-Hadamard transform over L far-apart coordinates make all cells
alike. The transform is orthogonal, so norms, inner products and white Gaussian noise are unchanged by it. It is no
secret and protects nothing.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phy.errors import SignalError
from phy.numerology import Numerology

# Each doubling costs another pass over the data; at 16 the norm 1/sqrt(L) is exact in binary.
_LARGEST_ORDER = 16
_NO_SIGNS: NDArray[np.int8] = np.empty(0, np.int8)


@dataclass(frozen=True)
class CoordinateGrid:
    """Where `coordinates` real numbers stand in the cells of a payload; every node must use the same `seed`.

    `seed` None leaves coordinates as they are: consecutive pairs become I and Q of consecutive cells.
    """

    numerology: Numerology
    coordinates: int
    seed: int | None

    def __post_init__(self) -> None:
        if self.coordinates < 1:
            raise SignalError("coordinates", self.coordinates, "an integer >= 1", "It is the size of the model.")
        if self.seed is not None and self.seed < 0:
            raise SignalError("seed", self.seed, "an integer >= 0 or None", "All nodes of a round share it.")

    @cached_property
    def symbols(self) -> int:
        """OFDM symbols that the coordinates fill, the last one padded with zeros."""
        return self.numerology.symbols_for(-(-self.coordinates // 2))

    @cached_property
    def cells(self) -> int:
        """Cells of all symbols, padding included."""
        return self.symbols * self.numerology.data_subcarriers

    @cached_property
    def order(self) -> int:
        """L, the number of slices that are mixed: the largest power of two <= 16 that divides the padded length."""
        padded = 2 * self.cells
        return min(_LARGEST_ORDER, padded & -padded)

    def to_cells(
        self, coordinates: NDArray[np.float32], out: NDArray[np.complex64] | None = None
    ) -> NDArray[np.complex64]:
        """Coordinates float32 (..., d) to cells complex64 (..., symbols, data_subcarriers): y = H_L reshape(s * x).

        The padded vector, times the signs s, is cut into L rows of equal length; H_L is the orthonormal Hadamard
        matrix. Pairs of the result are the I and Q of a cell. ||y|| = ||x||. `out` is filled and returned when given:
        complex64, C-contiguous, of the result's shape; using it again and again halves the time.
        """
        self._require_coordinates(coordinates, coordinates.shape[-1:])
        batch = coordinates.shape[:-1]
        shape = (*batch, self.symbols, self.numerology.data_subcarriers)
        if out is None:
            out = np.empty(shape, dtype=np.complex64)
        elif out.shape != shape or out.dtype != np.complex64 or not out.flags.c_contiguous:
            raise SignalError(
                "out", f"{out.dtype} {out.shape}", f"C-contiguous complex64 {shape}", "Allocate it with numpy.empty."
            )
        padded = out.reshape(-1, self.cells).view(np.float32)
        for values, mixed in zip(np.ascontiguousarray(coordinates).reshape(-1, self.coordinates), padded, strict=True):
            self._mix(values, mixed)
        return out

    def to_coordinates(self, cells: NDArray[np.complex64]) -> NDArray[np.float32]:
        """Cells (..., symbols, data_subcarriers) to coordinates float32 (..., d): x = s * H_L^T y, padding dropped.

        White circular noise of variance `noise_var_complex` per cell becomes white noise of half that variance per
        coordinate.
        """
        expected = (self.symbols, self.numerology.data_subcarriers)
        if cells.dtype != np.complex64 or cells.shape[-2:] != expected:
            raise SignalError(
                "cells",
                f"{cells.dtype} {cells.shape}",
                f"complex64 (..., {expected[0]}, {expected[1]})",
                "Demodulate exactly the payload's symbols.",
            )
        padded = np.ascontiguousarray(cells).reshape(*cells.shape[:-2], -1).view(np.float32)
        if self.seed is None:
            return padded[..., : self.coordinates].copy()
        from phy.compute.mixing import mix

        # Sylvester's matrix is symmetric, so it is its own inverse up to its norm.
        mixed = np.empty_like(padded)
        for values, out in zip(padded.reshape(-1, mixed.shape[-1]), mixed.reshape(-1, mixed.shape[-1]), strict=True):
            mix(values, _NO_SIGNS, self.order, self._norm, out)
        return np.asarray(mixed[..., : self.coordinates] * self._signs)

    def to_bins(self, coordinates: NDArray[np.float32], factor: complex, out: NDArray[np.complex64]) -> None:
        """Factor times the cells of coordinates (d,) to the bins of symbols (symbols, fft_size), for the modulator.

        As `to_cells` and `phy.compute.kernels.lay_out` would, in one pass. Bins that are not used stay as they are.
        """
        numerology = self.numerology
        below, used = numerology.negative_subcarriers, numerology.data_subcarriers
        expected = (self.symbols, numerology.fft_size)
        if out.shape != expected or out.dtype != np.complex64 or not out.flags.c_contiguous:
            raise SignalError(
                "out", f"{out.dtype} {out.shape}", f"C-contiguous complex64 {expected}", "Allocate it with numpy.zeros."
            )
        # Rows of the transform may divide cells only where they hold whole ones.
        if self.seed is None or self.cells % self.order:
            from phy.compute.kernels import lay_out

            lay_out(self.to_cells(coordinates), np.complex64(factor), below, out)
            return
        from phy.compute.mixing import spread

        self._require_coordinates(coordinates, coordinates.shape)
        weight = np.complex64(factor * self._norm)
        spread(np.ascontiguousarray(coordinates), self._signs, self.order, weight, below, used, out)

    def _require_coordinates(self, coordinates: NDArray[np.float32], shape: tuple[int, ...]) -> None:
        if coordinates.dtype != np.float32 or shape != (self.coordinates,):
            raise SignalError(
                "coordinates",
                f"{coordinates.dtype} {coordinates.shape}",
                f"float32 (..., {self.coordinates})",
                "Flatten the update and convert it to float32.",
            )

    def _mix(self, coordinates: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        if self.seed is None:
            out[: self.coordinates] = coordinates
            out[self.coordinates :] = 0.0
            return
        from phy.compute.mixing import mix

        mix(coordinates, self._signs, self.order, self._norm, out)

    @cached_property
    def _norm(self) -> np.float32:
        return np.float32(1.0 / np.sqrt(self.order))

    @cached_property
    def _signs(self) -> NDArray[np.int8]:
        # Bits of raw generator output: unlike the distributions' methods these are promised never to change.
        words = np.random.PCG64(self.seed).random_raw(-(-self.coordinates // 64))
        bits = np.unpackbits(np.asarray(words, dtype="<u8").view(np.uint8), count=self.coordinates)
        return np.where(bits, np.int8(1), np.int8(-1))
