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

    @property
    def symbols(self) -> int:
        """OFDM symbols that the coordinates fill, the last one padded with zeros."""
        return self.numerology.symbols_for(-(-self.coordinates // 2))

    @property
    def cells(self) -> int:
        """Cells of all symbols, padding included."""
        return self.symbols * self.numerology.data_subcarriers

    @property
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
        if coordinates.dtype != np.float32 or coordinates.shape[-1:] != (self.coordinates,):
            raise SignalError(
                "coordinates",
                f"{coordinates.dtype} {coordinates.shape}",
                f"float32 (..., {self.coordinates})",
                "Flatten the update and convert it to float32.",
            )
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
        padded = np.array(cells, order="C").reshape(*cells.shape[:-2], -1).view(np.float32)
        if self.seed is None:
            return padded[..., : self.coordinates]
        from phy.compute.kernels import mix

        # Sylvester's matrix is symmetric, so it is its own inverse up to its norm.
        for values in padded.reshape(-1, padded.shape[-1]):
            mix(values.copy(), np.ones_like(values), self.order, values)
        return np.asarray(padded[..., : self.coordinates] * self._signs)

    def _mix(self, coordinates: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        if self.seed is None:
            out[: self.coordinates] = coordinates
            out[self.coordinates :] = 0.0
            return
        from phy.compute.kernels import mix

        mix(coordinates, self._signs, self.order, out)

    @cached_property
    def _signs(self) -> NDArray[np.float32]:
        # Bits of raw generator output: unlike the distributions' methods these are promised never to change.
        words = np.random.PCG64(self.seed).random_raw(-(-self.coordinates // 64))
        bits = np.unpackbits(np.asarray(words, dtype="<u8").view(np.uint8), count=self.coordinates)
        # The norm of the Hadamard matrix is in the signs: a factor of its own would cost a pass over the data.
        scale = np.float32(1.0 / np.sqrt(self.order))
        return np.where(bits, scale, -scale)
