"""How far a neighbour can move what clients send: the one place in which Delta is computed.

A client's update u_i is a mean of terms of norm at most tau: of n_i, one for each sample, where each was clipped; of a
single one, where the update was clipped as a whole. A neighbour changes some of them, each by at most `factor` tau:

    Delta(u_i) = factor tau changed/terms      what clipping proves about an update (`Clipping.sensitivity`)
    Delta_i    = factor g_i changed/n          what is charged for it in the sum (`charged_sensitivity`)

The second is g_i p_i Delta(u_i)/tau with p_i = n_i/n, because the sum is taken in units of tau. An uplink takes an
update only where the first covers what the second charges for (`Clipping.covers`). A transmitter that rounds adds its
`rounding`, of which dither smooths all but a part (`fl.privacy.converters`).
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from phy.dither import RESOLUTION


class Label(StrEnum):
    """Which sensitivity is claimed (see the package docstring)."""

    PAPER_CLAIM = "paper-claim"
    RECORD = "record"
    CLIENT = "client"


class Neighbours(StrEnum):
    """Between which data sets the claim holds: one record or client set to zero, or replaced, which doubles Delta."""

    ZERO_OUT = "zero-out"
    REPLACE_ONE = "replace-one"

    @property
    def factor(self) -> float:
        """Sensitivity relative to zero-out."""
        return 2.0 if self is Neighbours.REPLACE_ONE else 1.0


def changed_terms(label: Label, terms: NDArray[np.int64], *, per_sample: bool) -> NDArray[np.float64]:
    """How many of `terms` a neighbour under `label` changes: all of a client's, or one record's.

    per_sample: each record has a term of its own. Without that, one record may move everything: infinite.
    """
    if label is Label.CLIENT:
        return terms.astype(np.float64)
    return np.full(terms.shape, 1.0 if per_sample else math.inf)


def charged_sensitivity(
    label: Label,
    neighbours: Neighbours,
    sizes: NDArray[np.int64],
    gains: NDArray[np.float64],
    *,
    record_bounded: bool,
    rounding: float | NDArray[np.float64] = 0.0,
    smoothed: bool = True,
) -> NDArray[np.float64]:
    """Delta_i of each client in the sum of g_i p_i u_i, in units of tau, shape of `gains`; 0 for a gain of 0.

    gains: (K,), or (uplinks, K). rounding: `rounding_distance` of the transmitters in the same units, one for all, or
    (uplinks, 1). smoothed: dither is counted on, which a claim about a whole client never does.
    `paper-claim` takes for granted that updates are means of per-sample terms; `record` needs `record_bounded`.
    """
    changed = changed_terms(label, sizes, per_sample=record_bounded or label is Label.PAPER_CLAIM)
    left = RESOLUTION if smoothed and label is not Label.CLIENT else 1.0
    out = np.zeros(gains.shape)
    np.multiply(gains * neighbours.factor, changed / sizes.sum(), out=out, where=gains > 0)
    return np.add(out, left * rounding, out=out, where=gains > 0)


@dataclass(frozen=True)
class Clipping:
    """How an update was bounded: made by `whole` and `each_of`.

    norm: tau, the largest norm of the update and of each of its terms. terms: how many it is the mean of.
    per_sample: each sample has a term of its own.
    """

    norm: float
    terms: int
    per_sample: bool

    def __post_init__(self) -> None:
        """Refuse what is neither the one nor the other."""
        if self.terms < 1 or (self.terms > 1 and not self.per_sample):
            raise PrivacyError(f"an update is a mean of {self.terms} terms: expected 1, or more where each was clipped")

    @classmethod
    def whole(cls, norm: float) -> "Clipping":
        """Clipped as a whole."""
        return cls(norm, 1, per_sample=False)

    @classmethod
    def each_of(cls, samples: int, norm: float) -> "Clipping":
        """The mean of terms that were clipped one by one."""
        return cls(norm, samples, per_sample=True)

    def sensitivity(self, label: Label, neighbours: Neighbours) -> float:
        """Largest l2 change of the update that is proven under `label`; infinite where there is no such proof."""
        changed = changed_terms(label, np.array([self.terms]), per_sample=self.per_sample)
        return float(neighbours.factor * self.norm * (changed[0] / self.terms))

    def covers(self, promised: "Clipping", label: Label) -> bool:
        """Whether under `label` this update moves by no more than one clipped as `promised`."""
        return self == promised or all(self.sensitivity(label, n) <= promised.sensitivity(label, n) for n in Neighbours)
