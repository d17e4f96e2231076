"""What the rounding of a jammer's converter leaves of its noise.

A converter sends multiples of its step q, and noise on a grid hides nothing between the grid's points: where a step
arrives far above the receiver's noise, an adversary who reduces what it has modulo the grid is left with the receiver's
noise alone. Rounded noise is Gaussian noise only as far as the receiver's own fills the gaps.

The model. A jammer sends w = round(J + d), J Gaussian with at least the variance v at every frequency, d dither; what
arrives is C w + n, with ||C|| <= h and n white Gaussian of standard deviation s per real value. Write J = J1 + J2 with
J2 white of variance v, and n = C n' + n'' with n' white of standard deviation s/h. Given J1 and d the real values of w
are independent, and so is what w + n' has of each of them. With c the place of J1 + d, and u uniform over a step,

    P(w = m q) = E_u q N(m q; c + u, v)

    density of w + n' at y = E_u N(y; c + u, v + s^2/h^2) (1 + 2 sum_k cos(2 pi k b/q) exp(-2 pi^2 k^2 t^2/q^2))

with 1/t^2 = 1/v + h^2/s^2 and some b that depends on y and u (Poisson's sum over the grid). The first factor is the
density of J1 + J2 + d + u + n': of Gaussian noise with something independent added to it, which is what is claimed.
The second is within 1 +- eta of 1, eta = 2 sum_k exp(-2 pi^2 k^2 t^2/q^2). So with N complex samples every event has,
under either of two neighbours, a probability within a factor (1 +- eta)^(2 N) of the ideal one, and a claim of epsilon
becomes one of epsilon + 2 xi, xi = 2 N ln(1/(1 - eta)). No event is left out, and no epsilon is too large for it.

That falls off so fast that it is not charged but kept below `NEGLIGIBLE`, far from every digit of a statement: noise is
raised to where it is, some steps of the converter, and where no noise is enough the jammer is none.
"""

import math

from fl.errors import PrivacyError

NEGLIGIBLE = 1e-9
"""Largest 2 xi of an uplink."""


def coarseness(step: float, *, noise_std_real: float, sent_std_real: float, gain: float) -> float:
    """eta of the module's derivation, from above; 1 where nothing is known.

    step: q. gain: h. noise_std_real: s, of the receiver. sent_std_real: sqrt(v), of what is to be rounded, at the
    frequency where it is weakest.
    """
    _check(step, noise_std_real, gain)
    if sent_std_real <= 0.0:
        return 1.0
    return _eta(1.0 / (sent_std_real**-2 + (gain / noise_std_real) ** 2) / step**2)


def added_epsilon(eta: float, samples: int) -> float:
    """2 xi: what rounding adds to the epsilon of an uplink of so many complex samples."""
    return math.inf if eta >= 1.0 else -4.0 * samples * math.log1p(-eta)


def least_sent_std(step: float, *, noise_std_real: float, gain: float, samples: int) -> float:
    """Smallest sqrt(v) for which rounding adds less than `NEGLIGIBLE`; infinite where no noise is enough."""
    _check(step, noise_std_real, gain)
    wanted = -math.expm1(-NEGLIGIBLE / (4.0 * samples))
    # eta <= 2 e/(1 - e) with e the first term.
    squared_steps = math.log((2.0 + wanted) / wanted) / (2.0 * math.pi**2)
    left = 1.0 / squared_steps - (step * gain / noise_std_real) ** 2
    return step / math.sqrt(left) if left > 0.0 else math.inf


def _eta(squared_steps: float) -> float:
    """From t^2/q^2: a geometric series is above the sum."""
    first = math.exp(-2.0 * math.pi**2 * squared_steps)
    return min(1.0, 2.0 * first / (1.0 - first)) if first < 1.0 else 1.0


def _check(step: float, noise_std_real: float, gain: float) -> None:
    if not (step > 0.0 and noise_std_real > 0.0 and gain >= 0.0):
        raise PrivacyError(
            f"a step of {step}, noise of {noise_std_real} and a gain of {gain}: expected numbers above 0"
        )
