"""Is it noise that the privacy proof speaks about: Gaussian, white, circular, stationary?

Six tests on the cells of a silent capture, DC and tones taken out, subcarriers with unsteady spurs left out. All but
the first scale each subcarrier by its own power, so that colour, which `sigma_lower_bound` takes care of, does not
trip the others, and none of them looks outside the used band, where an analogue filter is free to do what it does.

| test            | noise fails it when                                         | null distribution             |
|-----------------|-------------------------------------------------------------|-------------------------------|
| white_frequency | subcarriers differ in power                                 | cumulants exact               |
| white_time      | successive blocks are correlated: echoes, a repeated buffer | mean and variance exact       |
| gaussian_body   | I or Q is not bell-shaped                                   | Anderson-Darling, 0.02 off    |
| gaussian_tails  | heavy tails, impulses, hard limits                          | three moments exact           |
| circular        | I and Q differ in power or are correlated                   | exact                         |
| stationary      | power changes in the course of the capture                  | cumulants exact               |

The verdict holds the chance of rejecting good noise, over all six, at `level` (Holm, Scand. J. Stat. 6, 1979).
"""

from collections.abc import Sequence

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from calibration.errors import MeasurementError
from calibration.noise import frequency_whiteness, noise_of
from calibration.schema import measurement
from calibration.silence import Silence, mean_power, mirrored_pairs, observe_silence, unit_power
from calibration.statistics import (
    check_probability,
    correlation_test,
    equal_powers_test,
    exponential_spread_test,
    impropriety_test,
    independent_minimum,
    normality_test,
)
from phy.numerology import Numerology

# Name, value, p-value, and what it means to fail.
Result = tuple[str, float, float, str]

_LAGS = 4
_SEGMENTS = 8
_MOST_NORMALITY_VALUES = 200_000


@measurement
class NoiseTest:
    """One test. value: what was looked at, in words of `meaning`; passed: not rejected by the whole family."""

    name: str
    value: float
    p_value: float
    passed: bool
    meaning: str

    def __post_init__(self) -> None:
        """Refuse what is no p-value."""
        if not 0.0 <= self.p_value <= 1.0:
            raise MeasurementError(f"test '{self.name}' has the p-value {self.p_value}: expected 0 to 1")


@measurement
class NoiseDiagnostics:
    """All tests of one capture, and what they come to. level: chance that good noise fails any of them."""

    level: float
    tests: tuple[NoiseTest, ...]
    passed: bool
    verdict: str

    def __post_init__(self) -> None:
        """Refuse a verdict that the tests do not give."""
        check_probability("level", self.level)
        rejected = holm([test.p_value for test in self.tests], self.level)
        if [not test.passed for test in self.tests] != rejected or self.passed == any(rejected):
            raise MeasurementError(f"the verdict does not follow from the p-values at level {self.level}")

    @property
    def corrected(self) -> dict[str, float]:
        """By name of the test, its p-value corrected for their number: a test passed where it is above `level`."""
        return _corrected(self.tests)

    @property
    def bound_holds(self) -> bool:
        """Whether `sigma_lower_bound` may be relied on: it allows for colour and I/Q imbalance, for nothing else."""
        return all(test.passed for test in self.tests if test.name not in {"white_frequency", "circular"})

    def test(self, name: str) -> NoiseTest:
        """The test called `name`."""
        for test in self.tests:
            if test.name == name:
                return test
        raise MeasurementError(f"no test '{name}': there are {', '.join(test.name for test in self.tests)}")


def holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Which hypotheses Holm's step-down procedure rejects with a family-wise error of `level`."""
    return [corrected <= level for corrected in holm_corrected(p_values)]


