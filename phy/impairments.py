"""What a radio and the path to it do to samples, one effect per function, each with a physical unit.

All take samples complex64 (..., n), full scale 1.0, and none of them changes its input. Zero or None means "this
effect is absent" and returns the input itself.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.signal import oaconvolve

from phy.errors import SignalError
from phy.interpolation import KERNEL_LEAD, KERNEL_TAPS, Shifted, delay_taps, interpolate
from phy.units import db_to_amplitude_ratio

_ROTATION_BLOCK = 1024
_SHORT_ROTATION_BLOCK = 32
_CONVOLUTION_BLOCK = 16384
# From about here on the FFT is faster than one multiplication per tap.
_DIRECT_TAPS = 64


def rotate(
    samples: NDArray[np.complex64],
    cfo_cycles_per_sample: float,
    start_sample: int,
    phase_rad: float = 0.0,
    out: NDArray[np.complex64] | None = None,
) -> NDArray[np.complex64]:
    """Carrier frequency offset: y[n] = x[n] exp(j (2 pi f (start + n) + phase)), `start_sample` being x[0]'s index.

    Two bursts with the same f and their own `start_sample` stay coherent however far apart they are: the phase at
    `start_sample` is reduced modulo one turn in exact integer arithmetic. out: complex64, contiguous, of the shape of
    `samples`, to be filled and returned where anything turns.
    """
    if cfo_cycles_per_sample == 0.0 and phase_rad == 0.0:
        return samples
    _require_finite("cfo_cycles_per_sample", cfo_cycles_per_sample)
    _require_finite("phase_rad", phase_rad)
    from phy.compute.kernels import turn

    count = samples.shape[-1]
    fine, coarse = _phasors(count, cfo_cycles_per_sample, int(start_sample), phase_rad)
    turned = np.empty(samples.shape, np.complex64) if out is None else out
    rows = np.ascontiguousarray(samples, np.complex64).reshape(-1, count)
    for row, target in zip(rows, turned.reshape(-1, count), strict=True):
        turn(row, fine, coarse, target)
    return turned


def turns_until(sample: int, cycles_per_sample: float) -> float:
    """Where in its turn, 0 ... 1, a carrier is at `sample`; in exact integer arithmetic, however large the counter."""
    numerator, denominator = float(cycles_per_sample).as_integer_ratio()
    return (numerator * sample) % denominator / denominator


def _phasors(
    count: int, cycles_per_sample: float, start_sample: int, phase_rad: float
) -> tuple[NDArray[np.complex64], NDArray[np.complex64]]:
    """Within a block, and of each block: exp of n values costs more than all else, and exp(a + b) = exp(a) exp(b)."""
    start_turns = turns_until(start_sample, cycles_per_sample) + phase_rad / (2.0 * math.pi)
    block = _ROTATION_BLOCK if count > 4 * _ROTATION_BLOCK else _SHORT_ROTATION_BLOCK
    block_turns = start_turns + np.remainder(cycles_per_sample * block * np.arange(-(-count // block)), 1.0)
    fine = np.exp(2j * np.pi * cycles_per_sample * np.arange(block)).astype(np.complex64)
    return fine, np.exp(2j * np.pi * block_turns).astype(np.complex64)


def fractional_delay(samples: NDArray[np.complex64], delay_samples: float) -> Shifted:
    """Delay by any real number of samples >= 0; see `Shifted` for where the output begins.

    The whole part only moves `offset`. The fractional part is a filter (`phy.interpolation`, error < -60 dB within 80 %
    of the band) which also spreads the first sample to KERNEL_LEAD earlier ones, hence
    offset = floor(delay) - KERNEL_LEAD and length n + KERNEL_TAPS - 1; offset = delay and length n without a fraction.
    """
    if not (math.isfinite(delay_samples) and delay_samples >= 0.0):
        raise SignalError("delay_samples", delay_samples, "a finite number >= 0", "Shift the time origin.")
    whole = math.floor(delay_samples)
    fraction = delay_samples - whole
    if fraction == 0.0:
        return Shifted(samples, whole)
    return Shifted(apply_taps(samples, delay_taps(fraction)), whole - KERNEL_LEAD)


def apply_taps(
    samples: NDArray[np.complex64], taps: NDArray[np.complex64] | NDArray[np.float32]
) -> NDArray[np.complex64]:
    """Multipath: full convolution y[n] = sum_l taps[l] x[n - l], shape (..., n + len(taps) - 1); taps real or complex.

    Few taps are added one at a time in blocks that stay in cache; taps that are zero cost nothing.
    """
    if taps.ndim != 1 or taps.size == 0:
        raise SignalError("taps' shape", taps.shape, "one dimension with at least one tap", "Pass one link at a time.")
    count = samples.shape[-1]
    if taps.size > _DIRECT_TAPS:
        kernel = taps.reshape((1,) * (samples.ndim - 1) + (-1,)).astype(np.complex64)
        return np.asarray(oaconvolve(samples, kernel, axes=-1), dtype=np.complex64)
    out = np.zeros((*samples.shape[:-1], count + taps.size - 1), dtype=np.complex64)
    weights = taps.astype(np.complex64 if np.iscomplexobj(taps) else np.float32)
    for start in range(0, count, _CONVOLUTION_BLOCK):
        block = samples[..., start : start + _CONVOLUTION_BLOCK]
        for tap in np.flatnonzero(weights):
            out[..., start + tap : start + tap + block.shape[-1]] += block * weights[tap]
    return out


def resample_clock(
    samples: NDArray[np.complex64],
    offset_ppm: float,
    start_sample: int,
    delay_samples: float = 0.0,
    room: Callable[[int], NDArray[np.complex64]] | None = None,
) -> Shifted:
    """Sampling-clock offset: the sender's clock is `offset_ppm` faster than that of the receiver who counts samples.

    Both counters are zero at the same instant. With delta = ppm 1e-6 the receiver's sample m shows the sender's instant
    m (1 + delta): y[m] = x(m (1 + delta) - start), `start_sample` being the sender's index of x[0]. The result's first
    sample has the receiver's index start_sample + offset, so the drift since zero is in `offset` and in the fraction.
    delay_samples: of the receiver, by which y is later besides; with an offset it costs nothing. room: gives an array
    for so many samples, complex64 and contiguous, in which those that were resampled are returned.
    """
    if offset_ppm == 0.0:
        return fractional_delay(samples, delay_samples)
    if not (math.isfinite(offset_ppm) and abs(offset_ppm) <= 1e4):
        raise SignalError("offset_ppm", offset_ppm, "a number within +-10,000", "Crystals are within +-100 ppm.")
    if not (math.isfinite(delay_samples) and delay_samples >= 0.0):
        raise SignalError("delay_samples", delay_samples, "a finite number >= 0", "Shift the time origin.")
    delta, start = offset_ppm * 1e-6, int(start_sample)
    # Everything is relative to start_sample: large counters would eat the fraction's digits.
    drift = start * delta - delay_samples * (1.0 + delta)
    first = math.ceil((-drift - KERNEL_TAPS // 2) / (1.0 + delta))
    last = math.floor((samples.shape[-1] - 1 - drift + KERNEL_TAPS // 2) / (1.0 + delta))
    count = last + 1 - first
    out = None if room is None else room(count)
    values = interpolate(samples, first + (delta * first + drift), delta, count, out)
    return Shifted(values, first)


def phase_noise(count: int, std_rad_per_sqrt_sample: float | None, rng: np.random.Generator) -> NDArray[np.complex64]:
    """Free-running oscillator: exp(j theta[n]), theta[n] = theta[n-1] + N(0, std^2), theta[-1] = 0. Shape (count,).

    The spectrum is a Lorentzian whose two-sided -3 dB width is std^2 / (2 pi) cycles per sample. To go on from an
    earlier block multiply by its last phasor.
    """
    if not std_rad_per_sqrt_sample:
        return np.ones(count, dtype=np.complex64)
    if not (math.isfinite(std_rad_per_sqrt_sample) and std_rad_per_sqrt_sample > 0.0):
        raise SignalError("std_rad_per_sqrt_sample", std_rad_per_sqrt_sample, "a number >= 0", "Use 0 for none.")
    theta = np.cumsum(std_rad_per_sqrt_sample * rng.standard_normal(count))
    # Reduced to one turn first, cosine and sine in single precision are good to 1e-7 and six times as fast.
    reduced = np.remainder(theta, 2.0 * np.pi).astype(np.float32)
    phasors = np.empty(count, dtype=np.complex64)
    phasors.real = np.cos(reduced)
    phasors.imag = np.sin(reduced)
    return phasors


def iq_imbalance(samples: NDArray[np.complex64], image_db: float | None) -> NDArray[np.complex64]:
    """Mirror image at `image_db` below the signal: y = x + rho x*, |rho|^2 = 10^(image_db/10).

    rho = |rho| exp(j pi/4): half of the image's power comes from the gains of I and Q, (1 + Re rho)/(1 - Re rho), and
    half from their skew, about 2 Im rho radians. -35 dB is 0.22 dB and 1.4 degrees. The wanted part keeps its gain.
    """
    if image_db is None or image_db == -math.inf:
        return samples
    if not image_db < 0.0:
        raise SignalError("image_db", image_db, "a negative number of dB", "Typical radios: -35 to -60; None for none.")
    rho = np.complex64(db_to_amplitude_ratio(image_db) * np.exp(0.25j * np.pi))
    return samples + rho * samples.conj()


def dc_offset(samples: NDArray[np.complex64], level_dbfs: float | None) -> NDArray[np.complex64]:
    """Carrier leakage: y = x + c, |c| = 10^(level/20) of full scale 1.0, equal in I and Q."""
    if level_dbfs is None or level_dbfs == -math.inf:
        return samples
    if not level_dbfs < 0.0:
        raise SignalError("level_dbfs", level_dbfs, "a negative number of dB of full scale", "Use None for no offset.")
    return samples + np.complex64(db_to_amplitude_ratio(level_dbfs) * np.exp(0.25j * np.pi))


def soft_limit(samples: NDArray[np.complex64], saturation: float | None, smoothness: float) -> NDArray[np.complex64]:
    """Rapp's power amplifier: y = x / (1 + (|x|/A)^(2p))^(1/(2p)), A = `saturation`, p = `smoothness`.

    |y| < A, the phase is kept, small signals pass with gain 1. Compressed by 1 dB at |x|/A = (10^(p/10) - 1)^(1/(2p)):
    0.875 for p = 2. Larger p is a harder limiter; solid-state amplifiers are near 2 or 3. None is no amplifier.
    """
    if saturation is None or saturation == math.inf:
        return samples
    if not saturation > 0.0:
        raise SignalError("saturation", saturation, "an amplitude > 0", "Use None for a linear amplifier.")
    if not (math.isfinite(smoothness) and smoothness > 0.0):
        raise SignalError("smoothness", smoothness, "a finite number > 0", "Use 2 for a solid-state amplifier.")
    ratio = np.abs(samples) * np.float32(1.0 / saturation)
    # r^(2p) would overflow float32 for hard limiters: the larger of 1 and r is taken out of the root.
    larger = np.maximum(ratio, np.float32(1.0))
    bend = (np.minimum(ratio, np.float32(1.0)) / larger) ** np.float32(2.0 * smoothness)
    compression = larger * (np.float32(1.0) + bend) ** np.float32(0.5 / smoothness)
    return np.asarray(samples / compression)


def quantise(samples: NDArray[np.complex64], bits: int | None) -> tuple[NDArray[np.complex64], int]:
    """Converter of `bits` bits per real axis: mid-tread, full scale +-1, saturating. Returns (samples, clipped_count).

    Levels k/q with q = 2^(bits-1) - 1, |k| <= q, so that 0 and both ends +-1 are levels. `clipped_count` is the number
    of real values beyond the outermost level's rounding interval. The error of the others is uniform: variance
    1/(12 q^2) per real axis, i.e. 6.02 dB per bit.
    """
    if bits is None or bits == 0:
        return samples, 0
    if not 2 <= bits <= 24:
        raise SignalError("bits", bits, "2 to 24", "Use 12 for an AD936x, None for an ideal converter.")
    top = np.float32(2 ** (bits - 1) - 1)
    codes = np.ascontiguousarray(samples).view(np.float32) * top
    np.rint(codes, out=codes)
    clipped = int(np.count_nonzero(np.abs(codes) > top))
    if clipped:
        np.clip(codes, -top, top, out=codes)
    codes /= top
    return codes.view(np.complex64), clipped


def _require_finite(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise SignalError(name, value, "a finite number", "Check where it was computed.")
