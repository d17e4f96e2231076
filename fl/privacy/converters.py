"""What the rounding of a transmit converter is charged with.

The model. A client sends w = round(x + d), x its samples, d dither (`phy.dither`), q the converter's step; what arrives
is C w + n, with ||C|| <= h and n white Gaussian of standard deviation s per real value. Neighbours differ by a in x, so
what arrives should differ by C a and no more. Rounding adds noise that depends on x, and so says something about x.

The bound. Compare in two steps, with the law of w given x moved as a whole in between:

    C w(x) + n   ->   C (w(x) + a) + n       a shift by C a, whatever w is: Gaussian DP with mu = ||C a|| / s
    C (w(x) + a) + n   ->   C w(x + a) + n   the law itself changes, with the mean and (from two uniforms on) the
                                             variance of every sample unchanged

For the second, n = C n' + n'' with n' white of standard deviation s/h, because ||C|| <= h. What is done to w + n' tells
no more than w + n' itself, which has independent real values: one dimension is enough. With f_x the density of one of
them and t the standard deviations of n' in a step's units,

    kappa = sup over x and events S of    (s/h) integral_S (d/dx + d/dy) f_x(y) dy  /  phi(Phi^-1(P_x(S)))

means that Phi^-1(P(S)) of no event moves by more than kappa |a| h/s on the way from x to x + a: each real value is
Gaussian DP with that mu, hence all together with mu = kappa h ||a|| / s, and both steps together with

    mu <= ( ||C a|| + kappa(q h / s) h ||a|| ) / s

This is Gaussian DP and no approximation of it, so it adds up under every accountant. The dither's own noise is not
counted as protection. Where a client undoes its channel with a filter of largest gain G, ||a|| <= G times what arrives
nominally: the bound on its relative gain grows by kappa h G, which is kappa on a flat channel.

The tail. Events of a probability below Phi(-SIGMAS), and their complements, are left out of the supremum: far out a
mixture of shifted Gaussians is ruled by its outermost level. Each real value is then within that probability, in total
variation, of one for which the bound holds (Torgersen 1970: for two hypotheses, comparing tests is enough). So a claim
of epsilon costs 1 + e^epsilon times the `tail_probability` of a burst, which is part of delta (`tail_delta`) for
every epsilon up to LARGEST_EPSILON.

Beyond that epsilon another bound is charged, which has no tail. With the same dither round(x + a + d) - round(x + d)
is within one step of a, so given d what arrives differs by at most ||C a|| + h q sqrt(2 N), and a mixture over d of
pairs of Gaussians is told apart no better than the worst of them: mu <= (||C a|| + `rounding_distance`) / s. For a
record this would be hundreds of times its own distance, for a whole client, whose epsilon is large anyhow, it is some
percent. Of the same distance float32 leaves RESOLUTION parts unsmoothed: these are charged always.
"""

import math

import numpy as np
from scipy.special import ndtr

from fl.errors import PrivacyError
from fl.privacy.accountant import epsilon_exact
from phy.dither import Dither

SIGMAS = 12.0
"""Up to how many standard deviations the bound holds: beyond lie 2e-33."""
LARGEST_EPSILON = 30.0
"""Up to which a claim rests on kappa; beyond it on `rounding_distance`."""
NEGLIGIBLE = 1e-3
"""Of the gain: where triangular dither costs less than this, nothing is won by a smoother one, which has more noise."""
_SLACK = 1.05
"""On the table, for what lies between its points and between the phases that it was computed at."""
_TABLE: dict[Dither, tuple[tuple[float, ...], tuple[float, ...]]] = {
    Dither.TRIANGULAR: (
        (0.02, 0.03, 0.045, 0.0675, 0.1, 0.15, 0.2, 0.275, 0.35, 0.45),
        (4.740e-3, 1.059e-2, 2.347e-2, 5.101e-2, 0.1044, 0.2032, 0.3042, 0.5064, 0.8840, 1.652),
    ),
    Dither.SMOOTH: (
        (0.02, 0.03, 0.045, 0.0675, 0.1, 0.15, 0.2, 0.275, 0.35, 0.45, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0),
        (
            *(7.835e-8, 2.272e-7, 1.080e-6, 8.617e-6, 7.809e-5, 7.600e-4, 3.512e-3, 1.600e-2),
            *(4.505e-2, 0.1103, 0.2376, 0.4970, 0.8430, 1.417, 2.190, 4.300),
        ),
    ),
}
"""Step as it arrives over noise, q h/s, and kappa there. Below the first it falls at least with the square."""


def kappa(dither: Dither, step_over_noise: float) -> float:
    """kappa(q h/s) of the module's derivation, from above; infinite beyond the table."""
    if not step_over_noise >= 0.0:
        raise PrivacyError(f"a converter's step is {step_over_noise} of the noise: expected a number of at least 0")
    ratios, values = _TABLE[dither]
    if step_over_noise > ratios[-1]:
        return math.inf
    if step_over_noise <= ratios[0]:
        return _SLACK * values[0] * (step_over_noise / ratios[0]) ** 2
    return _SLACK * math.exp(float(np.interp(math.log(step_over_noise), np.log(ratios), np.log(values))))


def gain_excess(dither: Dither, step: float, *, gain: float, inverse_gain: float, noise_std_real: float) -> float:
    """What dithered rounding to `step` adds to the bound on a client's relative gain: kappa h G.

    gain: h, upper bound on the channel's at any frequency. inverse_gain: G, largest gain of what undoes the channel.
    noise_std_real: lower bound on the noise that is always there, per real value of a sample.
    """
    if not (step > 0.0 and gain >= 0.0 and inverse_gain >= 0.0 and noise_std_real > 0.0):
        raise PrivacyError(
            f"a step of {step}, gains of {gain} and {inverse_gain} and noise of {noise_std_real}: "
            "expected numbers above 0"
        )
    return kappa(dither, step * gain / noise_std_real) * gain * inverse_gain


def choose_dither(step: float, *, gain: float, inverse_gain: float, noise_std_real: float) -> Dither:
    """The dither that a client adds: triangular where that is all but free, else the smoother one.

    It rests on the channel and the noise, which are public, and on no data.
    """
    scene = {"gain": gain, "inverse_gain": inverse_gain, "noise_std_real": noise_std_real}
    free = gain_excess(Dither.TRIANGULAR, step, **scene) <= NEGLIGIBLE
    return Dither.TRIANGULAR if free else Dither.SMOOTH


def tail_probability(samples: int) -> float:
    """Probability that belongs to delta for a burst of so many complex samples, for both hypotheses together."""
    return 2.0 * 2.0 * samples * float(ndtr(-SIGMAS))


def tail_delta(samples: int) -> float:
    """What of delta belongs to events that kappa leaves out, for every claim of at most `LARGEST_EPSILON`."""
    return tail_probability(samples) * (1.0 + math.exp(LARGEST_EPSILON))


def vouched_for(total_loss: float, delta: float) -> bool:
    """Whether a claim of this loss, as it is with kappa, may rest on that; if not, `rounding_distance` is charged."""
    return epsilon_exact(total_loss, delta) <= LARGEST_EPSILON


def rounding_distance(step: float, samples: int, gain: float) -> float:
    """How much further apart rounding may bring two signals of so many samples, as they arrive, whatever the dither.

    Each real value by less than one step, whatever the signals' own distance: relative to a small one this is beyond
    all bounds, which is why converters are dithered.
    """
    return gain * step * math.sqrt(2.0 * samples)
