"""Noise that a converter has rounded, by brute force: what an adversary has of it, and when it is Gaussian noise still.

Units: the converter's step is 1 and the channel's gain 1, so the receiver's noise is s steps.
"""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from fl.errors import PrivacyError
from fl.privacy.coarse_noise import NEGLIGIBLE, added_epsilon, coarseness, least_sent_std
from phy.dither import Dither, dithered, system_words

Array = NDArray[np.float64]


def rounded_density(y: Array, place: float, sent: float, own: float) -> Array:
    """Of round(place + sent noise) + own noise: probabilities of the levels by the normal distribution."""
    levels = np.arange(math.floor(place - 40 * sent) - 1, math.ceil(place + 40 * sent) + 2)
    weights = ndtr((levels + 0.5 - place) / sent) - ndtr((levels - 0.5 - place) / sent)
    bells = np.exp(-(((y[:, None] - levels) / own) ** 2) / 2) / (own * math.sqrt(2 * math.pi))
    return np.asarray(bells @ weights)


def ideal_density(y: Array, place: float, sent: float, own: float) -> Array:
    """Of place + both noises + one that is uniform over a step."""
    std = math.hypot(sent, own)
    return np.asarray(ndtr((y - place + 0.5) / std) - ndtr((y - place - 0.5) / std))


def worst_deviation(sent: float, own: float) -> float:
    """Largest |rounded/ideal - 1| within eight standard deviations, beyond which sums of normal tails lose digits."""
    worst, std = 0.0, math.hypot(sent, own)
    for place in np.linspace(0.0, 0.5, 6):
        y = place + np.linspace(-6.0, 6.0, 2001) * std
        ratio = rounded_density(y, place, sent, own) / ideal_density(y, place, sent, own)
        worst = max(worst, float(np.abs(ratio - 1.0).max()))
    return worst


@pytest.mark.parametrize(("sent", "own"), [(3.0, 0.4), (3.0, 0.6), (20.0, 0.5), (0.9, 0.9), (0.5, 4.0)])
def test_densities_are_within_what_is_said_of_them_and_half_of_it_would_be_refuted(sent: float, own: float) -> None:
    eta = coarseness(1.0, noise_std_real=own, sent_std_real=sent, gain=1.0)
    found = worst_deviation(sent, own)
    assert found <= eta
    if own < sent:
        # With more noise of the receiver than steps of the sender the dither's average makes it smaller still.
        assert found > 0.5 * eta


def test_a_grid_that_is_coarse_hides_nothing_between_its_points() -> None:
    """Noise of 2.5 steps, of the receiver a tenth of one. A change of half a step should be told by nobody in more than
    54 of 100 trials; by what samples are modulo a step it is in 98."""
    rng, step, trials = np.random.default_rng(1), 1.0 / 127, 20_000
    jamming = 2.5 * step * (rng.standard_normal(trials) + 1j * rng.standard_normal(trials))
    sent, _ = dithered(jamming.astype(np.complex64), step, Dither.TRIANGULAR, system_words)
    there = rng.integers(0, 2, trials)
    own = 0.5 * there + 0.1 * rng.standard_normal(trials)
    on_grid, smooth = sent.real / step + own, jamming.real / step + own

    def right(heard: Array) -> float:
        return float(np.mean((np.abs(heard - np.rint(heard)) > 0.25) == there))

    assert right(on_grid) > 0.95
    assert right(smooth) < 0.54
    assert float(ndtr(0.5 / 2.5 / 2)) < 0.541
    # So it is not counted on at all.
    assert coarseness(1.0, noise_std_real=0.1, sent_std_real=2.5, gain=1.0) == 1.0
    assert least_sent_std(1.0, noise_std_real=0.1, gain=1.0, samples=trials) == math.inf


@pytest.mark.parametrize("own", [1.5, 3.0, 30.0])
@pytest.mark.parametrize("samples", [2_000, 500_000])
def test_the_least_noise_adds_next_to_nothing_and_less_would_add_more(own: float, samples: int) -> None:
    least = least_sent_std(1.0, noise_std_real=own, gain=1.0, samples=samples)
    # A few steps, and not many more for a receiver that hardly helps.
    assert 1.0 < least < 5.0
    etas = [coarseness(1.0, noise_std_real=own, sent_std_real=part * least, gain=1.0) for part in (1.0, 0.97)]
    assert added_epsilon(etas[0], samples) <= NEGLIGIBLE * (1 + 1e-6)
    assert added_epsilon(etas[1], samples) > 1.2 * NEGLIGIBLE


def test_steps_that_arrive_small_need_no_more_than_their_own_noise() -> None:
    fine = least_sent_std(1e-3, noise_std_real=1.0, gain=0.1, samples=10_000)
    assert fine == pytest.approx(1e-3 * least_sent_std(1.0, noise_std_real=1e4, gain=1.0, samples=10_000), rel=1e-3)


def test_scenes_without_meaning_are_refused() -> None:
    for wrong in ({"step": 0.0}, {"noise_std_real": 0.0}, {"gain": -1.0}, {"step": math.nan}):
        scene = {"step": 1e-3, "noise_std_real": 1e-2, "gain": 1.0, **wrong}
        with pytest.raises(PrivacyError):
            least_sent_std(scene.pop("step"), samples=100, **scene)
    assert added_epsilon(1.0, 10) == math.inf
    assert coarseness(1.0, noise_std_real=1.0, sent_std_real=0.0, gain=1.0) == 1.0
