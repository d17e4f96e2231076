"""The privacy that is wanted, and the noise per uplink that gives it (Theorems 2 and 4, for any label)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.privacy.accountant import Accountant, checked_delta, checked_epsilon, loss_for_epsilon
from fl.privacy.sensitivity import Label, Neighbours, charged_sensitivity


@dataclass(frozen=True)
class PrivacyTarget:
    """(epsilon, delta) over `uplinks` uplinks, under one label, neighbour relation and accountant."""

    epsilon: float
    delta: float
    uplinks: int
    label: Label = Label.PAPER_CLAIM
    neighbours: Neighbours = Neighbours.ZERO_OUT
    accountant: Accountant = Accountant.PAPER

    def __post_init__(self) -> None:
        """Refuse targets that no noise could meet or that mean nothing."""
        checked_epsilon(self.epsilon)
        checked_delta(self.delta)
        if self.uplinks < 1:
            raise PrivacyError(f"uplinks is {self.uplinks}: expected 1 or more")

    @property
    def total_loss(self) -> float:
        """S that all uplinks together may spend."""
        return loss_for_epsilon(self.accountant, self.epsilon, self.delta)

    def sensitivity(self, sizes: NDArray[np.int64]) -> float:
        """Delta at s_i = 1, in units of the clip norm: 1/n, or the largest p_i for `client`; twice that to replace."""
        # What is sized for a record is earned in the run: an update that does not prove it is refused.
        gains = np.ones(len(sizes))
        return float(charged_sensitivity(self.label, self.neighbours, sizes, gains, record_bounded=True).max())

    def sigma_required(self, sizes: NDArray[np.int64]) -> float:
        """Smallest sigma per uplink, in units of the clip norm, for clients of these `sizes` (K,) with s_i = 1.

        S = M Delta^2 / (2 sigma^2). With accountant `paper` this is Theorem 2:
        sigma^2 = M log(1/delta) / (2 n^2 a^2), a = -L + sqrt(L^2 + eps L), L = log(1/delta).
        """
        return self.sensitivity(sizes) * math.sqrt(self.uplinks / (2.0 * self.total_loss))
