"""Distributions that the measurements rest on: intervals, and tests whose p-values are right at any capture length.

Noise powers are sums of squares of Gaussian values. For N circular complex values of variance E|z|^2 = 2 sigma^2, the
estimate sigma_hat^2 = sum |z|^2 / (2 N) obeys 2 N sigma_hat^2 / sigma^2 ~ chi^2(2 N): two degrees of freedom per value.
All p-values are uniform on [0, 1] under the stated hypothesis, exactly or as closely as said.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from calibration.errors import MeasurementError


def chi_square_quantile(probability: float, degrees: float) -> float:
    """x with P(chi^2(degrees) <= x) = probability."""
    return 2.0 * float(special.gammaincinv(degrees / 2.0, probability))


def check_probability(name: str, value: float) -> None:
    """Refuse what is not strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise MeasurementError(f"{name} = {value}: expected a number above 0 and below 1")


def variance_factors(complex_values: int, confidence: float) -> tuple[float, float]:
    """(lo, hi) such that [lo, hi] * sigma_hat^2 covers sigma^2 with probability `confidence`, equal tails.

    sigma_hat^2 is the mean over `complex_values` N independent circular Gaussian values, so that it has 2 N degrees of
    freedom and lo = 2N / q(1 - a/2), hi = 2N / q(a/2) with a = 1 - confidence and q the quantile of chi^2(2N).
    """
    check_probability("confidence", confidence)
    if complex_values < 1:
        raise MeasurementError(f"{complex_values} values have no variance: expected at least 1")
    degrees = 2 * complex_values
    tail = (1.0 - confidence) / 2.0
    return degrees / chi_square_quantile(1.0 - tail, degrees), degrees / chi_square_quantile(tail, degrees)


def variance_lower_factor(complex_values: int, error: float) -> float:
    """f such that P(f sigma_hat^2 <= sigma^2) = 1 - error: a one-sided lower bound."""
    check_probability("error", error)
    degrees = 2 * complex_values
    # The upper quantile by its tail: 1 - error would lose the digits of a small error.
    return degrees / (2.0 * float(special.gammainccinv(complex_values, error)))


def equal_powers_test(
    powers: NDArray[np.float64], counts: NDArray[np.float64], shrink: float = 1.0
) -> tuple[float, float]:
    """Bartlett's test that groups of circular Gaussian values share one variance: (statistic, p-value).

    powers: (..., G) sums of |z|^2; counts: of the same shape, number of complex values in each, so that
    powers_g ~ sigma^2 Gamma(counts_g). Rows, where there are any, may differ in variance: each is tested in itself and
    the statistics add up. The statistic of a row is the likelihood ratio T = 2 [A ln(S/A) - sum_g a_g ln(p_g/a_g)],
    a = counts, A = sum a, S = sum p (Bartlett, Proc. R. Soc. A 160, 1937). Its null cumulants are exact, because by
    Basu's theorem the ratios p_g/S are independent of S: kappa_j of sum a_g ln(p_g/S) is
    sum a_g^j psi_(j-1)(a_g) - A^j psi_(j-1)(A), with psi the polygamma functions. The p-value is that of the scaled
    chi-square with that mean and variance. shrink: known factor on the statistic from a scaling of the values.
    """
    if powers.shape != counts.shape or powers.shape[-1] < 2:
        raise MeasurementError(f"powers {powers.shape} of groups {counts.shape}: expected two or more groups")
    if not np.all(powers > 0):
        return math.inf, 0.0
    total, values = powers.sum(axis=-1), counts.sum(axis=-1)
    statistic = 2.0 * float(np.sum(values * np.log(total / values)) - np.sum(counts * np.log(powers / counts))) / shrink
    mean = 2.0 * float(_mean_of_log(values) - _mean_of_log(counts))
    variance = 4.0 * float(np.sum(counts**2 * special.zeta(2, counts)) - np.sum(values**2 * special.zeta(2, values)))
    degrees = 2.0 * mean**2 / variance
    return statistic, float(special.gammaincc(degrees / 2.0, max(statistic, 0.0) * degrees / mean / 2.0))


def _mean_of_log(counts: NDArray[np.float64]) -> float:
    """Sum of a (E ln Gamma(a) - ln a)."""
    return float(np.sum(counts * (special.digamma(counts) - np.log(counts))))


def independent_minimum(p_values: NDArray[np.float64]) -> float:
    """p-value of the smallest of several independent p-values: 1 - (1 - min)^n (Sidak, JASA 62, 1967)."""
    return float(-np.expm1(p_values.size * np.log1p(-min(float(p_values.min()), 1.0 - 1e-16))))


def impropriety_test(values: NDArray[np.complex64]) -> tuple[complex, float]:
    """Test that independent zero-mean complex Gaussian values are circular: (rho, p-value).

    rho = sum z^2 / sum |z|^2. Re rho = (P_I - P_Q)/(P_I + P_Q) and Im rho = 2 E[IQ]/(P_I + P_Q), so that rho = 0 says
    equal powers and no correlation at once. 1 - |rho|^2 is the sphericity of I and Q, whose null distribution is exact:
    P(|rho| > r) = (1 - r^2)^((N-1)/2) (Mauchly, Ann. Math. Stat. 11, 1940, for two variables).
    """
    flat = values.reshape(-1).astype(np.complex128)
    rho = complex(np.sum(flat * flat) / np.sum(np.abs(flat) ** 2))
    return rho, float(np.exp(0.5 * (flat.size - 1) * np.log1p(-min(abs(rho) ** 2, 1.0 - 1e-16))))


