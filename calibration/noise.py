"""The receiver's noise sigma_c^2 from silence, and how little of it an accountant may count on.

`noise_var_real` is the variance of one real coordinate of a demodulated cell: half of E|z|^2. Over N independent cells
2 N sigma_hat^2 / sigma^2 ~ chi^2(2 N), which gives every interval here.

Two numbers come out. The *pooled* variance, over all subcarriers that carry nothing but noise, is the best estimate
where the noise is white. The *quietest* subcarrier is what protects, because an update may lie on that subcarrier
alone. `sigma_lower_bound` rests on it always: no test of whiteness can vouch for a notch that is too small to be seen
and large enough to matter. It allows for unequal I and Q, and no exclusion, by the spur search or by the caller, can
raise it. A single silence is short for that: `calibration.noise_pool` bounds the same from many.
"""

import math
from collections.abc import Sequence
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from calibration.converter import rounding_var_real
from calibration.errors import MeasurementError
from calibration.schema import measurement
from calibration.silence import Silence, mirrored_pairs, observe_silence, unit_power
from calibration.spurs import LOWEST_LEVEL_DB, Spur, bin_name, loud_bins, signed_bin
from calibration.statistics import (
    check_probability,
    equal_powers_test,
    impropriety_test,
    independent_minimum,
    variance_factors,
    variance_lower_factor,
)
from phy.numerology import Numerology
from phy.units import noise_var_real_from_complex, power_ratio_to_db

CIRCULARITY_SHARE = 0.1
"""Part of a bound's error that is spent on the bound of the noise's impropriety."""
_BANDS = 12
# A direction without any noise is no noise to account with; the bound stays above zero and is worth nothing.
_LEAST_DIRECTION = 1e-12


@measurement
class Impropriety:
    """How far I and Q of the noise are from equal power and no correlation.

    size: |rho|, rho = E[x^2]/E|x|^2 over the used band; the quietest direction in the plane of I and Q, over mirrored
    subcarriers, has (1 - |rho|) of the mean variance. values: complex values that it was measured on; 0 where no used
    subcarrier has a mirror image. p_value: of rho = 0.
    """

    size: float
    values: int
    p_value: float

    def __post_init__(self) -> None:
        """Refuse what no noise has."""
        if not (0.0 <= self.size <= 1.0 and 0.0 <= self.p_value <= 1.0 and self.values >= 0):
            raise MeasurementError(f"impropriety {self.size}, p = {self.p_value}: expected numbers from 0 to 1")

    def upper(self, error: float) -> float:
        """Bound that |rho| exceeds with probability `error`: P(|rho_hat - rho| > r) = exp(-N r^2 / 2) for small rho."""
        if self.values == 0:
            return 0.0
        return min(self.size + math.sqrt(-2.0 * math.log(error) / self.values), 1.0)


class BoundSource(Enum):
    """Which measurement a lower bound on the noise rests on: the quietest subcarrier of one silence, or of a pool."""

    QUIETEST = "quietest"
    POOL = "pool"


@measurement
class SigmaBound:
    """Noise per real coordinate that is there on every subcarrier, with probability `confidence` at least.

    bin: bin in FFT order of the subcarrier it rests on.
    """

    noise_var_real: float
    confidence: float
    source: BoundSource
    bin: int
    reason: str

    def __post_init__(self) -> None:
        """Refuse bounds that are not positive."""
        _check_positive("lower bound of noise_var_real", self.noise_var_real)
        check_probability("confidence of the lower bound", self.confidence)

    @property
    def noise_std_real(self) -> float:
        """sigma_c, the standard deviation that belongs to the bound."""
        return math.sqrt(self.noise_var_real)


@measurement
class QuietestSubcarrier:
    """The used subcarrier with the least noise.

    noise_var_real_lower: below the true variance of *every* used subcarrier at once, with the probability of
    `NoiseMeasurement.bound_confidence` (Bonferroni: the quietest was looked for).
    """

    bin: int
    noise_var_real: float
    noise_var_real_lower: float


