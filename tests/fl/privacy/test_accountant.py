"""Accountants against published numbers, integrals in 60 digits and google dp-accounting.

Oracles: Mao et al., Theorems 1 and 3 (`paper`); Balle and Wang 2018, Theorem 8 (`exact`, analytic Gaussian mechanism);
dp-accounting (`rdp`, `pld`); mpmath for the definition of delta(epsilon).
"""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from fl.errors import PrivacyError
from fl.privacy.accountant import (
    Accountant,
    checked_delta,
    checked_epsilon,
    epsilon_exact,
    epsilon_of,
    epsilon_of_loss,
    epsilon_paper,
    epsilon_pld,
    epsilon_rdp,
    log_delta_exact,
    loss_for_epsilon,
    total_loss_of,
)
from phy.units import noise_var_complex_from_real

ROUNDS, SAMPLES, SIGMA, DELTA = 80, 10_000, 7.41e-4, 1e-5
RATIOS = [1.0 / (SAMPLES * SIGMA)] * ROUNDS
CLOSED = [Accountant.PAPER, Accountant.EXACT, Accountant.LIU_SIMEONE]

losses = st.floats(-8, 5).map(lambda exponent: 10.0**exponent)
deltas = st.one_of(st.floats(-300, -1).map(lambda exponent: 10.0**exponent), st.floats(0.1, 0.999))


def delta_by_definition(loss: float, epsilon: float) -> mpf:
    """delta = integral of max(0, p - e^eps q) for p = N(mu, 1) and q = N(0, 1), integrated numerically."""
    with mp.workdps(40):
        mu = mp.sqrt(2 * mpf(loss))
        # p > e^eps q exactly right of this point.
        start = mpf(epsilon) / mu + mu / 2

        def excess(x: mpf) -> mpf:
            return mp.npdf(x, mu, 1) - mp.exp(epsilon) * mp.npdf(x)

        return mp.quad(excess, [start + step for step in (0, 0.01, 0.03, 0.1, 0.2, 0.5, 1, 2, 4, 8, 16, 40)])


def delta_in_sixty_digits(loss: float, epsilon: float) -> mpf:
    with mp.workdps(60):
        mu, eps = mp.sqrt(2 * mpf(loss)), mpf(epsilon)

        def phi(x: mpf) -> mpf:
            return mp.erfc(-x / mp.sqrt(2)) / 2

        return phi(mu / 2 - eps / mu) - mp.exp(eps) * phi(-mu / 2 - eps / mu)


def test_the_papers_experiment() -> None:
    """6.52 is the paper's own; 5.45 is exact for the same uplinks; RDP lies between, PLD on the exact one."""
    assert total_loss_of(RATIOS) == pytest.approx(ROUNDS / (2 * SAMPLES**2 * SIGMA**2), rel=1e-14)
    assert epsilon_of(Accountant.PAPER, RATIOS, DELTA) == pytest.approx(6.52, abs=0.01)
    exact = epsilon_of(Accountant.EXACT, RATIOS, DELTA)
    assert exact == pytest.approx(5.45, abs=0.01)
    assert epsilon_of(Accountant.PLD, RATIOS, DELTA) == pytest.approx(exact, rel=0.01)
    assert exact < epsilon_of(Accountant.RDP, RATIOS, DELTA) < epsilon_of(Accountant.PAPER, RATIOS, DELTA)


def test_the_papers_two_statements_are_of_one_run() -> None:
    """(6.52, 1e-5) and (4.4, 0.01) need the same S, about 0.73."""
    first = loss_for_epsilon(Accountant.PAPER, 6.52, 1e-5)
    second = loss_for_epsilon(Accountant.PAPER, 4.4, 0.01)
    assert first == pytest.approx(0.73, abs=0.005)
    assert second == pytest.approx(first, abs=0.01)
    assert epsilon_exact(first, 0.01) == pytest.approx(2.99, abs=0.01)
    assert epsilon_paper(first, 0.01) == pytest.approx(4.4, abs=0.01)