def correlation_test(values: NDArray[np.complex64], lags: int) -> tuple[float, float]:
    """Test that series of circular Gaussian values are uncorrelated in time: (largest rms correlation, p-value).

    values: (B, K), K independent series of B > lags values, of any variance each. Portmanteau in the manner of Ljung
    and Box (Biometrika 65, 1978): Q = sum_k sum_l |r_l[k]|^2 / E|r_l|^2, r_l = sum_b z_(b+l) z_b^* / sum_b |z_b|^2.
    Gaussian moments of quadratic forms are sums over permutations of traces, here of shifts by l and m, and the ratio
    is independent of its denominator, so E|r_l|^2 = (B-l)/(B(B+1)) and E|r_l|^2|r_m|^2 =
    [(1 + [l=m]) (B-l)(B-m) + 2 (B - max(l,m)) + 4 max(B-l-m, 0)] / (B(B+1)(B+2)(B+3)) exactly. The p-value is that of
    the scaled chi-square with the exact mean and variance.
    """
    length, series = values.shape
    power = np.sum(values.real**2 + values.imag**2, axis=0, dtype=np.float64)
    shifts = np.arange(1, lags + 1, dtype=np.float64)
    means = (length - shifts) / (length * (length + 1.0))
    squares = np.empty((lags, series))
    for lag in range(1, lags + 1):
        products = np.sum(values[lag:] * values[:-lag].conj(), axis=0, dtype=np.complex128)
        squares[lag - 1] = np.abs(products / power) ** 2
    row, column = shifts[:, None], shifts[None, :]
    fourth = (
        (1.0 + np.eye(lags)) * (length - row) * (length - column)
        + 2.0 * (length - np.maximum(row, column))
        + 4.0 * np.maximum(length - row - column, 0.0)
    ) / (length * (length + 1.0) * (length + 2.0) * (length + 3.0))
    statistic = float(np.sum(squares / means[:, None]))
    mean = float(series * lags)
    variance = series * float(np.sum(fourth / (means[:, None] * means[None, :])) - lags**2)
    degrees = 2.0 * mean**2 / variance
    p_value = float(special.gammaincc(degrees / 2.0, statistic * degrees / mean / 2.0))
    return math.sqrt(float(squares.mean(axis=1).max())), p_value


def exponential_spread_test(powers: NDArray[np.float64]) -> tuple[float, float]:
    """Test that |z|^2 is exponential, as for circular Gaussian z of any variance: (kurtosis ratio, two-sided p-value).

    The ratio mean(|z|^4)/mean(|z|^2)^2 is 2 for Gaussian values, larger for heavy tails, smaller for bounded noise. It
    is n times Greenwood's statistic sum D_i^2 with D uniform on the simplex (Greenwood, J. R. Stat. Soc. 109, 1946),
    whose moments are those of a Dirichlet: E prod D_i^a_i = prod a_i! / (n (n+1) ... (n + sum a - 1)). The p-value is
    that of the Pearson type III distribution with the exact first three moments.
    """
    n = powers.size
    statistic = float(np.sum(powers**2) / np.sum(powers) ** 2)
    first = Fraction(2, n + 1)
    rising = n * (n + 1) * (n + 2) * (n + 3)
    second = Fraction(24 * n + 4 * n * (n - 1), rising)
    third = Fraction(720 * n + 144 * n * (n - 1) + 8 * n * (n - 1) * (n - 2), rising * (n + 4) * (n + 5))
    variance = second - first**2
    deviation = math.sqrt(variance)
    skewness = float(third - 3 * first * variance - first**3) / deviation**3
    upper = float(stats.pearson3.sf((statistic - float(first)) / deviation, skewness))
    return n * statistic, min(1.0, 2.0 * min(upper, 1.0 - upper))


def normality_test(values: NDArray[np.float64]) -> tuple[float, float]:
    """Anderson-Darling test that real values are Gaussian with unknown mean and variance: (A*^2, p-value).

    Modified statistic and p-value by Stephens' case 3, which counts that mean and variance were estimated (D'Agostino
    and Stephens, Goodness-of-Fit Techniques, 1986, section 4.8 and table 4.9); his curves are within 0.02 of uniform.
    """
    n = values.size
    ordered = np.sort(values)
    standard = (ordered - ordered.mean()) / ordered.std(ddof=1)
    odd = 2.0 * np.arange(1, n + 1) - 1.0
    raw = -n - float(np.sum(odd * (special.log_ndtr(standard) + special.log_ndtr(-standard[::-1])))) / n
    a2 = raw * (1.0 + 0.75 / n + 2.25 / n**2)
    if a2 < 0.2:
        return a2, -math.expm1(-13.436 + 101.14 * a2 - 223.73 * a2**2)
    if a2 < 0.34:
        return a2, -math.expm1(-8.318 + 42.796 * a2 - 59.938 * a2**2)
    if a2 < 0.6:
        return a2, math.exp(0.9177 - 4.279 * a2 - 1.38 * a2**2)
    # The curve turns up again at large statistics, where its fit ends.
    return a2, math.exp(1.2937 - 5.709 * min(a2, 100.0) + 0.0186 * min(a2, 100.0) ** 2)
