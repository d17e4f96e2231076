"""Was the planned noise there: all of it, at every frequency, all the time? Looked at on the air, in every uplink.

Nothing is taken from what a jammer was told. In the margins around the payload it is alone with the receiver's noise,
and all frequencies of the band can be looked at; in the empty cells beside the band it is heard in every symbol of the
payload. What is planned is a lower bound and some percent below what there should be, so both may be looked at more
closely than bounds are. Neighbouring subcarriers, and symbols that follow each other, are looked at in stretches of 1,
2, 4 …: a hole that is narrow and deep shows in few of them, one that is wide and shallow in many.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import special

from calibration.noise import NoiseMeasurement
from calibration.statistics import variance_lower_factor

FALTER_LEVEL = 1e-6
"""Probability with which an uplink whose jammer was there all the time is accounted for without it."""
MISSING_LEVEL = 1e-3
"""Probability with which noise that is just as planned over the whole band is taken for less, and charged as what is
proven of it, which is a little less."""
PART_LEVEL = 1e-6
"""The same of all parts of the band: of a narrow one hardly any noise is proven, and rounding is charged in what is."""


def faltered(empty_var_real: NDArray[np.float64], empty_cells: int, planned_var: float) -> bool:
    """Whether the empty cells of any stretch of symbols have less noise than chance leaves to the planned one.

    empty_var_real: of each symbol's empty cells (symbols,), `empty_cells` in each. A jammer that stops is seen in a few
    symbols, one that fades in many.
    """
    return any(
        np.any(means < _least(share * FALTER_LEVEL, 2 * empty_cells * length) * planned_var)
        for length, means, share in _stretches(empty_var_real)
    )


def proven_var(margins: NoiseMeasurement, planned_var: float) -> float:
    """`planned_var`, or less where the margins, or a part of their band, have less noise than chance leaves to it.

    Then it is the smallest lower bound on the variance of such a part, at the measurement's own confidence.
    """
    kept = ~np.isin(margins.bins, margins.excluded_bins)
    variances = np.asarray(margins.noise_var_real_per_bin)[kept]
    proven, mean = planned_var, float(variances.mean())
    if mean < _least(MISSING_LEVEL, 2 * margins.blocks * variances.size) * planned_var:
        proven = min(proven, margins.pooled_lower)
    for length, means, share in _stretches(variances):
        lowest, values = float(means.min()), margins.blocks * length
        # Less than everywhere: of what is missing everywhere a part is no better proven than the whole.
        if lowest < _least(share * PART_LEVEL, 2 * values) * min(planned_var, mean):
            proven = min(proven, variance_lower_factor(values, share * (1.0 - margins.bound_confidence)) * lowest)
    return proven


def _stretches(values: NDArray[np.float64]) -> Iterator[tuple[int, NDArray[np.float64], float]]:
    """(length, mean of each stretch of that length, share) for lengths of 1, 2, 4 …

    share: of an error over all stretches, what is for each of these; lengths have equal parts of it.
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    lengths = 2 ** np.arange(int(np.log2(values.size)) + 1)
    for length in lengths:
        means = (sums[length:] - sums[:-length]) / length
        yield int(length), means, 1.0 / (lengths.size * means.size)


def _least(level: float, degrees: int) -> float:
    """Part of a variance below which its estimate of so many degrees of freedom is with this probability."""
    return 2.0 * float(special.gammaincinv(degrees / 2.0, level)) / degrees
