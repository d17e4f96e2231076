"""mu from trials: near the truth as often as it says, and refuting what is wrong."""

import math

import numpy as np
import pytest

from fl.audit.estimate import Estimate, estimate_mu, standardised
from fl.errors import PrivacyError


def trials(mu: float, uplinks: int, changes: int, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    rng = np.random.default_rng(seed)
    share = 1.0 / math.sqrt(changes)
    present = rng.random((uplinks, changes)) < 0.5
    offsets, scales = rng.standard_normal(changes), rng.uniform(0.1, 10.0, changes)
    return offsets + scales * (rng.standard_normal(present.shape) + mu * share * present), present, share


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    found = [estimate_mu(*trials(12.0, 100, 8, seed)) for seed in range(400)]
    covered = sum(low <= 12.0 <= high for low, high in (estimate.interval() for estimate in found))
    assert covered >= 380 - 5 * math.sqrt(400 * 0.95 * 0.05)
    spread = np.std([estimate.mu for estimate in found])
    assert spread == pytest.approx(found[0].std, rel=0.2)


def test_a_claim_that_is_too_small_is_refuted_and_a_true_one_is_not() -> None:
    estimate = estimate_mu(*trials(30.0, 250, 16, 1))
    assert estimate.refutes(30.0 / 1.1, 0.001)
    assert not estimate.refutes(30.0, 0.001)


def test_statistics_in_units_of_their_noise() -> None:
    statistics, present, share = trials(12.0, 2000, 4, 2)
    inside, outside = standardised(statistics, present)
    assert outside.mean() == pytest.approx(0.0, abs=1e-9)
    assert inside.mean() == pytest.approx(12.0 * share, rel=0.05)
    assert outside.std() == pytest.approx(1.0, abs=0.05)


def test_too_few_trials_are_refused() -> None:
    with pytest.raises(PrivacyError):
        estimate_mu(np.zeros((3, 1)), np.array([[True], [False], [False]]), 1.0)


def test_an_interval_is_about_its_estimate() -> None:
    low, high = Estimate(2.0, 0.5, 10).interval()
    assert (low, high) == pytest.approx((2.0 - 0.98, 2.0 + 0.98), abs=0.001)