@measurement
class NoiseMeasurement:
    """Receiver noise in silence.

    noise_var_real, ci: sigma_c^2 over the subcarriers without spurs and its interval at `confidence`, equal tails.
    bins, noise_var_real_per_bin, ci_per_bin: the same for each used subcarrier (used,), lowest frequency first, with
    spurs' tones taken out; each interval is for its subcarrier alone. excluded_bins: used subcarriers that the pooled
    value leaves out, loud_bins those of them that the measurement itself found to hold more than noise. whiteness_p:
    p-value of equal variance over the used subcarriers without loud ones. converter_step: of the receiver; what its
    rounding adds is in all variances, and in no `SigmaBound`.
    """

    noise_var_real: float
    ci: tuple[float, float]
    confidence: float
    blocks: int
    bins: tuple[int, ...]
    noise_var_real_per_bin: tuple[float, ...]
    ci_per_bin: tuple[tuple[float, float], ...]
    excluded_bins: tuple[int, ...]
    loud_bins: tuple[int, ...]
    dc: Spur
    spurs: tuple[Spur, ...]
    whiteness_p: float
    quietest: QuietestSubcarrier
    impropriety: Impropriety
    converter_step: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a measurement whose parts do not follow from each other: nothing here may be edited by hand."""
        check_probability("confidence", self.confidence)
        if not (math.isfinite(self.converter_step) and self.converter_step >= 0.0):
            raise MeasurementError(f"converter_step = {self.converter_step}: expected a finite number of at least 0")
        if not 0.0 <= self.whiteness_p <= 1.0:
            raise MeasurementError(f"whiteness_p = {self.whiteness_p}: expected 0 to 1")
        if self.blocks < 1 or not self.bins or len(set(self.bins)) != len(self.bins):
            raise MeasurementError(f"{len(self.bins)} subcarriers in {self.blocks} blocks: expected some, each once")
        for name, values in (("noise_var_real_per_bin", self.noise_var_real_per_bin), ("ci_per_bin", self.ci_per_bin)):
            if len(values) != len(self.bins):
                raise MeasurementError(f"{name} has {len(values)} entries: expected {len(self.bins)}, one for each bin")
        for value in self.noise_var_real_per_bin:
            _check_positive("noise_var_real_per_bin", value)
        if not set(self.loud_bins) <= set(self.excluded_bins) < set(self.bins):
            raise MeasurementError("excluded_bins: expected some of bins, not all, and all of loud_bins")
        kept = self._variances(self.excluded_bins)
        _check_same("noise_var_real", self.noise_var_real, float(kept.mean()))
        low, high = variance_factors(self.blocks * kept.size, self.confidence)
        _check_same("ci[0]", self.ci[0], low * self.noise_var_real)
        _check_same("ci[1]", self.ci[1], high * self.noise_var_real)
        low, high = variance_factors(self.blocks, self.confidence)
        for variance, interval in zip(self.noise_var_real_per_bin, self.ci_per_bin, strict=True):
            _check_same("ci_per_bin", interval[0], low * variance)
            _check_same("ci_per_bin", interval[1], high * variance)
        quietest = _quietest(self.bins, self.noise_var_real_per_bin, self.blocks, self.confidence)
        if self.quietest.bin != quietest.bin:
            raise MeasurementError(f"quietest.bin = {self.quietest.bin}: expected {quietest.bin}")
        _check_same("quietest.noise_var_real", self.quietest.noise_var_real, quietest.noise_var_real)
        _check_same("quietest.noise_var_real_lower", self.quietest.noise_var_real_lower, quietest.noise_var_real_lower)

    @property
    def bound_confidence(self) -> float:
        """Probability with which a lower end of an interval, or the quietest's bound, lies below the truth."""
        return 1.0 - (1.0 - self.confidence) / 2.0

    @property
    def noise_std_real(self) -> float:
        """sigma_c of the pooled estimate."""
        return math.sqrt(self.noise_var_real)

    @property
    def pooled_lower(self) -> float:
        """Lower bound on noise_var_real where the noise is white.

        The smaller of two: over the subcarriers of the pooled value, and over those together with the ones that only
        the caller excluded. Leaving out quiet subcarriers can therefore not raise it.
        """
        kept = self._variances(self.loud_bins)
        low, _ = variance_factors(self.blocks * kept.size, self.confidence)
        return min(self.ci[0], low * float(kept.mean()))

    def _variances(self, excluded: Sequence[int]) -> NDArray[np.float64]:
        kept = ~np.isin(self.bins, excluded)
        return np.asarray(self.noise_var_real_per_bin)[kept]


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise MeasurementError(f"{name} = {value}: expected a finite number above 0")


