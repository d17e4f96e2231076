"""Whole numbers in proportion to weights (Hamilton's largest-remainder method)."""

import numpy as np
from numpy.typing import NDArray


def apportion(weights: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Divide ``total`` units in proportion to ``weights`` (m,), which are not negative and do not all vanish.

    Returns int64 (m,) that sums to exactly ``total``, each entry within one unit of its quota
    q_j = total w_j / sum(w): the floor first, then one more to the largest remainders, the earlier entry on a tie.
    An entry with a whole quota never gets more than it, so counts used as weights are never exceeded.
    """
    quotas = weights * total / weights.sum()
    shares: NDArray[np.int64] = np.floor(quotas).astype(np.int64)
    by_remainder = np.argsort(shares - quotas, kind="stable")
    shares[by_remainder[: total - int(shares.sum())]] += 1
    return shares


def apportion_at_least_one(weights: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """As `apportion`, but every entry gets at least one unit, taken from the largest; needs ``total >= m``."""
    shares = apportion(weights, total)
    for empty in np.flatnonzero(shares == 0):
        shares[np.argmax(shares)] -= 1
        shares[empty] = 1
    return shares
