"""Brent's method for a root of a function of one number, as SciPy has it, without the second that SciPy takes to load.

The steps are those of SciPy's `brentq` (R. Brent, Algorithms for Minimization without Derivatives, 1973, chapter 4), so
that results are the same to the last bit: noise is sized with them.
"""

import math
from collections.abc import Callable

from fl.errors import PrivacyError

LEAST_RTOL = 4.0 * 2.0**-52
_STEPS = 100


def root_between(
    function: Callable[[float], float], low: float, high: float, xtol: float, rtol: float = LEAST_RTOL
) -> float:
    """x in [low, high] with function(x) = 0, to xtol + rtol |x|. The signs at the ends differ, or one of them is 0."""
    before, now, other = low, high, 0.0
    f_before, f_now, f_other = function(before), function(now), 0.0
    if f_before == 0.0:
        return before
    if f_now == 0.0:
        return now
    if math.copysign(1.0, f_before) == math.copysign(1.0, f_now) or math.isnan(f_before) or math.isnan(f_now):
        raise PrivacyError(f"no root is between {low:g} and {high:g}, where a function is {f_before:g} and {f_now:g}")
    last = step = 0.0
    for _ in range(_STEPS):
        if f_before != 0.0 and f_now != 0.0 and math.copysign(1.0, f_before) != math.copysign(1.0, f_now):
            other, f_other = before, f_before
            last = step = now - before
        if abs(f_other) < abs(f_now):
            before, now = now, other
            other = before
            f_before, f_now = f_now, f_other
            f_other = f_before
        tolerance, half = (xtol + rtol * abs(now)) / 2.0, (other - now) / 2.0
        if f_now == 0.0 or abs(half) < tolerance:
            return now
        tried = math.inf
        if abs(last) > tolerance and abs(f_now) < abs(f_before):
            if before == other:
                tried = -f_now * (now - before) / (f_now - f_before)
            else:
                one, two = (f_before - f_now) / (before - now), (f_other - f_now) / (other - now)
                tried = -f_now * (f_other * two - f_before * one) / (two * one * (f_other - f_before))
        last, step = (step, tried) if 2.0 * abs(tried) < min(abs(last), 3.0 * abs(half) - tolerance) else (half, half)
        before, f_before = now, f_now
        now += step if abs(step) > tolerance else math.copysign(tolerance, half)
        f_now = function(now)
    raise PrivacyError(f"no root was found between {low:g} and {high:g} in {_STEPS} steps")