def _check_same(name: str, value: float, expected: float) -> None:
    if not math.isclose(value, expected, rel_tol=1e-6):
        raise MeasurementError(f"{name} = {value}: expected {expected}, which follows from the other values")


def measure_noise(
    samples: NDArray[np.complex64],
    numerology: Numerology,
    confidence: float = 0.95,
    exclude_bins: Sequence[int] = (),
) -> NoiseMeasurement:
    """Noise of a capture in which nobody sent: samples complex64 (n,), full scale 1.

    exclude_bins: bins in FFT order that the caller knows to hold interference; they count as excluded from the
    pooled value and are still searched for the quietest subcarrier. Raises `CaptureError` for a capture on which no
    noise can be measured (see `observe_silence`) and `MeasurementError` for arguments out of range.
    """
    return noise_of(observe_silence(samples, numerology), confidence, exclude_bins)


def noise_of(silence: Silence, confidence: float = 0.95, exclude_bins: Sequence[int] = ()) -> NoiseMeasurement:
    """`measure_noise` on a capture that is already cut into cells."""
    check_probability("confidence", confidence)
    numerology = silence.numerology
    for number in exclude_bins:
        if not 0 <= number < numerology.fft_size:
            raise MeasurementError(f"exclude_bins has {number}: expected FFT bins from 0 to {numerology.fft_size - 1}")
    powers, bins, blocks = silence.bin_power, silence.bins, silence.blocks
    loud, p_values = loud_bins(powers, blocks)
    with_spur = loud | np.isin(bins, [tone.bin for tone in silence.tones])
    excluded = with_spur | np.isin(bins, np.asarray(exclude_bins, dtype=np.int64))
    if np.all(excluded):
        raise MeasurementError("every used subcarrier is excluded: expected at least one that carries only noise")
    variances = np.array([noise_var_real_from_complex(float(power)) for power in powers])
    pooled = float(variances[~excluded].mean())
    low, high = variance_factors(blocks * int(np.count_nonzero(~excluded)), confidence)
    bin_low, bin_high = variance_factors(blocks, confidence)
    bin_numbers = tuple(int(number) for number in bins)
    return NoiseMeasurement(
        noise_var_real=pooled,
        ci=(low * pooled, high * pooled),
        confidence=confidence,
        blocks=blocks,
        bins=bin_numbers,
        noise_var_real_per_bin=tuple(variances.tolist()),
        ci_per_bin=tuple((bin_low * variance, bin_high * variance) for variance in variances.tolist()),
        excluded_bins=tuple(bins[excluded].tolist()),
        loud_bins=tuple(bins[with_spur].tolist()),
        dc=silence.dc,
        spurs=silence.tones + _loud_spurs(silence, loud, p_values, pooled),
        whiteness_p=frequency_whiteness(powers[~with_spur], blocks)[1],
        quietest=_quietest(bin_numbers, variances.tolist(), blocks, confidence),
        impropriety=_impropriety(silence, ~with_spur),
        converter_step=silence.step,
    )


def _quietest(bins: Sequence[int], variances: Sequence[float], blocks: int, confidence: float) -> QuietestSubcarrier:
    place = int(np.argmin(variances))
    factor = variance_lower_factor(blocks, (1.0 - confidence) / 2.0 / len(bins))
    return QuietestSubcarrier(bins[place], variances[place], factor * variances[place])


def _impropriety(silence: Silence, clean: NDArray[np.bool_]) -> Impropriety:
    pairs = mirrored_pairs(unit_power(silence.cells[:, clean]), silence.subcarriers[clean])
    if not pairs.size:
        return Impropriety(0.0, 0, 1.0)
    rho, p_value = impropriety_test(pairs)
    return Impropriety(min(abs(rho), 1.0), pairs.size, p_value)


