"""Noise for a target: Theorem 2's sigma literally, and the target met exactly when the uplinks are accounted."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.privacy.accountant import Accountant
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import state_privacy
from fl.privacy.target import PrivacyTarget
from tests.fl.privacy.mechanisms import without_jammer


def uplink_with(sigma: float, clients: int) -> RoundMechanism:
    return without_jammer((1.0,) * clients, sigma, record_bounded=True)


def test_the_papers_noise() -> None:
    """(6.52, 1e-5) over 80 uplinks with 10,000 samples: sigma 7.41e-4."""
    target = PrivacyTarget(epsilon=6.52, delta=1e-5, uplinks=80)
    assert target.sigma_required(np.full(50, 200)) == pytest.approx(7.41e-4, rel=1e-3)


@pytest.mark.parametrize(("epsilon", "delta", "uplinks"), [(6.52, 1e-5, 80), (0.5, 1e-9, 1), (40.0, 0.01, 1000)])
def test_theorem_two_literally(epsilon: float, delta: float, uplinks: int) -> None:
    """sigma^2 = M log(1/delta) / (2 n^2 a^2), a = -L + sqrt(L^2 + eps L), L = log(1/delta)."""
    sizes = np.array([10, 20, 70])
    log_inverse = math.log(1 / delta)
    a = -log_inverse + math.sqrt(log_inverse**2 + epsilon * log_inverse)
    variance = uplinks * log_inverse / (2 * 100**2 * a**2)
    target = PrivacyTarget(epsilon=epsilon, delta=delta, uplinks=uplinks)
    assert target.sigma_required(sizes) ** 2 == pytest.approx(variance, rel=1e-12)


@settings(max_examples=150, deadline=None)
@given(
    epsilon=st.floats(-2, 3).map(lambda exponent: 10.0**exponent),
    delta=st.floats(-12, -0.5).map(lambda exponent: 10.0**exponent),
    uplinks=st.integers(1, 40),
    label=st.sampled_from(Label),
    neighbours=st.sampled_from(Neighbours),
    accountant=st.sampled_from([Accountant.PAPER, Accountant.EXACT]),
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=5).map(np.array),
)
def test_accounting_for_that_noise_gives_the_target_back(
    epsilon: float,
    delta: float,
    uplinks: int,
    label: Label,
    neighbours: Neighbours,
    accountant: Accountant,
    sizes: NDArray[np.int64],
) -> None:
    target = PrivacyTarget(epsilon, delta, uplinks, label, neighbours, accountant)
    sigma = target.sigma_required(sizes)

    def spent(sigma: float) -> float:
        uplinks_made = [uplink_with(sigma, len(sizes))] * uplinks
        said = state_privacy(uplinks_made, sizes, label=label, neighbours=neighbours, delta=delta)
        return said.epsilon[accountant]

    assert spent(sigma) == pytest.approx(epsilon, rel=1e-9)
    assert spent(0.99 * sigma) > epsilon
    assert spent(1.01 * sigma) < epsilon


def test_a_whole_client_needs_as_many_times_the_noise_as_it_has_samples() -> None:
    sizes = np.array([10, 30, 60])
    record = PrivacyTarget(5.0, 1e-5, 10, Label.RECORD)
    client = PrivacyTarget(5.0, 1e-5, 10, Label.CLIENT)
    replaced = PrivacyTarget(5.0, 1e-5, 10, Label.CLIENT, Neighbours.REPLACE_ONE)
    assert client.sigma_required(sizes) == pytest.approx(60 * record.sigma_required(sizes), rel=1e-14)
    assert replaced.sigma_required(sizes) == pytest.approx(2 * client.sigma_required(sizes), rel=1e-14)


def test_the_exact_accountant_needs_less_noise_for_the_same_target() -> None:
    sizes = np.full(50, 200)
    paper = PrivacyTarget(6.52, 1e-5, 80, accountant=Accountant.PAPER).sigma_required(sizes)
    exact = PrivacyTarget(6.52, 1e-5, 80, accountant=Accountant.EXACT).sigma_required(sizes)
    assert 0.8 * paper < exact < 0.9 * paper


@pytest.mark.parametrize(
    ("epsilon", "delta", "uplinks"),
    [(0.0, 1e-5, 1), (-1.0, 1e-5, 1), (math.inf, 1e-5, 1), (1.0, 0.0, 1), (1.0, 1.0, 1), (1.0, 1e-5, 0)],
)
def test_a_target_that_means_nothing_cannot_exist(epsilon: float, delta: float, uplinks: int) -> None:
    with pytest.raises(PrivacyError):
        PrivacyTarget(epsilon, delta, uplinks)


@pytest.mark.parametrize("accountant", [Accountant.RDP, Accountant.PLD])
def test_second_opinions_size_no_noise(accountant: Accountant) -> None:
    with pytest.raises(PrivacyError, match="'paper' or 'exact'"):
        PrivacyTarget(1.0, 1e-5, 1, accountant=accountant).sigma_required(np.array([1]))
