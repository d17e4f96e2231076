"""The worst direction in which a neighbour can move what a receiver gets, and how far it moves it: linear algebra.

    y = A u + J + n,    cov(J + n) = Sigma = noise_var_complex I + B_I B_I^H + B_Q B_Q^H

with A (N, d) from the update's real coordinates to samples and B (N, q) from the jammer's draws, each of unit variance
on I and on Q. Two updates that differ by w are apart by mu^2 = w^T G w with G = 2 Re(A^H Sigma^-1 A): the worst
w of norm tau by tau sqrt(lambda_max(G)). A and B are probed column by column: each is what the node's own code sends
for one coordinate or one draw, through the path to the receiver. A may contain mirror images (it is linear over real
numbers only). Sigma is taken for circular, or (`composite`) real and imaginary parts stand for themselves.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from fl.audit.paths import Path, Window
from fl.audit.watch import ClientMoment
from fl.errors import PrivacyError

PROBE = 0.25
"""Length of a probe in units of tau: short enough that no sample reaches full scale."""
_NEGLIGIBLE = 1e-8
"""Part of an energy at which a sample is taken for one that nothing reaches."""


def update_operator(
    client: ClientMoment, path: Path, window: Window, coordinates: int
) -> tuple[NDArray[np.complex64], Window]:
    """A (N, d) by probing every coordinate, and the part of `window` that it reaches."""
    columns = arriving(client, path, window, np.eye(coordinates, dtype=np.float32))
    energy = np.einsum("nd,nd->n", columns, columns.conj()).real
    reached = np.flatnonzero(energy > _NEGLIGIBLE * energy.max())
    first, end = int(reached[0]), int(reached[-1]) + 1
    return columns[first:end], Window(window.start_sample + first, end - first)


def arriving(client: ClientMoment, path: Path, window: Window, changes: NDArray[np.float32]) -> NDArray[np.complex64]:
    """What the receiver gets of changes (k, d) of unit norm, each for itself: (N, k)."""
    length = np.float32(PROBE * client.node.clip_norm)
    columns = np.empty((window.count, changes.shape[0]), np.complex64, order="F")
    for number, change in enumerate(changes):
        columns[:, number] = path.heard(client.sends(length * change), window)
    columns /= length
    return columns


_Covariance = TypeVar("_Covariance", NDArray[np.complex128], NDArray[np.float64])


def noise_factor(jamming: _Covariance, noise_var_complex: float) -> _Covariance:
    """L, lower triangular, with L L^H = jamming + noise_var_complex I."""
    if not noise_var_complex > 0:
        raise PrivacyError(f"noise_var_complex is {noise_var_complex}: without noise everything can be told apart")
    covariance = jamming.copy()
    covariance[np.diag_indices(covariance.shape[0])] += noise_var_complex
    return np.asarray(cholesky(covariance, lower=True))


def composite_factor(
    jamming: NDArray[np.float64] | None, noise_var_complex: float, window: Window
) -> NDArray[np.float64]:
    """The same for real parts above imaginary parts, whose covariance `jamming` (2N, 2N) is, twice as large.

    So that mu is computed alike: a real part of circular noise has half the variance of the whole.
    """
    size = 2 * window.count
    return noise_factor(np.zeros((size, size)) if jamming is None else 2.0 * jamming, noise_var_complex)


@dataclass(frozen=True)
class Separation:
    """operator: A (N, d). noise_factor: lower triangular L (N, N) with L L^H = Sigma. window: of the samples.

    Made by `composite`, rows are real parts and imaginary parts, and Sigma is twice their covariance.
    """

    operator: NDArray[np.complex64]
    noise_factor: NDArray[np.complex128] | NDArray[np.float64]
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
        covariance = np.zeros((window.count, window.count), np.complex128) if jamming is None else jamming
        return cls(operator, noise_factor(covariance, noise_var_complex), window)

    @classmethod
    def composite(cls, operator: NDArray[np.complex64], factor: NDArray[np.float64], window: Window) -> "Separation":
        """On real and imaginary parts, for noise that is not circular. factor: see `composite_factor`."""
        return cls(np.concatenate([operator.real, operator.imag]).astype(np.complex64), factor, window)

    @cached_property
    def information(self) -> NDArray[np.float64]:
        """G (d, d)."""
        white = self.whitened(self.operator.astype(np.complex128))
        # Re(W^H W) of real matrices alone, which takes a quarter of the time.
        axes = np.concatenate([white.real, white.imag])
        return np.asarray(2.0 * (axes.T @ axes))

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

    def largest_gain(self) -> float:
        """The most by which what arrives is longer than a change, whatever the noise."""
        wide = self.operator.astype(np.complex128)
        size = wide.shape[1]
        energies = (wide.conj().T @ wide).real
        return math.sqrt(float(eigh(energies, subset_by_index=[size - 1, size - 1], eigvals_only=True)[0]))

    def worst_mu(self) -> float:
        """The largest separation of a unit change alone, in a fraction of the time that all of `worst` takes."""
        try:
            largest = eigsh(self.information, k=1, which="LA", tol=1e-8, return_eigenvectors=False)[0]
        except ArpackNoConvergence:
            return float(self.worst()[0][0])
        return math.sqrt(max(0.0, float(largest)))

    def worst(self, count: int = 1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The `count` largest separations of unit changes, and the changes (count, d), orthonormal, largest first."""
        size = self.information.shape[0]
        values, vectors = eigh(self.information, subset_by_index=[size - count, size - 1])
        return np.sqrt(np.maximum(values[::-1], 0.0)), np.asarray(vectors.T[::-1])


