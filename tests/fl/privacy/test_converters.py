"""The charge for rounding against brute force: numerical integration over what a converter sends, plus noise.

Units: the converter's step is 1 and the channel's gain 1, so noise has the standard deviation 1/ratio.
"""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.interpolate import BSpline
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri_exp

from fl.errors import PrivacyError
from fl.privacy.converters import (
    LARGEST_EPSILON,
    SIGMAS,
    choose_dither,
    gain_excess,
    kappa,
    rounding_distance,
    tail_delta,
    tail_probability,
)
from phy.dither import Dither
from phy.impairments import quantise

Array = NDArray[np.float64]
_TRIANGLE = BSpline.basis_element(np.arange(4) - 1.5, extrapolate=False)
_SLOPE = _TRIANGLE.derivative()
_PAIR = np.convolve(np.full(256, 1 / 256), np.full(256, 1 / 256))
_BYTES = np.convolve(_PAIR, _PAIR)
_OFFSETS = (np.arange(_BYTES.size) - (_BYTES.size - 1) / 2) / 256
RATIOS = {Dither.TRIANGULAR: (0.03, 0.1, 0.3), Dither.SMOOTH: (0.1, 0.3, 0.7, 1.5)}
CASES = [(dither, ratio) for dither in Dither for ratio in RATIOS[dither]]


def law(place: float, dither: Dither) -> tuple[Array, Array, Array]:
    """Levels, their probabilities for a value at `place`, and how these change with it: bytes exactly as drawn."""
    levels = np.floor(place) + np.arange(-dither - 1.0, dither + 2.0)
    if dither is Dither.TRIANGULAR:
        return levels, np.nan_to_num(_TRIANGLE(levels - place)), -np.nan_to_num(_SLOPE(levels - place))
    distances = levels[:, None] - place - _OFFSETS
    return levels, np.nan_to_num(_TRIANGLE(distances)) @ _BYTES, -np.nan_to_num(_SLOPE(distances)) @ _BYTES


def score(place: float, threshold: Array, dither: Dither, ratio: float) -> Array:
    """Phi^-1 of the probability to be below each threshold, exact in both tails."""
    levels, weights, _ = law(place, dither)
    used = weights > 0
    distances = (threshold[:, None] - levels[used]) * ratio
    below = logsumexp(log_ndtr(distances), b=weights[used], axis=1)
    above = logsumexp(log_ndtr(-distances), b=weights[used], axis=1)
    return np.asarray(np.where(below < above, ndtri_exp(np.minimum(below, 0.0)), -ndtri_exp(np.minimum(above, 0.0))))


def worst_movement(dither: Dither, ratio: float) -> float:
    """Largest change of Phi^-1(P(y < c)) over x, c and distances small and large, relative to distance/noise.

    The likelihood ratio is monotonous in y (B-splines and Gaussians are totally positive): thresholds are all tests.
    """
    worst = 0.0
    for place in np.linspace(0.0, 1.0, 33):
        thresholds = place + np.linspace(-(SIGMAS + 1), SIGMAS + 1, 801) / ratio
        before = score(place, thresholds, dither, ratio)
        for distance in (1e-3, 0.03, 0.3, 1.0, 3.0):
            after = score(place + distance, thresholds, dither, ratio)
            inside = (np.abs(before) < SIGMAS) & (np.abs(after) < SIGMAS)
            worst = max(worst, float((before - after)[inside].max()) / (distance * ratio))
    return worst


@pytest.mark.parametrize(("dither", "ratio"), CASES)
def test_no_test_separates_neighbours_better_than_charged(dither: Dither, ratio: float) -> None:
    assert worst_movement(dither, ratio) <= 1.0 + kappa(dither, ratio)


@pytest.mark.parametrize("ratio", [0.1, 0.3])
def test_a_charge_that_is_too_small_is_found_out(ratio: float) -> None:
    assert worst_movement(Dither.TRIANGULAR, ratio) > 1.0 + 0.5 * kappa(Dither.TRIANGULAR, ratio)


def density(place: float, y: Array, dither: Dither, ratio: float) -> tuple[Array, Array]:
    """f_x(y), and how it changes when it is not moved along with x."""
    levels, weights, slopes = law(place, dither)
    u = (y[:, None] - levels) * ratio
    bell = np.exp(-u * u / 2) * ratio / math.sqrt(2 * math.pi)
    return bell @ weights, bell @ slopes - (bell * u * ratio) @ weights


