"""The receiver's own converter: its noise is in every silence, and protects nobody.

A converter rounds what its amplifier delivers to steps q. What it gives out is computed from x + n, with n the noise
before it, and tells no more about x than x + n does: the noise that counts is n, of variance s^2. A silence shows

    Var(round(n)) = s^2 + q^2/12 + r,      |r| <= e^(-2 pi^2 s^2/q^2) (4 s^2 + q^2/pi^2)    (Sheppard; Widrow)

so q^2/12 is taken off. Below `LEAST_STEPS` the rest r is no longer small, and depends on where zero lies between two
levels: with s = 0.2 q a silence may show 2.5 times the noise that there is, and a receiver that knows all other
signals tells neighbours apart twice as well as it would claim. Such a silence is refused.

The step is read off the samples: of values on a grid the nearest two are a step apart. Of values that are on no grid
they are so near that q^2/12 is nothing.
"""

import numpy as np
from numpy.typing import NDArray

from hardware.radio.errors import CaptureError

LEAST_STEPS = 0.75
"""Standard deviation of I or Q in steps, above which q^2/12 is all that rounding adds, to 3e-4 of the variance."""
_VALUES = 1 << 14


def converter_step(samples: NDArray[np.complex64], noise: NDArray[np.complex64]) -> float:
    """Distance of two levels of the converter that samples (n,) come from, the larger one of I and Q.

    noise: the same without DC and tones. `CaptureError` where it is too small to be told from the converter's own.
    """
    head = samples[:_VALUES]
    steps = [_step(part, name) for part, name in ((head.real, "I"), (head.imag, "Q"))]
    for part, name, step in zip((noise.real, noise.imag), "IQ", steps, strict=True):
        std = float(np.std(part, dtype=np.float64))
        if std < LEAST_STEPS * step:
            raise CaptureError(
                f"the noise of {name} is {std / step:.2g} of a step of the receiver's converter: expected at least "
                f"{LEAST_STEPS:g}, because below it one cannot tell how much of it is noise; raise rx_gain_db"
            )
    return max(steps)


def _step(values: NDArray[np.float32], name: str) -> float:
    levels = np.unique(values)
    if levels.size < 2:
        raise CaptureError(
            f"{name} of the silence is one value throughout: the receiver's noise is below its converter's step; "
            "raise rx_gain_db"
        )
    return float(np.diff(levels).min())


def rounding_var_real(step: float) -> float:
    """Variance per real coordinate that rounding to `step` has added to what a silence shows."""
    return step * step / 12.0
