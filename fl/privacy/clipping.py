"""Clipping that carries its own sensitivity, so that bound and update cannot drift apart."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.privacy.mechanism import Neighbours

# float32 rounds each scaled coordinate by at most 2^-24 of itself; 2^-22 less keeps the true norm below the bound.
_ROUNDING_MARGIN = 1.0 - 2.0**-22
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
    """An update with a proven norm bound. Made by `clip_update` and `mean_of_clipped`, not by hand.

    values: float32 (d,), with l2 norm at most `clip_norm` in exact arithmetic.
    record_terms: the number n_i of per-sample terms, each of norm at most `clip_norm`, of which `values` is the mean;
        None where the update was clipped as a whole, so that one sample may have moved all of it.
    """

    values: NDArray[np.float32]
    clip_norm: float
    norm_before: float
    record_terms: int | None

    def client_sensitivity(self, neighbours: Neighbours) -> float:
        """Largest l2 change of `values` when the whole client changes."""
        return neighbours.factor * self.clip_norm

    def record_sensitivity(self, neighbours: Neighbours) -> float:
        """Largest l2 change of `values` when one sample changes; infinite where that is not bounded by construction."""
        return math.inf if self.record_terms is None else neighbours.factor * self.clip_norm / self.record_terms


def clip_update(update: NDArray[np.float32], clip_norm: float, *, origin: str = "update") -> BoundedUpdate:
    """Scale `update` (d,) down to norm `clip_norm` where it is longer; never up.

    Guarantee: the l2 norm of the result is at most `clip_norm`. Zero stays zero. A NaN or infinite coordinate raises
    `PrivacyError` naming `origin`: nothing can be said about such an update, so it is not sent.
    """
    bound = checked_clip_norm(clip_norm)
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
    return BoundedUpdate(values=values, clip_norm=bound, norm_before=norm, record_terms=None)


def per_sample_scales(
    norms: NDArray[np.floating[Any]], clip_norm: float, *, origin: str = "gradients"
) -> NDArray[np.float32]:
    """Factors min(1, clip_norm/norm_j) for per-sample terms with l2 norms `norms` (n,), with the rounding margin.

    A term 1e30 times too long gets the factor 0: zero is within the bound, and float32 cannot scale it with precision.
    """
    bound = checked_clip_norm(clip_norm)
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
    if terms < 1:
        raise PrivacyError(f"{origin} is a mean of {terms} terms: expected 1 or more")
    whole = clip_update(mean, clip_norm, origin=origin)
    if whole.norm_before > clip_norm * (1.0 + 1e-5):
        raise PrivacyError(
            f"{origin} has norm {whole.norm_before:.6g} above {clip_norm:.6g}: its per-sample terms were not clipped"
        )
    return BoundedUpdate(whole.values, whole.clip_norm, whole.norm_before, record_terms=terms)
