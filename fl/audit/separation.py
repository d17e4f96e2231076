"""The worst direction in which a neighbour can move what a receiver gets, and how far it moves it: linear algebra.

    y = A u + J + n,    cov(J + n) = Sigma = noise_var_complex I + 2 B B^H

with A (N, d) from the update's real coordinates to samples and B (N, q) from the jammer's circular draws, each of unit
variance on I and Q. Two updates that differ by w are apart by mu^2 = w^T G w with G = 2 Re(A^H Sigma^-1 A): the worst
w of norm tau by tau sqrt(lambda_max(G)). A and B are probed column by column: each is what the node's own code sends
for one coordinate or one draw, through the path to the receiver. A may contain mirror images (it is linear over real
numbers only); Sigma is taken for circular.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, eigh, solve_triangular, toeplitz

from fl.audit.paths import Window
from fl.audit.watch import Burst, ClientMoment, Draws, JammerMoment
from fl.errors import PrivacyError

PROBE = 0.25
"""Length of a probe in units of tau: short enough that no sample reaches full scale."""
_BLOCK = 128
"""Draws of a jammer that are probed together to see whether any of them reaches a window."""
_NEGLIGIBLE = 1e-8
"""Part of an energy at which a sample is taken for one that nothing reaches."""

_SAME = 1e-4
"""Relative difference of two signals that float32 explains."""


class Path(Protocol):
    """The way to a receiver."""

    def heard(self, burst: Burst, window: Window) -> NDArray[np.complex64]:
        """What it gets of a burst in `window`."""
        ...


def update_operator(
    client: ClientMoment, path: Path, window: Window, coordinates: int
) -> tuple[NDArray[np.complex64], Window]:
    """A (N, d) by probing every coordinate, and the part of `window` that it reaches."""
    length = PROBE * client.node.clip_norm
    columns = np.empty((window.count, coordinates), np.complex64, order="F")
    probe = np.zeros(coordinates, np.float32)
    for number in range(coordinates):
        probe[number] = length
        columns[:, number] = path.heard(client.sends(probe), window)
        probe[number] = 0.0
    columns /= np.float32(length)
    energy = np.einsum("nd,nd->n", columns, columns.conj()).real
    reached = np.flatnonzero(energy > _NEGLIGIBLE * energy.max())
    first, end = int(reached[0]), int(reached[-1]) + 1
    return columns[first:end], Window(window.start_sample + first, end - first)


def jammer_covariance(jammer: JammerMoment, path: Path, window: Window) -> NDArray[np.complex128]:
    """2 B B^H (N, N): a Toeplitz matrix where all draws are shifts of one, which a test shows, else from B itself."""
    draws = seen_draws(jammer, path, window)
    if not draws:
        return np.zeros((window.count, window.count), np.complex128)
    middle, last = draws[len(draws) // 2], draws[-1]
    wide = Window(window.start_sample - (last - middle), window.count + last - draws[0])
    response = path.heard(jammer.basis(middle), wide)
    shifts = np.lib.stride_tricks.sliding_window_view(response, window.count)[last - np.array(draws)].T
    if not _explains(shifts, jammer, path, window, draws):
        return covariance_of(jammer_operator(jammer, path, window))
    spectrum = np.abs(np.fft.fft(response.astype(np.complex128), 2 * response.size)) ** 2
    correlation = 2.0 * np.fft.ifft(spectrum)[: window.count]
    return np.asarray(toeplitz(correlation, correlation.conj()))


def jammer_operator(jammer: JammerMoment, path: Path, window: Window) -> NDArray[np.complex64]:
    """B (N, q) by probing every draw that `window` sees anything of."""
    columns = [path.heard(jammer.basis(number), window) for number in seen_draws(jammer, path, window)]
    return np.stack(columns, axis=1) if columns else np.zeros((window.count, 0), np.complex64)


def covariance_of(jamming: NDArray[np.complex64]) -> NDArray[np.complex128]:
    """2 B B^H of draws that have unit variance on each of I and Q."""
    wide = jamming.astype(np.complex128)
    return np.asarray(2.0 * (wide @ wide.conj().T))


def _explains(
    operator: NDArray[np.complex64], jammer: JammerMoment, path: Path, window: Window, draws: list[int]
) -> bool:
    """Whether noise in all draws at once arrives as the operator says: one that differs would show."""
    noise = np.zeros(jammer.draws(), np.complex64)
    noise[draws] = np.random.default_rng(1).standard_normal(len(draws))
    heard = path.heard(jammer.sends(_in_pieces(noise)), window)
    return bool(np.linalg.norm(operator @ noise[draws] - heard) < _SAME * np.linalg.norm(heard))


def seen_draws(jammer: JammerMoment, path: Path, window: Window) -> list[int]:
    """Draws in those blocks of them of which noise is seen in the window."""
    total, rng = jammer.draws(), np.random.default_rng(0)
    energies = []
    for first in range(0, total, _BLOCK):
        place = np.zeros(total, np.complex64)
        place[first : first + _BLOCK] = rng.standard_normal(min(_BLOCK, total - first))
        heard = path.heard(jammer.sends(_in_pieces(place)), window)
        energies.append(float(np.vdot(heard, heard).real))
    least = _NEGLIGIBLE * max(energies, default=0.0)
    return [
        number
        for block, energy in enumerate(energies)
        if energy > least
        for number in range(block * _BLOCK, min(total, (block + 1) * _BLOCK))
    ]


def _in_pieces(values: NDArray[np.complex64]) -> Draws:
    """A source that gives these values, in as many pieces as it is asked for."""
    taken = [0]

    def piece(count: int) -> NDArray[np.complex64]:
        taken[0] += count
        return values[taken[0] - count : taken[0]].copy()

    return piece


@dataclass(frozen=True)
class Separation:
    """operator: A (N, d). noise_factor: lower triangular L (N, N) with L L^H = Sigma. window: of the samples."""

    operator: NDArray[np.complex64]
    noise_factor: NDArray[np.complex128]
    window: Window

    @classmethod
    def of(
        cls,
        operator: NDArray[np.complex64],
        jamming: NDArray[np.complex128] | None,
        noise_var_complex: float,
        window: Window,
    ) -> "Separation":
        """From A, the covariance of the jammer's noise (N, N), and the receiver's own noise E|n|^2 per sample."""
        if not noise_var_complex > 0:
            raise PrivacyError(f"noise_var_complex is {noise_var_complex}: without noise everything can be told apart")
        covariance = np.zeros((window.count, window.count), np.complex128) if jamming is None else jamming.copy()
        covariance[np.diag_indices(window.count)] += noise_var_complex
        return cls(operator, np.asarray(cholesky(covariance, lower=True)), window)

    @cached_property
    def information(self) -> NDArray[np.float64]:
        """G (d, d)."""
        white = self.whitened(self.operator.astype(np.complex128))
        return np.asarray(2.0 * (white.conj().T @ white).real)

    def whitened(self, samples: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """L^-1 of samples (N, ...)."""
        return np.asarray(solve_triangular(self.noise_factor, samples, lower=True))

    def template(self, samples: NDArray[np.complex64]) -> NDArray[np.complex128]:
        """Sigma^-1 of what arrives for a change (N,): the attacker's best projection is Re(template^H y)."""
        white = self.whitened(samples.astype(np.complex128))
        return np.asarray(solve_triangular(self.noise_factor, white, lower=True, trans="C"))

    def mu(self, change: NDArray[np.float64]) -> float:
        """Separation of two updates that differ by `change` (d,)."""
        return float(np.sqrt(change @ self.information @ change))

    def worst(self, count: int = 1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The `count` largest separations of unit changes, and the changes (count, d), orthonormal, largest first."""
        size = self.information.shape[0]
        values, vectors = eigh(self.information, subset_by_index=[size - count, size - 1])
        return np.sqrt(np.maximum(values[::-1], 0.0)), np.asarray(vectors.T[::-1])
