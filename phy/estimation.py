"""Channel, frequency and delay from known sounding symbols, each with the uncertainty that theory gives it.

All take cells after `phy.modem.demodulate`, batch dimensions first. The channel H[k] relates sent and received cells,
Y[s, k] = H[k] P[s, k] + Z[s, k], with Z circular of variance `noise_var_complex`.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from phy.compute.one_thread import one_blas_thread
from phy.compute.transforms import transform_of
from phy.errors import SignalError
from phy.numerology import Numerology

_EIGENVALUE_FLOOR = 1e-6
_DELAY_OVERSAMPLING = 4
_NEWTON_STEPS = 3
# The mean contains the noise of the symbol that is compared with it, which hides a part of the first step.
_SLOPE_STEPS = 2


class ChannelEstimate(NamedTuple):
    """`channel` complex64 (..., U); `noise_var_complex` (...); `channel_var` E|H^ - H|^2 per entry, (..., U)."""

    channel: NDArray[np.complex64]
    noise_var_complex: NDArray[np.float64]
    channel_var: NDArray[np.float64]


class FrequencyEstimate(NamedTuple):
    """`cfo_cycles_per_sample` and its standard deviation, both of the batch's shape."""

    cfo_cycles_per_sample: NDArray[np.float64]
    std_cycles_per_sample: NDArray[np.float64]


class DelayEstimate(NamedTuple):
    """`delay_samples` and its standard deviation, both of the batch's shape."""

    delay_samples: NDArray[np.float64]
    std_samples: NDArray[np.float64]


def estimate_channel(
    received: NDArray[np.complex64],
    pilots: NDArray[np.complex64],
    numerology: Numerology,
    max_delay_samples: float | None = None,
    min_delay_samples: float = -2.0,
) -> ChannelEstimate:
    """Channel of received cells (..., S, U), given the pilots (S, U) that were sent, of one modulus throughout.

    Least squares, H_ls[k] = sum_s Y P* / sum_s |P|^2, then projection on what a channel can be whose paths have delays
    between `min_delay_samples` and `max_delay_samples` (default: cp_samples); see `delay_basis`. With r dimensions out
    of U the error is sigma^2 r / (U E) in the mean, E = sum_s |P|^2: sigma^2 B[k] / E at subcarrier k, B the
    projection's diagonal, larger at the band's edges. Paths within the range lose less than -55 dB to the projection.

    The noise is what differs between symbols, sum |Y - P H_ls|^2 / ((S - 1) U): it needs the frequency offset to be
    removed before. From one symbol alone it is what lies outside of the projection.
    """
    symbols, used = _require_cells(received, pilots)
    energies = np.sum(np.abs(pilots.astype(np.complex128)) ** 2, axis=0)
    energy = float(energies.mean())
    if not (energy > 0.0 and np.allclose(energies, energy, rtol=1e-3)):
        raise SignalError(
            "pilots", "of unequal energy", "the same sum of |P|^2 at every subcarrier", "Use phy.frame.sounding_cells."
        )
    longest = float(numerology.cp_samples) if max_delay_samples is None else float(max_delay_samples)
    basis = delay_basis(numerology, float(min_delay_samples), longest)
    rank = basis.shape[1]
    if symbols == 1 and rank == used:
        raise SignalError("received", "one symbol", "two or more where delays fill the CP", "Sound with two symbols.")
    least_squares = _matched(received, pilots) / np.float32(energy)
    channel = (least_squares @ basis.conj()) @ basis.T
    if symbols > 1:
        residual = received - pilots * least_squares[..., None, :]
        noise_var = _power(residual, (-2, -1)) / ((symbols - 1) * used)
    else:
        noise_var = _power(least_squares - channel, (-1,)) * energy / (used - rank)
    leverage = np.sum(np.abs(basis.astype(np.complex128)) ** 2, axis=1)
    return ChannelEstimate(channel, noise_var, noise_var[..., None] * leverage / energy)


@lru_cache(maxsize=32)
def delay_basis(numerology: Numerology, min_delay_samples: float, max_delay_samples: float) -> NDArray[np.complex64]:
    """Orthonormal basis, shape (U, r), of the responses exp(-j 2 pi k tau / N) with tau in the range; read-only.

    Its covariance over uniform tau is a sinc kernel, whose eigenvectors are Slepian sequences. About U (range) / N of
    the eigenvalues matter and the others fall off exponentially. Regularisation: eigenvectors below 1e-6 of the
    largest eigenvalue are left out, because on the used bins they cannot be told from noise.
    """
    span = max_delay_samples - min_delay_samples
    if not 0.0 < span <= numerology.fft_size:
        raise SignalError(
            "delay range",
            f"{min_delay_samples} to {max_delay_samples}",
            "0 < length <= fft_size",
            "Use 0 to cp_samples.",
        )
    k = numerology.used_subcarriers
    with one_blas_thread():
        eigenvalues, vectors = np.linalg.eigh(np.sinc((k[:, None] - k) * (span / numerology.fft_size)))
    kept = vectors[:, eigenvalues > _EIGENVALUE_FLOOR * eigenvalues[-1]]
    centre = np.exp(-2j * np.pi * k * ((min_delay_samples + max_delay_samples) / 2.0) / numerology.fft_size)
    basis = np.asarray(kept * centre[:, None], dtype=np.complex64)
    basis.setflags(write=False)
    return basis


