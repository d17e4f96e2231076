"""What a silent receiver hears besides noise: its own DC offset, steady tones, and subcarriers that stand out.

None of it protects anything: a tone can be predicted and subtracted. So it is found, taken out before the noise is
measured, and reported.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.fft
from numpy.typing import NDArray
from scipy import special

from calibration.errors import MeasurementError
from calibration.schema import measurement
from phy.numerology import Numerology
from phy.units import power_ratio_to_db

# Levels below this are written as this: a capture without any DC at all has no level in decibels.
LOWEST_LEVEL_DB = -400.0
# Chances of reporting anything in a capture of pure white noise.
TONE_FAMILY_ERROR = 1e-3
LOUD_BIN_FAMILY_ERROR = 1e-2
# More steady tones than this are an interferer, which the noise diagnostics are there to refuse.
MOST_TONES = 32
# A tone that wavers has many lines; after so many in one bin what is left of it is struck out with the bin.
MOST_TONES_PER_BIN = 4
# By how many noise variances a true tone's removal may raise the other bins' energy.
_RISE_BY_CHANCE = 10.0
_FLOOR_GROUP = 1024
_NEIGHBOURS = 16


@measurement
class Spur:
    """Something that is not noise.

    bin: bin in FFT order (0 is DC) it lies in; offset_hz: its frequency from the receiver's centre;
    level_dbfs: its power against full scale 1.0, without the noise; excess_db: power in its bin against the noise
    there; p_value: chance that noise alone looks like it, for this bin.
    """

    name: str
    bin: int
    offset_hz: float
    level_dbfs: float
    excess_db: float
    p_value: float

    def __post_init__(self) -> None:
        """Refuse values that no spur has."""
        if self.bin < 0:
            raise MeasurementError(f"spur '{self.name}' lies in bin {self.bin}: expected 0 or more")
        if not 0.0 <= self.p_value <= 1.0:
            raise MeasurementError(f"spur '{self.name}' has the p-value {self.p_value}: expected 0 to 1")


def signed_bin(number: int, numerology: Numerology) -> int:
    """Bin in FFT order as a signed subcarrier number, -N/2 ... N/2 - 1."""
    return (number + numerology.fft_size // 2) % numerology.fft_size - numerology.fft_size // 2


def bin_name(number: int, numerology: Numerology) -> str:
    """Bin number and frequency as a person would say them: 'bin +37 (+722.7 kHz)'."""
    signed = signed_bin(number, numerology)
    return f"bin {signed:+d} ({signed * numerology.subcarrier_spacing_hz / 1e3:+.1f} kHz)"


def dc_spur(mean: complex, count: int, noise_var_complex: float, numerology: Numerology) -> Spur:
    """The mean of `count` samples as a spur."""
    power = abs(mean) ** 2
    return Spur(
        name="DC",
        bin=numerology.dc_bin,
        offset_hz=0.0,
        level_dbfs=power_ratio_to_db(power, LOWEST_LEVEL_DB),
        excess_db=power_ratio_to_db(1.0 + numerology.fft_size * power / noise_var_complex, LOWEST_LEVEL_DB),
        p_value=math.exp(-min(count * power / noise_var_complex, 700.0)),
    )


def remove_spurs(
    samples: NDArray[np.complex64], numerology: Numerology
) -> tuple[NDArray[np.complex64], Spur, tuple[Spur, ...]]:
    """Samples (n,), n whole FFT blocks, without their mean and without steady tones; the mean; the tones.

    A tone stands out of the periodogram of the whole capture, where noise is exponential around its local median and
    exceeds ln(n/e) times its mean with probability e/n. The strongest is fitted, subtracted, and the search starts
    again. Tones are subtracted from the samples, not only struck from the spectrum, because a tone between two bins
    leaks into every subcarrier and would pass for noise there. Interference that is not steady has such lines too, but
    subtracting one of them would spread it over bins that were free of it: then the line stays, for `loud_bins`. One
    spur for each bin that had tones, strongest first.
    """
    mean = complex(np.mean(samples, dtype=np.complex128))
    samples = (samples - mean).astype(np.complex64)
    lines: dict[int, list[_Line]] = {}
    closed: set[int] = set()
    for _ in range(MOST_TONES):
        peak = _strongest_line(samples, numerology, closed)
        if peak is None:
            break
        frequency = _refine(samples, peak.place)
        number = round(frequency * numerology.fft_size) % numerology.fft_size
        carrier = _carrier(samples.size, frequency)
        amplitude = complex(np.vdot(carrier, samples)) / samples.size
        rest = (samples - amplitude * carrier).astype(np.complex64)
        rise = np.delete(_log_bin_powers(rest, numerology) - _log_bin_powers(samples, numerology), number)
        if float(rise.sum()) > _RISE_BY_CHANCE * numerology.fft_size / samples.size:
            closed.add(number)
            continue
        samples = rest
        found = lines.setdefault(number, [])
        found.append(_Line(frequency, abs(amplitude) ** 2, peak.p_value))
        if len(found) >= MOST_TONES_PER_BIN:
            closed.add(number)
    noise_var_complex = _energy(samples) / samples.size
    spurs = [_spur(number, found, noise_var_complex, numerology) for number, found in lines.items()]
    dc = dc_spur(mean, samples.size, noise_var_complex, numerology)
    return samples, dc, tuple(sorted(spurs, key=lambda spur: -spur.level_dbfs))


class _Peak(NamedTuple):
    """place: line of the periodogram."""

    place: int
    p_value: float


class _Line(NamedTuple):
    """frequency in cycles per sample, power, p-value."""

    frequency: float
    power: float
    p_value: float


def _energy(samples: NDArray[np.complex64]) -> float:
    parts = samples.view(np.float32)
    return max(float(np.sum(parts * parts, dtype=np.float64)), 1e-300)


def _log_bin_powers(samples: NDArray[np.complex64], numerology: Numerology) -> NDArray[np.float64]:
    """ln of the mean |z|^2 of each FFT bin. Logarithms, so that one loud bin does not outweigh all others."""
    cells = scipy.fft.fft(samples.reshape(-1, numerology.fft_size), axis=-1, norm="ortho")
    powers = np.mean(cells.real**2 + cells.imag**2, axis=0, dtype=np.float64)
    return np.asarray(np.log(np.maximum(powers, 1e-300)))


def _spur(number: int, lines: list[_Line], noise_var_complex: float, numerology: Numerology) -> Spur:
    """The lines of one bin as one spur; more than one means that the tone wavers."""
    strongest = max(lines, key=lambda line: line.power)
    power = sum(line.power for line in lines)
    offset_hz = math.remainder(strongest.frequency, 1.0) * numerology.sample_rate_hz
    kind = "tone" if len(lines) == 1 else "wavering tone"
    return Spur(
        name=f"{kind} at {offset_hz / 1e3:+.2f} kHz in {bin_name(number, numerology)}",
        bin=number,
        offset_hz=offset_hz,
        level_dbfs=power_ratio_to_db(power, LOWEST_LEVEL_DB),
        excess_db=power_ratio_to_db(1.0 + numerology.fft_size * power / noise_var_complex, LOWEST_LEVEL_DB),
        p_value=min(line.p_value for line in lines),
    )


def _strongest_line(samples: NDArray[np.complex64], numerology: Numerology, skipped_bins: set[int]) -> _Peak | None:
    """Line of the periodogram that most exceeds its surroundings; None where none is significant."""
    count = samples.size
    spectrum = scipy.fft.fft(samples, norm="ortho")
    periodogram = spectrum.real**2 + spectrum.imag**2
    group = min(count, _FLOOR_GROUP)
    groups = count // group
    medians = np.median(periodogram[: groups * group].reshape(groups, group), axis=1)
    # The median of an exponential is ln 2 times its mean.
    floor = np.repeat(np.maximum(medians / math.log(2.0), np.finfo(np.float32).tiny), group)
    floor = np.pad(floor, (0, count - floor.size), mode="edge")
    ratio = periodogram / floor
    blocks = count // numerology.fft_size
    for number in skipped_bins:
        ratio[np.arange(number * blocks - blocks // 2, number * blocks + blocks // 2 + 1) % count] = 0.0
    peak = int(np.argmax(ratio))
    if ratio[peak] <= math.log(count / TONE_FAMILY_ERROR):
        return None
    return _Peak(peak, math.exp(-min(float(ratio[peak]), 700.0)))


def _carrier(count: int, frequency: float) -> NDArray[np.complex64]:
    return np.asarray(np.exp(2j * np.pi * frequency * np.arange(count)), dtype=np.complex64)


def _refine(samples: NDArray[np.complex64], peak: int) -> float:
    """Frequency in cycles per sample of the tone near line `peak`, within 1.5 % of the Cramer-Rao bound.

    Interpolation on two Fourier coefficients half a line to each side, repeated (Aboutanios and Mulgrew, IEEE Trans.
    Signal Process. 53(4), 2005).
    """
    count = samples.size
    offset = 0.0
    for _ in range(4):
        above = np.vdot(_carrier(count, (peak + offset + 0.5) / count), samples)
        below = np.vdot(_carrier(count, (peak + offset - 0.5) / count), samples)
        offset += min(max(0.5 * float(((above + below) / (above - below)).real), -0.5), 0.5)
    return (peak + offset) / count


def loud_bins(bin_powers: NDArray[np.float64], blocks: int) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Subcarriers that stand out of their neighbours, with each one's p-value.

    bin_powers: (K,) mean of |z|^2 over `blocks` blocks, in order of frequency. Each is compared with the median of its
    16 nearest neighbours, so that a slope or ripple across the band is not a spur and other spurs do not hide one. For
    Gaussian noise the ratio is F-distributed with (2 blocks, nu) degrees of freedom; a median of m values is as good as
    a mean of 2 m/pi. Bonferroni over the subcarriers.
    """
    count = bin_powers.size
    neighbours = min(_NEIGHBOURS, count - 1)
    if neighbours < 4:
        return np.zeros(count, dtype=np.bool_), np.ones(count)
    first = np.clip(np.arange(count) - neighbours // 2, 0, count - neighbours - 1)
    others = first[:, None] + np.arange(neighbours)
    # Skip the subcarrier itself.
    others += others >= np.arange(count)[:, None]
    degrees = 2.0 * blocks
    median_over_mean = 2.0 * float(special.gammaincinv(blocks, 0.5)) / degrees
    floor = np.median(bin_powers[others], axis=1) / median_over_mean
    p_values = special.fdtrc(degrees, degrees * neighbours * 2.0 / math.pi, bin_powers / floor)
    return p_values < LOUD_BIN_FAMILY_ERROR / count, p_values