@dataclass(frozen=True)
class Directions:
    """changes: (2k, d), orthonormal, the k worst first. templates: the attacker's projections (2k, N) in `window`.

    crosstalk: (2k, 2k), what each projection has of each other change, which the attacker knows and subtracts.
    predicted_mus: of the k worst changes (k,), by linear algebra. window: from the capture's first sample.
    """

    separation: Separation
    changes: NDArray[np.float64]
    templates: NDArray[np.complex128]
    crosstalk: NDArray[np.float64]
    predicted_mus: NDArray[np.float64]
    window: Window

    @classmethod
    def of(cls, separation: Separation, start_sample: int, random: NDArray[np.float64]) -> "Directions":
        """As many of the worst as there are random ones (k, d). start_sample: of the capture."""
        predicted, worst = separation.worst(random.shape[0])
        wanted = np.concatenate([worst, random])
        changes = np.linalg.qr(wanted.T)[0].T
        changes *= np.sign(np.einsum("kd,kd->k", changes, wanted))[:, None]
        templates, crosstalk = _projections(separation, separation.operator @ changes.T.astype(np.complex64))
        window = Window(separation.window.start_sample - start_sample, separation.window.count)
        return cls(separation, changes, templates, crosstalk, predicted, window)

    def followed(self, client: ClientMoment, path: Path, capture: Window) -> "Directions":
        """The same changes in another uplink, in which they arrive at another moment and with another phase."""
        first = self._place(path.heard(client.sends(self.changes[0].astype(np.float32)), capture))
        window = Window(first, self.window.count)
        placed = Window(capture.start_sample + first, window.count)
        heard = arriving(client, path, placed, self.changes.astype(np.float32))
        templates, crosstalk = _projections(self.separation, heard)
        return replace(self, templates=templates, crosstalk=crosstalk, window=window)

    def _place(self, heard: NDArray[np.complex64]) -> int:
        """Where the window begins, so that the first change is as far into it as it was."""
        before = self.separation.operator @ self.changes[0].astype(np.complex64)
        first = round(_centre(heard) - _centre(before))
        return min(max(0, first), heard.size - self.window.count)

    def update(self, amounts: NDArray[np.float64]) -> NDArray[np.float64]:
        """So much of each change (2k,), together (d,)."""
        return np.asarray(amounts @ self.changes)

    def statistics(self, samples: NDArray[np.complex64], amounts: NDArray[np.float64]) -> NDArray[np.float64]:
        """The attacker's, of a capture in which there was so much of each change, less what the others put there."""
        inside = samples[self.window.start_sample : self.window.start_sample + self.window.count]
        return np.asarray((self.templates @ inside).real - self.crosstalk @ amounts)


def _projections(
    separation: Separation, heard: NDArray[np.complex64]
) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    templates = separation.template(heard).T.conj()
    crosstalk = (templates @ heard).real
    np.fill_diagonal(crosstalk, 0.0)
    return templates, crosstalk


def _centre(samples: NDArray[np.complex64]) -> float:
    """Mean place of the energy."""
    energy = np.abs(samples.astype(np.complex128)) ** 2
    return float(np.arange(samples.size) @ energy / energy.sum())