def test_complex_variance_taken_for_real_is_a_different_epsilon() -> None:
    """Noise that is said to be sigma^2 per coordinate but has it per cell protects with 8.24 instead of 5.45."""
    real_of_half = SIGMA / math.sqrt(noise_var_complex_from_real(1.0))
    wrong = [1.0 / (SAMPLES * real_of_half)] * ROUNDS
    assert epsilon_of(Accountant.EXACT, wrong, DELTA) == pytest.approx(8.24, abs=0.01)


@pytest.mark.parametrize("loss", [0.01, 0.73, 5.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 5.45, 12.0])
def test_delta_is_the_integral_of_its_definition(loss: float, epsilon: float) -> None:
    expected = float(mp.log(delta_by_definition(loss, epsilon)))
    assert log_delta_exact(loss, epsilon) == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("loss", [1e-8, 1e-4, 0.1, 0.73, 10.0, 1e3, 1e5])
@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-15, 1e-5, 0.01, 0.4, 0.9])
def test_exact_against_sixty_digits(loss: float, delta: float) -> None:
    """The true delta at an epsilon slightly below is above the wanted one, and slightly above it is below."""
    epsilon = epsilon_exact(loss, delta)
    tolerance = 2e-12 + 1e-12 * epsilon
    assert delta_in_sixty_digits(loss, epsilon + tolerance) <= delta
    if epsilon > 0:
        assert delta_in_sixty_digits(loss, max(0.0, epsilon - tolerance)) >= delta
    else:
        assert delta_in_sixty_digits(loss, 0.0) <= delta


@pytest.mark.parametrize("loss", [1e-60, 1e-30, 4.9e-11, 5.1e-11])
@pytest.mark.parametrize("times_mu", [0.0, 1e-9, 1.0, 30.0])
def test_delta_of_losses_so_small_that_two_halves_nearly_cancel(loss: float, times_mu: float) -> None:
    """Too small a delta would call too little noise enough."""
    with mp.workdps(250):
        mu = mp.sqrt(2 * mpf(loss))
        epsilon = float(times_mu * mu)
        half = [mp.erfc(-x / mp.sqrt(2)) / 2 for x in (mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu)]
        expected = float(mp.log(half[0] - mp.exp(mpf(epsilon)) * half[1]))
    assert log_delta_exact(loss, epsilon) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("accountant", CLOSED)
@pytest.mark.parametrize("delta", [1e-100, 1e-30, 1e-5, 0.9])
@pytest.mark.parametrize("epsilon", [1e-200, 1e-100, 1e-20, 1e-5])
def test_noise_for_very_small_epsilons_is_enough_or_refused(
    epsilon: float, delta: float, accountant: Accountant
) -> None:
    try:
        loss = loss_for_epsilon(accountant, epsilon, delta)
    except PrivacyError as error:
        assert "too small" in str(error)  # noqa: PT017
        assert accountant is not Accountant.EXACT or delta < 1e-100
        return
    assert epsilon_of_loss(accountant, loss, delta) <= epsilon * (1 + 1e-6)


@pytest.mark.parametrize("loss", [1e10, 1e20, 1e28])
def test_exact_for_very_large_losses(loss: float) -> None:
    """Oracle: for large mu the second term vanishes, so epsilon = mu^2/2 + mu Phi^-1(1 - delta) to leading order."""
    with mp.workdps(40):
        quantile = -mp.sqrt(2) * mp.erfinv(2 * mpf(DELTA) - 1)
        expected = mpf(loss) + mp.sqrt(2 * mpf(loss)) * quantile
        assert float(abs(epsilon_exact(loss, DELTA) - expected)) <= 1e-5 * math.sqrt(loss) + 1e-15 * loss


@pytest.mark.parametrize("loss", [1e31, 1e40, 1e200, 1e300])
@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.5])
def test_losses_beyond_all_use_still_have_an_epsilon(loss: float, delta: float) -> None:
    assert epsilon_exact(loss, delta) == pytest.approx(loss, rel=1e-13)


