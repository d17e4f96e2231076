"""What a jammer's noise is like where it arrives: its covariance, probed draw by draw.

B (N, q) is what the node's own code sends for each draw, of unit variance on I and on Q, through the path to the
receiver. The two axes differ where a mixer makes an image of what is sent.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import toeplitz

from fl.audit.paths import Path, Window
from fl.audit.watch import Draws, JammerMoment

_BLOCK = 128
"""Draws of a jammer that are probed together to see whether any of them reaches a window."""
_NEGLIGIBLE = 1e-8
"""Part of an energy at which a sample is taken for one that nothing reaches."""
_AXES: tuple[complex, ...] = (1.0, 1j)
_SAME = 1e-4
"""Relative difference of two signals that float32 explains."""


def jammer_covariance(jammer: JammerMoment, path: Path, window: Window) -> NDArray[np.complex128]:
    """B B^H of draws on I and of draws on Q, added up (N, N): the two differ where a mixer makes an image of them.

    A Toeplitz matrix where all draws are shifts of one, which a test shows, else from B itself.
    """
    responses = _one_response(jammer, path, window)
    if responses is None:
        return np.asarray(sum(covariance_of(jammer_operator(jammer, path, window, axis)) for axis in _AXES) / 2.0)
    return np.asarray(sum(_correlated(one, one, window.count) for one in responses))


def composite_covariance(jammer: JammerMoment, path: Path, window: Window) -> NDArray[np.float64]:
    """Of real parts and imaginary parts, one below the other (2N, 2N): all there is to know of noise that is not
    circular, as a jammer's is whose mixer makes an image."""
    responses = _one_response(jammer, path, window)
    if responses is None:
        operators = [jammer_operator(jammer, path, window, axis) for axis in _AXES]
        wide = np.concatenate([np.concatenate([one.real, one.imag]) for one in operators], axis=1).astype(np.float64)
        return np.asarray(wide @ wide.T)
    total = np.zeros((2 * window.count, 2 * window.count))
    for response in responses:
        parts = (response.real, response.imag)
        total += np.block([[_correlated(one, other, window.count).real for other in parts] for one in parts])
    return total


def _one_response(jammer: JammerMoment, path: Path, window: Window) -> list[NDArray[np.complex64]] | None:
    """What arrives of one draw, on I and on Q, where it is the same of every other, but for a shift; else None."""
    draws = seen_draws(jammer, path, window)
    if not draws:
        return []
    middle, last = draws[len(draws) // 2], draws[-1]
    wide = Window(window.start_sample - (last - middle), window.count + last - draws[0])
    responses = [path.heard(jammer.basis(middle, axis), wide) for axis in _AXES]
    shifts = [
        np.lib.stride_tricks.sliding_window_view(response, window.count)[last - np.array(draws)].T
        for response in responses
    ]
    return responses if _explains(shifts, jammer, path, window, draws) else None


def _correlated(
    one: NDArray[np.complexfloating[Any, Any]] | NDArray[np.floating[Any]],
    other: NDArray[np.complexfloating[Any, Any]] | NDArray[np.floating[Any]],
    count: int,
) -> NDArray[np.complex128]:
    """sum_t one[t + m - n] other[t]* at (m, n): of all shifts of both (count, count)."""
    spectra = [np.fft.fft(part.astype(np.complex128), 2 * part.size) for part in (one, other)]
    lags = np.fft.ifft(spectra[0] * spectra[1].conj())
    return np.asarray(toeplitz(lags[:count], lags[-np.arange(count)]))


def jammer_operator(jammer: JammerMoment, path: Path, window: Window, axis: complex = 1.0) -> NDArray[np.complex64]:
    """B (N, q) by probing every draw that `window` sees anything of, on I (1) or on Q (1j)."""
    columns = [path.heard(jammer.basis(number, axis), window) for number in seen_draws(jammer, path, window)]
    return np.stack(columns, axis=1) if columns else np.zeros((window.count, 0), np.complex64)


def covariance_of(jamming: NDArray[np.complex64]) -> NDArray[np.complex128]:
    """2 B B^H of draws that have unit variance on each of I and Q."""
    wide = jamming.astype(np.complex128)
    return np.asarray(2.0 * (wide @ wide.conj().T))


def _explains(
    operators: list[NDArray[np.complex64]], jammer: JammerMoment, path: Path, window: Window, draws: list[int]
) -> bool:
    """Whether noise in all draws at once arrives as the operators of I and Q say: one that differs would show."""
    noise, rng = np.zeros(jammer.draws(), np.complex64), np.random.default_rng(1)
    noise[draws] = rng.standard_normal(len(draws)) + 1j * rng.standard_normal(len(draws))
    heard = path.heard(jammer.sends(_in_pieces(noise)), window)
    expected = operators[0] @ noise[draws].real + operators[1] @ noise[draws].imag
    return bool(np.linalg.norm(expected - heard) < _SAME * np.linalg.norm(heard))


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
