"""By how much a channel may differ from its estimate: noise, and whatever else was in the sounding.

A sounding shows raw(k) = H'(k) + z(k) at U subcarriers: H' what all its symbols have in common, z noise of variance
v = sigma^2/E. The estimate is its projection on responses with delays within a window, H^ = B raw. What is no noise
falls into three parts.

*What differs from symbol to symbol* (rounding, carrier leakage, phase noise, interference of carriers, what a symbol
leaves behind in the next) is scatter. Symbols are turned such that it does not add up (`phy.frame.symbol_turns`), so
it is in sigma^2, which is measured from the scatter and not taken from a silence.

*What is the same in every symbol and lies outside of the window*, t = (1 - B) H', is in the channel and not in the
estimate. It is seen: outside of the window there is nothing but t and noise, of energy

    X = sum_k |(1 - B) raw|^2 / v        with mean nu + lambda, nu = U - rank B, lambda = sum |t|^2 / v

X says with certainty e^-x (Birge 2001, Laurent and Massart 2000; D complex degrees of freedom in sigma^2) that

    lambda <= lambda_x(X),    lambda - c = sqrt(2 x (nu + 2 lambda + X^2/D)),    c = X (1 + x/D) - nu.

Noise within the window is independent of it and within q(l) std(k) everywhere with certainty M e^-l, M points. So

    e(k) = max over x of   CREST sqrt(v lambda_x / U)  +  q(L - x) std(k),      M (L + 1) e^-L = failure

bounds |H - H^| everywhere with probability 1 - failure, whatever t: if X is as low as it is once in e^x, noise must
exceed q(L - x), and the integral over x of e^-x M e^-(L - x) is failure. It costs less than two bounds at full
confidence, one beside the other.

CREST is the largest |H - H^| that is no noise, over the rms of t: one path that loses up to 60 % of itself because it
is later than the FFT's window, two equal ones that lose 40 %, or many, whose sum is beyond 2.5 times its rms at one
frequency in 500.

*What a power amplifier takes away* is the same in every symbol and hardly different from subcarrier to subcarrier:
it looks like a channel. `fl.nodes.soundings.level` measures it.

Not seen: a path that is later than a whole symbol shows as scatter alone. Where scatter is significantly above the
noise of the silence, its excess is taken for such a path (`late_path`).
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fl.nodes.messages import Unexplained

CREST = 2.5
_STEPS = 48
_BETWEEN_POINTS = 1.02
"""By how much a response of a few dozen taps may exceed its largest value at the points where noise is bounded."""


def error_bound(
    std: NDArray[np.float64], unexplained: Unexplained, *, points: int, failure: float
) -> NDArray[np.float64]:
    """e(k) of the module's derivation (U,), std being that of the estimate's noise (U,).

    points: M, at which noise is bounded. failure: probability with which e(k) may be too small anywhere.
    """
    levels, noise = _levels(points / failure, unexplained.noise_degrees)
    # Between two levels: the larger of the one, and of the other.
    systematic = CREST * unexplained.entry_std * np.sqrt(energy_upper(unexplained, levels[1:]) / std.size)
    bounds = systematic[:, None] + noise[:, None] * std
    return np.asarray(bounds.max(axis=0) + unexplained.late_path)


@lru_cache(maxsize=16)
def _levels(odds: float, noise_degrees: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """x from 0 to L (_STEPS + 1,) and q(L - x) at all but the last (_STEPS,): the same for all transmitters."""
    exponent = _exponent(odds)
    levels = np.linspace(0.0, exponent, _STEPS + 1)
    noise = np.array([noise_quantile(exponent - level, noise_degrees) for level in levels[:-1]])
    for array in (levels, noise):
        array.setflags(write=False)
    return levels, noise


def energy_upper(unexplained: Unexplained, level: NDArray[np.float64]) -> NDArray[np.float64]:
    """lambda_x at the levels x: P(lambda > lambda_x) <= e^-x."""
    energy, degrees, noise_degrees = unexplained.energy, unexplained.degrees, unexplained.noise_degrees
    centre = energy * (1.0 + level / noise_degrees) - degrees
    spread = 2.0 * level * (degrees + energy**2 / noise_degrees) + 4.0 * level * (centre + level)
    return np.asarray(np.maximum(centre + 2.0 * level + np.sqrt(np.maximum(spread, 0.0)), 0.0))


def noise_quantile(exponent: float, noise_degrees: float) -> float:
    """q with P(|z| > q std) = e^-exponent, where std itself comes from `noise_degrees` complex degrees of freedom."""
    return _BETWEEN_POINTS * math.sqrt(noise_degrees * math.expm1(exponent / noise_degrees))


def _exponent(odds: float) -> float:
    """L with (L + 1) e^-L = 1/odds."""
    exponent = math.log(odds)
    for _ in range(4):
        exponent = math.log(odds) + math.log(exponent + 1.0)
    return exponent