@pytest.mark.parametrize("loss", [1e-8, 1e-3, 0.3, 4.0])
def test_epsilon_is_zero_from_the_total_variation_distance_on(loss: float) -> None:
    """delta(0) = 2 Phi(mu/2) - 1 = erf(mu / sqrt 8), the total variation distance of the two Gaussians."""
    distance = math.erf(math.sqrt(2 * loss) / math.sqrt(8))
    assert math.exp(log_delta_exact(loss, 0.0)) == pytest.approx(distance, rel=1e-9)
    assert epsilon_exact(loss, distance * 1.001) == 0.0
    assert epsilon_exact(loss, distance * 0.999) > 0.0


def test_no_loss_costs_nothing_and_unknown_loss_everything() -> None:
    for accountant in CLOSED:
        assert epsilon_of_loss(accountant, 0.0, DELTA) == 0.0
        assert epsilon_of_loss(accountant, math.inf, DELTA) == math.inf
    for accountant in Accountant:
        assert epsilon_of(accountant, [], DELTA) == 0.0
        assert epsilon_of(accountant, [0.0, 0.0], DELTA) == 0.0
        assert epsilon_of(accountant, [0.1, math.inf], DELTA) == math.inf


@settings(max_examples=200, deadline=None)
@given(losses, deltas)
def test_exact_is_never_above_the_papers_bound(loss: float, delta: float) -> None:
    """Chernoff: Theorem 1 bounds the same tail. Its delta, computed exactly, is within the wanted one."""
    paper = epsilon_paper(loss, delta)
    assert 0.0 <= epsilon_exact(loss, delta) <= paper
    assert log_delta_exact(loss, paper) <= math.log(delta)


@settings(max_examples=200, deadline=None)
@given(losses, losses, deltas, deltas, st.sampled_from(CLOSED))
def test_epsilon_rises_with_loss_and_falls_with_delta(
    loss: float, other_loss: float, delta: float, other_delta: float, accountant: Accountant
) -> None:
    less, more = sorted((loss, other_loss))
    strict, loose = sorted((delta, other_delta))
    slack = 1e-11
    assert epsilon_of_loss(accountant, less, delta) <= epsilon_of_loss(accountant, more, delta) * (1 + slack) + slack
    assert epsilon_of_loss(accountant, loss, loose) <= epsilon_of_loss(accountant, loss, strict) * (1 + slack) + slack


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-4, 10), st.floats(1.01, 10), st.integers(1, 100), st.integers(1, 100), st.sampled_from(CLOSED))
def test_epsilon_falls_as_sigma_grows_and_rises_with_rounds(
    ratio: float, quieter: float, rounds: int, more: int, accountant: Accountant
) -> None:
    """Ratios are Delta/sigma: dividing by `quieter` is a sigma that many times as large."""
    epsilon = epsilon_of(accountant, [ratio] * rounds, DELTA)
    assert epsilon_of(accountant, [ratio / quieter] * rounds, DELTA) <= epsilon
    assert epsilon_of(accountant, [ratio] * (rounds + more), DELTA) >= epsilon
    if epsilon > 1e-9:
        assert epsilon_of(accountant, [ratio / quieter] * rounds, DELTA) < epsilon
        assert epsilon_of(accountant, [ratio] * (rounds + more), DELTA) > epsilon


@settings(max_examples=200, deadline=None)
@given(st.floats(-4, 5).map(lambda exponent: 10.0**exponent), deltas, st.sampled_from(CLOSED))
def test_the_inverse_gives_the_loss_of_an_epsilon(epsilon: float, delta: float, accountant: Accountant) -> None:
    loss = loss_for_epsilon(accountant, epsilon, delta)
    assert epsilon_of_loss(accountant, loss, delta) == pytest.approx(epsilon, rel=1e-10, abs=5e-12)
    assert epsilon_of_loss(accountant, loss * 1.001, delta) > epsilon
    assert epsilon_of_loss(accountant, loss * 0.999, delta) < epsilon


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-8, 1e-12), (1e-4, 1e-300), (1e-4, 1e-12), (0.1, 1e-300)])
def test_the_inverse_is_as_good_for_small_losses(epsilon: float, delta: float) -> None:
    """S is 1e-18 to 1e-6 here: an absolute tolerance on it would be an error of percents, on the unsafe side."""
    loss = loss_for_epsilon(Accountant.EXACT, epsilon, delta)
    assert float(delta_in_sixty_digits(loss * (1 + 1e-6), epsilon)) >= delta
    assert float(delta_in_sixty_digits(loss * (1 - 1e-6), epsilon)) <= delta