def brute_kappa(dither: Dither, ratio: float, places: Array) -> float:
    """kappa by its definition: events by falling change relative to the density."""
    worst = 0.0
    for place in places:
        y = place + np.linspace(-(SIGMAS + 1.5) / ratio - dither, (SIGMAS + 1.5) / ratio + dither, 6001)
        f, change = density(place, y, dither, ratio)
        rising = np.argsort(change / f)
        for sign, order in ((-1.0, rising), (1.0, rising[::-1])):
            probability = np.cumsum(f[order]) * (y[1] - y[0])
            z = -ndtri_exp(np.log(probability[probability < 0.5]))
            moved = sign * np.cumsum(change[order])[probability < 0.5] * (y[1] - y[0])
            inside = z < SIGMAS
            gaussian = np.exp(-(z[inside] ** 2) / 2) / math.sqrt(2 * math.pi)
            worst = max(worst, float((moved[inside] / gaussian).max()) / ratio)
    return worst


@pytest.mark.parametrize(
    ("dither", "ratio"),
    [
        *((Dither.TRIANGULAR, ratio) for ratio in (0.012, 0.024, 0.082, 0.12, 0.31, 0.4)),
        *((Dither.SMOOTH, ratio) for ratio in (0.012, 0.055, 0.12, 0.24, 0.52, 1.1, 1.75)),
    ],
)
def test_the_table_is_an_upper_bound_between_its_points_too(dither: Dither, ratio: float) -> None:
    """Other phases than the table was made at; and it is not so far above that it could be left out."""
    found = brute_kappa(dither, ratio, np.linspace(0.0, 0.5, 23) + 0.3 / 256)
    assert found <= kappa(dither, ratio) <= 4.0 * found


@pytest.mark.parametrize(("dither", "ratio"), [(Dither.TRIANGULAR, 0.1), (Dither.SMOOTH, 0.15), (Dither.SMOOTH, 1.0)])
def test_half_of_the_table_is_refuted(dither: Dither, ratio: float) -> None:
    assert brute_kappa(dither, ratio, np.linspace(0.0, 0.5, 33)) > 0.5 * kappa(dither, ratio)


def log_density(place: float, y: Array, dither: Dither, ratio: float) -> Array:
    levels, weights, _ = law(place, dither)
    used = weights > 0
    bells = -(((y[:, None] - levels[used]) * ratio) ** 2) / 2 + math.log(ratio / math.sqrt(2 * math.pi))
    return np.asarray(logsumexp(bells, b=weights[used], axis=1))


@pytest.mark.parametrize(("dither", "ratio"), CASES)
@pytest.mark.parametrize("order", [1.5, 4.0, 16.0])
def test_renyi_divergences_are_within_the_charge(dither: Dither, ratio: float, order: float) -> None:
    """D_order <= order mu^2/2, what a Gaussian mechanism with the charged mu has, by integration."""
    for place in np.linspace(0.0, 1.0, 9):
        for distance in (0.02, 0.5, 2.0):
            if order * distance * ratio > 0.6 * SIGMAS:
                continue
            y = place + np.linspace(-(SIGMAS + 4) / ratio - 3, (SIGMAS + 4) / ratio + 3, 20_001)
            p, q = (log_density(at, y, dither, ratio) for at in (place, place + distance))
            total = float(logsumexp(order * p + (1 - order) * q)) + math.log(y[1] - y[0])
            divergence = total / (order - 1)
            mu = (1 + kappa(dither, ratio)) * distance * ratio
            assert divergence <= order * mu**2 / 2 + 1e-9


def hockey_sticks(p: Array, q: Array, area: float, gammas: Array) -> Array:
    return np.array([float(np.sum(np.maximum(p - gamma * q, 0.0))) * area for gamma in gammas])


def gaussian_hockey_sticks(mu: float, gammas: Array) -> Array:
    return np.asarray(ndtr(mu / 2 - np.log(gammas) / mu) - gammas * ndtr(-mu / 2 - np.log(gammas) / mu))


def neighbours_through(matrix: Array, places: Array, change: Array, dither: Dither, y: Array) -> Iterator[Array]:
    """Densities of matrix @ (two rounded values) + unit noise on the grid y x y, for both neighbours."""
    for at in (places, places + change):
        (a, pa, _), (b, pb, _) = (law(float(place), dither) for place in at)
        total = np.zeros((y.size, y.size))
        for level_a, weight_a in zip(a, pa, strict=True):
            for level_b, weight_b in zip(b, pb, strict=True):
                centre = matrix @ np.array([level_a, level_b])
                bells = [np.exp(-((y - middle) ** 2) / 2) / math.sqrt(2 * math.pi) for middle in centre]
                total += weight_a * weight_b * np.outer(*bells)
        yield total


