"""Oracles: the responses that were put in; the covariance of least squares."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fl.bench.growth.crowd import simulate
from fl.bench.growth.group_sounding import GroupSounding
from phy.errors import SignalError
from phy.fading import circular_noise
from phy.numerology import Numerology

BAND = Numerology(256, 64, 254)
GROUP = GroupSounding(BAND, symbols=8, delays=3, taps=64)


def channels(rng: np.random.Generator, members: int = GROUP.members) -> NDArray[np.complex64]:
    """Rayleigh taps (members, 64), decaying."""
    profile = np.exp(-np.arange(GROUP.taps) / 6.0)
    drawn = rng.standard_normal((2, members, GROUP.taps))
    return np.asarray((drawn[0] + 1j * drawn[1]) * np.sqrt(profile / (2 * profile.sum())), np.complex64)


def received(taps: NDArray[np.complex64], members: list[int] | None = None) -> NDArray[np.complex64]:
    responses = GROUP.responses(taps)
    chosen = range(GROUP.members) if members is None else members
    return np.asarray(sum(GROUP.cells(member) * responses[place] for place, member in enumerate(chosen)))


def test_members_are_told_apart() -> None:
    taps = channels(np.random.default_rng(1))
    estimated = GROUP.estimate(received(taps))
    assert np.max(np.abs(estimated - taps)) < 1e-4
    # With another member's place the same signal is another's channel.
    assert np.max(np.abs(np.roll(estimated, 1, axis=0) - taps)) > 0.3


def test_two_with_one_code_are_not_told_apart() -> None:
    taps = channels(np.random.default_rng(2), 2)
    estimated = GROUP.estimate(received(taps, [5, 5]))[5]
    assert np.max(np.abs(estimated - taps.sum(axis=0))) < 1e-4


def test_errors_have_the_variance_of_least_squares_and_no_other() -> None:
    noise_var, trials = 0.01, 200
    rng = np.random.default_rng(3)
    shape = (trials, GROUP.symbols, BAND.data_subcarriers)
    noise = circular_noise(int(np.prod(shape)), noise_var / 2, rng).reshape(shape)
    errors = np.stack([GROUP.estimate(one) for one in noise])
    measured = np.mean(np.abs(errors.reshape(trials, GROUP.symbols, GROUP.delays, GROUP.taps)) ** 2)
    expected = GROUP.tap_var(noise_var).mean()
    # Independent exponentials at the least: one for each symbol's row and trial.
    deviation = 5 / np.sqrt(trials * GROUP.symbols)
    assert measured == pytest.approx(expected, rel=deviation)
    assert measured != pytest.approx(2 * expected, rel=deviation)


def test_a_turning_phase_mixes_members() -> None:
    taps = channels(np.random.default_rng(4))
    still = received(taps)
    turning = still * np.exp(2j * np.pi * 0.01 * np.arange(GROUP.symbols))[:, None].astype(np.complex64)
    errors = np.abs(GROUP.estimate(turning) - GROUP.estimate(still))
    assert np.max(errors) > 0.01


@pytest.mark.parametrize("wrong", [{"symbols": 12}, {"delays": 4}, {"taps": 100}, {"delays": 0}])
def test_sizes_that_cannot_be_told_apart_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SignalError):
        GroupSounding(BAND, **wrong)


def test_a_crowd_on_one_clock_is_as_good_as_each_alone_and_worse_on_many() -> None:
    still, turning = (simulate(48, offset_hz, np.random.default_rng(5), symbols=16) for offset_hz in (0.0, 100.0))
    assert still.error_db == pytest.approx(still.alone_db, abs=1.5)
    assert turning.error_db > turning.alone_db + 6