def holm_corrected(p_values: Sequence[float]) -> list[float]:
    """Holm's p-values, each to be compared with the level of the whole family: the smallest of m times m, the next
    times m - 1, and none below the one before."""
    corrected, before = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        before = max(before, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = before
    return corrected


def _corrected(tests: Sequence[NoiseTest]) -> dict[str, float]:
    p_values = holm_corrected([test.p_value for test in tests])
    return {test.name: p_value for test, p_value in zip(tests, p_values, strict=True)}


def diagnose(samples: NDArray[np.complex64], numerology: Numerology, level: float = 0.01) -> NoiseDiagnostics:
    """Test the noise of a capture in which nobody sent, samples complex64 (n,); errors as `measure_noise`."""
    return diagnose_silence(observe_silence(samples, numerology), level)


def diagnose_silence(silence: Silence, level: float = 0.01) -> NoiseDiagnostics:
    """`diagnose` on a capture that is already cut into cells."""
    check_probability("level", level)
    clean = ~np.isin(silence.bins, noise_of(silence).loud_bins)
    cells = silence.cells[:, clean]
    if cells.shape[1] < 2:
        raise MeasurementError("fewer than two used subcarriers are free of spurs: nothing can be tested")
    scaled = unit_power(cells)
    results = (
        white_frequency(cells),
        white_time(scaled),
        gaussian_body(scaled),
        gaussian_tails(scaled),
        circular(scaled, silence.subcarriers[clean]),
        stationary(scaled),
    )
    rejected = holm([p_value for _, _, p_value, _ in results], level)
    tests = tuple(
        NoiseTest(name, value, p_value, not failed, meaning)
        for (name, value, p_value, meaning), failed in zip(results, rejected, strict=True)
    )
    return NoiseDiagnostics(level, tests, not any(rejected), _verdict(tests, level))


def _verdict(tests: tuple[NoiseTest, ...], level: float) -> str:
    failed = [test for test in tests if not test.passed]
    if not failed:
        return (
            f"noise: Gaussian, white, circular and stationary as far as {len(tests)} tests together see at level "
            f"{level:g}, corrected for their number (Holm)"
        )
    corrected = _corrected(tests)
    reasons = "; ".join(f"{test.name}: {test.meaning} (corrected p = {corrected[test.name]:.2g})" for test in failed)
    return f"not the noise that the accounting assumes: {reasons}"


def white_frequency(cells: NDArray[np.complex64]) -> Result:
    """Equal power on all subcarriers: cells (blocks, K), not scaled; see `frequency_whiteness`."""
    ripple_db, p_value = frequency_whiteness(mean_power(cells), cells.shape[0])
    return "white_frequency", ripple_db, p_value, f"power differs by {ripple_db:.2f} dB between bands of subcarriers"


def white_time(scaled: NDArray[np.complex64]) -> Result:
    """No correlation between a subcarrier's cells 1 to 4 blocks apart: cells (blocks, K); see `correlation_test`."""
    value, p_value = correlation_test(scaled, _LAGS)
    return "white_time", value, p_value, f"cells up to {_LAGS} blocks apart are correlated by {value:.3g} (rms)"


def whitened_samples(scaled: NDArray[np.complex64]) -> NDArray[np.complex64]:
    """Time samples of the used band alone, as if it were all there is: (blocks, K) by an inverse FFT of size K.

    Noise that is not Gaussian in time is hidden in cells, each of which sums hundreds of samples; here it shows again.
    """
    return np.asarray(scipy.fft.ifft(scaled, axis=-1, norm="ortho"), dtype=np.complex64)


def gaussian_body(scaled: NDArray[np.complex64]) -> Result:
    """I and Q each have a normal distribution: Anderson-Darling on both, on 200,000 values at most."""
    samples = whitened_samples(scaled).reshape(-1)[:_MOST_NORMALITY_VALUES]
    tests = [normality_test(part.astype(np.float64)) for part in (samples.real, samples.imag)]
    value = max(statistic for statistic, _ in tests)
    p_value = independent_minimum(np.array([p for _, p in tests]))
    return "gaussian_body", value, p_value, f"I or Q is not normal (Anderson-Darling {value:.2f})"


def gaussian_tails(scaled: NDArray[np.complex64]) -> Result:
    """Powers |u|^2 of whitened samples spread as exponentials do, which joins I and Q: E|u|^4 / (E|u|^2)^2 = 2."""
    samples = whitened_samples(scaled).reshape(-1)
    powers = samples.real.astype(np.float64) ** 2 + samples.imag.astype(np.float64) ** 2
    value, p_value = exponential_spread_test(powers)
    side = "heavier" if value > 2.0 else "lighter"
    return "gaussian_tails", value, p_value, f"tails are {side} than Gaussian (kurtosis ratio {value:.3f}, expected 2)"


def circular(scaled: NDArray[np.complex64], subcarriers: NDArray[np.int64]) -> Result:
    """I and Q of the time samples have equal power and no correlation: cells (blocks, K), signed subcarriers (K,).

    `impropriety_test` on `mirrored_pairs`.
    """
    pairs = mirrored_pairs(scaled, subcarriers)
    if not pairs.size:
        return "circular", 0.0, 1.0, "no subcarrier has a mirror image in use"
    rho, p_value = impropriety_test(pairs)
    imbalance_percent = 100.0 * ((1.0 + rho.real) / (1.0 - rho.real) - 1.0)
    meaning = f"power of I is {imbalance_percent:+.2f} % off that of Q, their correlation {rho.imag:+.4f}"
    return "circular", abs(rho), p_value, meaning


def stationary(scaled: NDArray[np.complex64]) -> Result:
    """Equal power in 8 successive parts of the capture: cells (blocks, K) of unit power on each subcarrier.

    Scaling each subcarrier over the whole capture takes B blocks' worth of freedom from the parts, which lowers the
    statistic by (B + 1/K)/(B + 1); it is raised again.
    """
    blocks, subcarriers = scaled.shape
    powers = np.sum(scaled.real**2 + scaled.imag**2, axis=1, dtype=np.float64)
    parts = np.array_split(powers, _SEGMENTS)
    sums = np.array([part.sum() for part in parts])
    counts = np.array([float(part.size * subcarriers) for part in parts])
    shrink = (blocks + 1.0 / subcarriers) / (blocks + 1.0)
    _, p_value = equal_powers_test(sums, counts, shrink)
    swing_percent = 100.0 * float(np.max(sums / counts) / np.min(sums / counts) - 1.0)
    return "stationary", swing_percent, p_value, f"power changed by {swing_percent:.2f} % in the course of the capture"