@pytest.mark.parametrize("dither", Dither)
@pytest.mark.parametrize("places", [(0.1, 0.4), (0.5, 0.9)])
def test_samples_that_a_channel_mixes(dither: Dither, places: tuple[float, float]) -> None:
    """Neighbours that all but cancel in what arrives: mu <= ||C a|| + kappa ||C|| ||a||, checked for all gammas."""
    step = 0.3
    matrix = step * np.array([[1.0, 0.7], [0.7, 1.0]]) / 1.7
    gain = float(np.linalg.norm(matrix, 2))
    assert gain == pytest.approx(step)
    y, gammas = np.linspace(-9.0, 9.0, 361), np.exp(np.linspace(-3.0, 3.0, 13))
    for change in (np.array([0.5, -0.5]), np.array([1.0, -0.6]), np.array([0.4, 0.3])):
        p, q = neighbours_through(matrix, np.array(places), change, dither, y)
        mu = float(np.linalg.norm(matrix @ change)) + kappa(dither, gain) * gain * float(np.linalg.norm(change))
        for first, second in ((p, q), (q, p)):
            found = hockey_sticks(first, second, (y[1] - y[0]) ** 2, gammas)
            assert np.all(found <= gaussian_hockey_sticks(mu, gammas) + 1e-9)


def test_one_record_through_twelve_bits_costs_what_is_charged_and_not_twice_that() -> None:
    """A change of a twentieth of a step in every sample: rounding alone makes of it more than three times as much."""
    rng = np.random.default_rng(1)
    x = (200 * (rng.standard_normal(20_000) + 1j * rng.standard_normal(20_000)) / 2047).astype(np.complex64)
    change = (0.05 * (rng.standard_normal(20_000) + 1j * rng.standard_normal(20_000)) / 2047).astype(np.complex64)
    moved = quantise(x + change, 12)[0] - quantise(x, 12)[0]
    assert np.linalg.norm(moved) > 3 * np.linalg.norm(change)
    loss = float(np.linalg.norm(change)) + rounding_distance(1 / 2047, x.size, 1.0)
    assert np.linalg.norm(moved) <= loss
    assert gain_excess(Dither.SMOOTH, 1 / 2047, gain=1.0, inverse_gain=1.0, noise_std_real=4e-3) < 1e-3


@pytest.mark.parametrize("dither", Dither)
def test_the_charge_grows_with_the_step_and_ends_where_nothing_is_known(dither: Dither) -> None:
    ratios = np.geomspace(1e-4, 2.5, 60)
    charges = [kappa(dither, float(ratio)) for ratio in ratios]
    assert np.all(np.diff([min(charge, 1e9) for charge in charges]) >= 0)
    assert kappa(dither, 0.0) == 0.0
    assert kappa(dither, 2.5) == math.inf


def test_the_smoother_dither_is_chosen_where_it_pays() -> None:
    scene = {"gain": 0.5, "noise_std_real": 2e-3}
    assert choose_dither(2e-5, inverse_gain=2.0, **scene) is Dither.TRIANGULAR
    assert choose_dither(2e-5, inverse_gain=100.0, **scene) is Dither.SMOOTH
    assert choose_dither(1 / 2047, inverse_gain=2.0, **scene) is Dither.SMOOTH


def test_what_is_left_out_is_small_and_said() -> None:
    assert 0 < tail_probability(1_000_000) < 1e-16
    assert tail_probability(200) == 2 * tail_probability(100)
    # For a claim of epsilon 30, in 1,000 uplinks of 200,000 samples: less than a thousandth of a delta of 1e-7.
    assert 1_000 * tail_delta(200_000) < 1e-10
    assert tail_delta(100) == pytest.approx(tail_probability(100) * math.exp(LARGEST_EPSILON), rel=1e-6)


@pytest.mark.parametrize("dither", Dither)
@pytest.mark.parametrize("ratio", [0.2, 0.4])
def test_without_tails_neighbours_are_no_further_apart_than_a_step_more(dither: Dither, ratio: float) -> None:
    """Every event, however rare: Phi^-1(P(S)) moves by no more than the distance and a step, 30 deviations out. Where
    that is far out of kappa's reach, kappa itself is broken: that is why there are two bounds."""
    broken = False
    for place in np.linspace(0.0, 1.0, 17):
        thresholds = place + np.linspace(-30.0, 30.0, 601) / ratio
        for distance in (0.05, 0.5, 2.0, 7.0):
            moved = score(place, thresholds, dither, ratio) - score(place + distance, thresholds, dither, ratio)
            assert moved.max() <= (distance + 1.0) * ratio + 1e-9
            broken |= bool(moved.max() > (1.0 + kappa(dither, ratio)) * distance * ratio)
    assert broken


@pytest.mark.parametrize(
    "wrong", [{"step": 0.0}, {"noise_std_real": 0.0}, {"gain": -1.0}, {"inverse_gain": math.nan}, {"step": math.nan}]
)
def test_scenes_without_meaning_are_refused(wrong: dict[str, float]) -> None:
    scene = {"step": 1e-3, "gain": 1.0, "inverse_gain": 1.0, "noise_std_real": 1e-2, **wrong}
    with pytest.raises(PrivacyError):
        gain_excess(Dither.TRIANGULAR, scene.pop("step"), **scene)
    with pytest.raises(PrivacyError):
        kappa(Dither.TRIANGULAR, math.nan)
