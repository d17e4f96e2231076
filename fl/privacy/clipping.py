"""Clipping, whose result carries what it proves, so that bound and update cannot drift apart."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.privacy.sensitivity import Clipping

# float32 rounds each scaled coordinate by at most 2^-24 of itself; 2^-22 less keeps the true norm below the bound.
_ROUNDING_MARGIN = 1.0 - 2.0**-22
ROUNDING = 2.0**-20
"""Of tau: how much further apart float32 may bring two updates between the mean in float64 and a radio's converter, for
both together. Rounding the mean takes 2^-23 of it, transforms and filters the rest."""
MOST_TERMS = round(0.5 / ROUNDING)
"""Of a mean that one record may move by tau/terms: beyond, rounding would take more than half of that."""
SMALLEST_CLIP_NORM = 1e-12
"""Below this the float32 coordinates of a clipped update would be subnormal and the rounding argument fails."""
_SMALLEST_SCALE = 1e-30
"""Below this a float32 factor is near subnormal numbers, where rounding is coarse."""


def checked_clip_norm(clip_norm: float) -> float:
    """`clip_norm` if it is a usable bound, else `PrivacyError`."""
    if not (math.isfinite(clip_norm) and clip_norm >= SMALLEST_CLIP_NORM):
        raise PrivacyError(f"clip norm is {clip_norm}: expected a finite number of at least {SMALLEST_CLIP_NORM}")
    return clip_norm


@dataclass(frozen=True)
class BoundedUpdate:
    """An update with a proven bound. Made by `clip_update` and `mean_of_clipped`, not by hand.

    values: float32 (d,), with l2 norm at most `clip_norm` in exact arithmetic. norm_before: of the update as it was
    trained. clipping: what is proven, and so how far a neighbour can move `values`.
    """

    values: NDArray[np.float32]
    norm_before: float
    clipping: Clipping

    @property
    def clip_norm(self) -> float:
        """tau."""
        return self.clipping.norm


def clip_update(update: NDArray[np.float32], clip_norm: float, *, origin: str = "update") -> BoundedUpdate:
    """Scale `update` (d,) down to norm `clip_norm` where it is longer; never up.

    Guarantee: the l2 norm of the result is at most `clip_norm`. Zero stays zero. A NaN or infinite coordinate raises
    `PrivacyError` naming `origin`: nothing can be said about such an update, so it is not sent.
    """
    bound = checked_clip_norm(clip_norm)
    kind = np.asarray(update).dtype
    if kind.kind not in "fiub":
        raise PrivacyError(f"{origin} holds {kind}: expected real numbers; it is not sent")
    with np.errstate(over="ignore"):  # what becomes infinite is refused with all that is
        values = np.ascontiguousarray(update, dtype=np.float32)
    norm = float(np.linalg.norm(values.astype(np.float64)))
    if not math.isfinite(norm):
        bad = int(np.count_nonzero(~np.isfinite(values)))
        raise PrivacyError(
            f"{origin} has {bad} NaN or infinite of {values.size} coordinates: it is not sent; "
            "lower the learning rate (local.lr) or check the data"
        )
    if norm > bound * _ROUNDING_MARGIN:
        # In float64: as float32 the factor of a very long update would be subnormal, and rounded up by percents.
        values = (values.astype(np.float64) * (bound / norm * _ROUNDING_MARGIN)).astype(np.float32)
    return BoundedUpdate(values, norm, Clipping.whole(bound))


def per_sample_scales(
    norms: NDArray[np.floating[Any]], clip_norm: float, *, terms: int, origin: str = "gradients"
) -> NDArray[np.float32]:
    """Factors min(1, bound/norm_j) for per-sample terms with l2 norms `norms` (n,), with the rounding margin.

    terms: of the whole mean, of which these may be a part. The bound is clip_norm (1 - terms ROUNDING): a record that
    moves the mean by at most clip_norm (1/terms - ROUNDING) moves what float32 makes of it by at most clip_norm/terms.

    A term 1e30 times too long gets the factor 0: zero is within the bound, and float32 cannot scale it with precision.
    """
    bound = checked_clip_norm(clip_norm) * (1.0 - _checked_terms(terms, origin) * ROUNDING)
    if not np.all(np.isfinite(norms)):
        raise PrivacyError(
            f"{origin} of {int(np.count_nonzero(~np.isfinite(norms)))} samples are NaN or infinite: nothing is sent"
        )
    exact = np.asarray(norms, dtype=np.float64)
    scales = bound / np.maximum(exact, bound) * _ROUNDING_MARGIN**2
    return np.where(scales < _SMALLEST_SCALE, 0.0, scales).astype(np.float32)


def mean_of_clipped(
    mean: NDArray[np.float32], terms: int, clip_norm: float, *, origin: str = "update"
) -> BoundedUpdate:
    """Take `mean` (d,) of `terms` per-sample vectors that were each scaled by `per_sample_scales`.

    The caller promises the construction; the norm is checked again, because a mean of bounded terms is bounded too.
    """
    _checked_terms(terms, origin)
    whole = clip_update(mean, clip_norm, origin=origin)
    if whole.norm_before > clip_norm * (1.0 + 1e-5):
        raise PrivacyError(
            f"{origin} has norm {whole.norm_before:.6g} above {clip_norm:.6g}: its per-sample terms were not clipped"
        )
    return BoundedUpdate(whole.values, whole.norm_before, Clipping.each_of(terms, whole.clip_norm))


def _checked_terms(terms: int, origin: str) -> int:
    if not 1 <= terms <= MOST_TERMS:
        raise PrivacyError(
            f"{origin} is a mean of {terms} terms: expected 1 to {MOST_TERMS}, because updates are sent in float32, "
            "whose rounding would hide one of more"
        )
    return terms