def residual_cfo(
    received: NDArray[np.complex64], pilots: NDArray[np.complex64], numerology: Numerology
) -> FrequencyEstimate:
    """Frequency offset left in received cells (..., S, U), S >= 2, from the phase advance of symbol to symbol.

    Z[s, k] = Y P* turns by theta = 2 pi f symbol_samples per symbol, alike at all subcarriers. First guess: the angle
    of sum conj(Z[s]) Z[s+1]; then, twice, the least-squares slope of the angles of sum_k Z[s, k] H*[k], H being the
    mean of the derotated symbols. Unambiguous within |f| < 1 / (2 symbol_samples). The variance is the Cramer-Rao bound
    of a tone, var(theta) = 6 sigma^2 / (E S (S^2 - 1)), E = sum_k |H P|^2 per symbol; infinite without a signal.
    """
    symbols, used = _require_cells(received, pilots)
    if symbols < 2:
        raise SignalError("sounding symbols", symbols, "two or more", "One symbol has no phase advance.")
    turned = np.asarray(received * pilots.conj(), dtype=np.complex64)
    angle = np.angle(np.sum(turned[..., :-1, :].conj() * turned[..., 1:, :], axis=(-2, -1)).astype(np.complex128))
    index = np.arange(symbols) - (symbols - 1) / 2.0
    for _ in range(_SLOPE_STEPS):
        derotated, mean = _derotated(turned, angle, index)
        advances = np.angle(np.sum(derotated * mean.conj(), axis=-1))
        angle = angle + (advances @ index) / (index @ index)
    derotated, mean = _derotated(turned, angle, index)
    noise = _power(derotated - mean, (-2, -1)) / ((symbols - 1) * used)
    energy = _power(mean, (-2, -1)) - noise * used / symbols
    variance = _ratio(6.0 * noise, energy * float(symbols * (symbols**2 - 1)))
    turns = 2.0 * np.pi * numerology.symbol_samples
    return FrequencyEstimate(np.asarray(angle / turns), np.asarray(np.sqrt(variance) / turns))


def delay_estimate(
    channel: NDArray[np.complex64], numerology: Numerology, entry_var: float | NDArray[np.float64] = 0.0
) -> DelayEstimate:
    """Delay of the strongest path of H (..., U): the tau that maximises |sum_k H[k] exp(j 2 pi k tau / N)|.

    The largest value of a four times oversampled impulse response, then Newton steps; within [-N/2, N/2). For a single
    path this is the maximum-likelihood phase slope, with variance v / (2 (2 pi/N)^2 sum_k |H|^2 (k - mean k)^2), where
    v is `entry_var`, the variance of an entry *before* denoising: noise_var_complex / sum_s |P|^2. A channel of zeros
    has an infinite standard deviation.
    """
    delay, rate = strongest_delay(channel, numerology), 2.0 * np.pi * numerology.used_frequencies
    weights = np.abs(channel.astype(np.complex128)) ** 2
    total = np.maximum(weights.sum(axis=-1), np.finfo(np.float64).tiny)
    centre = np.sum(weights * rate, axis=-1) / total
    information = 2.0 * np.sum(weights * (rate - centre[..., None]) ** 2, axis=-1)
    return DelayEstimate(delay, np.sqrt(_ratio(np.asarray(entry_var), information)))


def strongest_delay(channel: NDArray[np.complex64], numerology: Numerology) -> NDArray[np.float64]:
    """`DelayEstimate.delay_samples` alone, of the batch's shape."""
    from phy.compute.kernels import climb, lay_out

    fine_size, below = _DELAY_OVERSAMPLING * numerology.fft_size, numerology.negative_subcarriers
    rows = np.ascontiguousarray(channel, np.complex64).reshape(-1, channel.shape[-1])
    inverse = transform_of(len(rows), fine_size, forward=False, purpose=("delay", numerology.data_subcarriers))
    lay_out(rows, np.complex64(1.0), below, inverse.source)
    inverse(inverse.source, inverse.target)
    peak = np.argmax(np.abs(inverse.target), axis=-1)
    delay = np.where(peak >= fine_size // 2, peak - fine_size, peak) / _DELAY_OVERSAMPLING
    k, size = numerology.used_subcarriers, numerology.fft_size
    fitted = [climb(row, k, size, first, _NEWTON_STEPS) for row, first in zip(rows, delay, strict=True)]
    return np.asarray(fitted).reshape(channel.shape[:-1])


def _derotated(
    turned: NDArray[np.complex64], angle: NDArray[np.float64], index: NDArray[np.float64]
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    derotated = turned * np.exp(-1j * angle[..., None] * index)[..., None]
    return derotated, derotated.mean(axis=-2, keepdims=True)


def _ratio(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> NDArray[np.float64]:
    numerator, denominator = np.broadcast_arrays(numerator, denominator)
    unknown = np.full(denominator.shape, np.inf)
    return np.divide(numerator, denominator, out=unknown, where=denominator > 0.0)


def _matched(received: NDArray[np.complex64], pilots: NDArray[np.complex64]) -> NDArray[np.complex64]:
    return np.asarray(np.einsum("...sk,sk->...k", received, pilots.conj()))


def _power(values: NDArray[np.complexfloating[Any, Any]], axes: tuple[int, ...]) -> NDArray[np.float64]:
    return np.asarray(np.sum(values.real**2 + values.imag**2, axis=axes, dtype=np.float64))


def _require_cells(received: NDArray[np.complex64], pilots: NDArray[np.complex64]) -> tuple[int, int]:
    if pilots.ndim != 2 or received.ndim < 2 or received.shape[-2:] != pilots.shape:
        raise SignalError(
            "received cells' shape", received.shape, f"(..., {pilots.shape})", "Demodulate the frame's sounding slice."
        )
    return pilots.shape[0], pilots.shape[1]