@settings(deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(1e-12, 0.9))
def test_the_papers_inverse_is_theorem_two(epsilon: float, delta: float) -> None:
    """S = a^2 / L with a = -L + sqrt(L^2 + eps L), L = log(1/delta), literally."""
    log_inverse = math.log(1 / delta)
    a = -log_inverse + math.sqrt(log_inverse**2 + epsilon * log_inverse)
    # The literal form loses digits where eps is small beside L.
    cancelled = 4e-16 * log_inverse / a
    assert loss_for_epsilon(Accountant.PAPER, epsilon, delta) == pytest.approx(
        a**2 / log_inverse, rel=1e-12 + 4 * cancelled
    )


def test_unequal_rounds_compose_like_the_pld_accountants() -> None:
    """dp-accounting composes five different Gaussians by convolution; its grid is pessimistic by less than 0.1 %."""
    ratios = [0.01, 0.05, 0.2, 0.5, 1.0]
    exact = epsilon_of(Accountant.EXACT, ratios, DELTA)
    assert epsilon_pld(ratios, DELTA) == pytest.approx(exact, rel=1e-3)
    assert epsilon_pld(ratios, DELTA) >= exact * (1 - 1e-9)
    assert exact < epsilon_rdp(ratios, DELTA) < 1.3 * exact
    assert epsilon_pld([*ratios, 0.5], DELTA) > exact * 1.01, "one uplink more would be noticed"


def test_the_pld_accountant_takes_the_losses_of_whole_clients() -> None:
    """A client with p_i = 1/50 in the paper's experiment: on a grid of 1e-4 this would take gigabytes."""
    ratios = [0.02 / SIGMA] * ROUNDS
    exact = epsilon_of(Accountant.EXACT, ratios, DELTA)
    assert exact > 3e4
    assert exact * (1 - 1e-9) <= epsilon_pld(ratios, DELTA) <= exact * 1.001


@pytest.mark.parametrize("ratio", [1e-200, 1e9])
def test_what_dp_accounting_cannot_represent_is_never_understated(ratio: float) -> None:
    for second_opinion in (epsilon_rdp, epsilon_pld):
        assert second_opinion([ratio], DELTA) >= 0.99 * epsilon_of(Accountant.EXACT, [ratio], DELTA)


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, 1.5, math.nan, math.inf])
def test_what_is_no_delta_is_refused(bad: float) -> None:
    for use in (
        lambda: checked_delta(bad),
        lambda: epsilon_paper(1.0, bad),
        lambda: epsilon_exact(1.0, bad),
        lambda: epsilon_rdp([1.0], bad),
        lambda: epsilon_pld([1.0], bad),
        lambda: loss_for_epsilon(Accountant.EXACT, 1.0, bad),
    ):
        with pytest.raises(PrivacyError, match="delta"):
            use()


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_target_is_refused(bad: float) -> None:
    with pytest.raises(PrivacyError, match="epsilon"):
        checked_epsilon(bad)
    for accountant in CLOSED:
        with pytest.raises(PrivacyError, match="epsilon"):
            loss_for_epsilon(accountant, bad, DELTA)


@pytest.mark.parametrize("bad", [-1e-9, math.nan])
def test_what_is_no_loss_is_refused(bad: float) -> None:
    for use in (epsilon_paper, epsilon_exact, log_delta_exact):
        with pytest.raises(PrivacyError, match="loss"):
            use(bad, 0.5)
    for second_opinion in (epsilon_rdp, epsilon_pld):
        with pytest.raises(PrivacyError, match="ratios"):
            second_opinion([bad], DELTA)


@pytest.mark.parametrize("accountant", [Accountant.RDP, Accountant.PLD])
def test_second_opinions_have_no_closed_form(accountant: Accountant) -> None:
    with pytest.raises(PrivacyError, match="'paper' or 'exact'"):
        epsilon_of_loss(accountant, 1.0, DELTA)
    with pytest.raises(PrivacyError, match="'paper' or 'exact'"):
        loss_for_epsilon(accountant, 1.0, DELTA)