def _loud_spurs(
    silence: Silence, loud: NDArray[np.bool_], p_values: NDArray[np.float64], noise_var_real: float
) -> tuple[Spur, ...]:
    """Subcarriers with more than their neighbours' noise in which no tone was found."""
    numerology = silence.numerology
    powers = silence.bin_power
    spurs = []
    for place in np.flatnonzero(loud & ~np.isin(silence.bins, [tone.bin for tone in silence.tones])):
        number = int(silence.bins[place])
        excess = powers[place] / (2.0 * noise_var_real)
        spurs.append(
            Spur(
                name=f"interference in {bin_name(number, numerology)}",
                bin=number,
                offset_hz=signed_bin(number, numerology) * numerology.subcarrier_spacing_hz,
                level_dbfs=power_ratio_to_db(
                    (powers[place] - 2.0 * noise_var_real) / numerology.fft_size, LOWEST_LEVEL_DB
                ),
                excess_db=power_ratio_to_db(float(excess), LOWEST_LEVEL_DB),
                p_value=float(p_values[place]),
            )
        )
    return tuple(spurs)


def frequency_whiteness(bin_powers: NDArray[np.float64], blocks: int) -> tuple[float, float]:
    """Test that subcarriers have equal noise variance: (largest to smallest band power in dB, p-value).

    bin_powers: (K,) mean |z|^2 over `blocks` blocks, in order of frequency. Two likelihood-ratio tests: between 12
    bands of neighbouring subcarriers, which sees slopes and ripples, and within the bands, which sees single
    subcarriers. By Basu's theorem they are independent, so that the smaller p-value has an exact correction.
    """
    bands = min(_BANDS, bin_powers.size // 4)
    if bands < 2:
        return 0.0, equal_powers_test(bin_powers * blocks, np.full(bin_powers.shape, float(blocks)))[1]
    # Bands are of one size; the few subcarriers left over at the upper end go to the last comparison alone.
    width = bin_powers.size // bands
    grouped = bin_powers[: bands * width].reshape(bands, width) * blocks
    band_powers = grouped.sum(axis=-1)
    band_powers[-1] += bin_powers[bands * width :].sum() * blocks
    counts = np.full(bands, float(width * blocks))
    counts[-1] += (bin_powers.size - bands * width) * blocks
    _, between = equal_powers_test(band_powers, counts)
    _, within = equal_powers_test(grouped, np.full(grouped.shape, float(blocks)))
    levels = band_powers / counts
    return power_ratio_to_db(float(levels.max() / levels.min())), independent_minimum(np.array([between, within]))


def quietest_direction(noise_var_real: float, impropriety: float, converter_step: float) -> float:
    """Noise in the quietest direction in the plane of I and Q, without what the receiver's converter adds."""
    left = noise_var_real * (1.0 - impropriety) - rounding_var_real(converter_step)
    return max(left, _LEAST_DIRECTION * noise_var_real)


def sigma_lower_bound(measurement: NoiseMeasurement) -> SigmaBound:
    """The noise that an accountant may count on: with probability `SigmaBound.confidence` or more it is below the truth
    on every subcarrier at once, whatever the noise's colour.

    The quietest subcarrier in truth, q, is one and the same in every capture, and the smallest measured power is not
    larger than that of q. So a factor that brings the power of *one* subcarrier below its variance with probability
    1 - e brings the smallest power below the smallest variance with probability 1 - e at least: the minimum pays for
    having been looked for by being small. The quietest direction in the plane of I and Q has 1 - |rho| of that
    variance, and |rho| enters with its upper bound. e is 1 - `bound_confidence`; a tenth of it is for rho. What the
    receiver's converter adds to all of this is taken off.

    The noise must be Gaussian and stationary: see `NoiseDiagnostics.bound_holds`.
    """
    error = 1.0 - measurement.bound_confidence
    quietest = measurement.quietest
    factor = variance_lower_factor(measurement.blocks, (1.0 - CIRCULARITY_SHARE) * error)
    lost = measurement.impropriety.upper(CIRCULARITY_SHARE * error)
    return SigmaBound(
        noise_var_real=quietest_direction(factor * quietest.noise_var_real, lost, measurement.converter_step),
        confidence=measurement.bound_confidence,
        source=BoundSource.QUIETEST,
        bin=quietest.bin,
        reason=f"bin {quietest.bin} is quietest in {measurement.blocks} blocks; unequal I and Q may cost "
        f"{100 * lost:.2g} %",
    )
