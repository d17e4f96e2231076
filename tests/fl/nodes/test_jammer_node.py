"""The jammer: noise that nobody can predict, that arrives everywhere, and that is never less than promised."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fl.errors import PrivacyError
from fl.nodes.air import AirFormat
from fl.nodes.jammer import JammerNode, system_noise
from fl.nodes.messages import JammingOrder, Transmit
from hardware.errors import TxClippingError
from phy.fading import circular_noise
from phy.modem import demodulate
from tests.fl.nodes.radios import NUMEROLOGY, SYMBOL, Recorder, state_of, transmitter_of

AIR = AirFormat(NUMEROLOGY, 200 * SYMBOL)


def variance_p_value(values: NDArray[np.floating], variance: float) -> float:
    """Two-sided chi-square test of a known variance, mean zero."""
    lower = float(stats.chi2.cdf(np.sum(np.square(values, dtype=np.float64)) / variance, values.size))
    return 2 * min(lower, 1 - lower)


def seeded(cells: int) -> NDArray[np.complex64]:
    return circular_noise(cells, 1.0, np.random.default_rng(7))


def jammer_of(noise: Callable[[int], NDArray[np.complex64]] = seeded) -> tuple[JammerNode, Recorder]:
    radio = Recorder()
    return JammerNode(transmitter_of(radio, AIR), noise), radio


def test_system_noise_is_a_unit_gaussian_on_both_axes() -> None:
    """The operating system's randomness cannot be seeded, so a right implementation fails here with probability 4e-6:
    four p-values, each below 1e-6. 400,000 values an axis reject a standard deviation that is 3 % off, and one that has
    the variance on the cell instead of the axis, beyond 25 standard deviations."""
    noise = system_noise(400_000)
    assert (noise.shape, noise.dtype) == ((400_000,), np.complex64)
    for axis in (noise.real, noise.imag):
        assert variance_p_value(axis, 1.0) > 1e-6
        assert stats.kstest(axis, "norm").pvalue > 1e-6
        for wrong in (0.97, 1.03, math.sqrt(0.5), math.sqrt(2.0)):
            assert variance_p_value(axis, wrong**2) < 1e-9


def test_system_noise_is_circular_and_white() -> None:
    """|correlation| of n independent pairs has standard deviation 1/sqrt(n): five of them are a chance of 6e-7."""
    count = 200_000
    noise = system_noise(count).astype(np.complex128)
    real, imag = noise.real, noise.imag
    for first, second in ((real, imag), (real[1:], real[:-1]), (imag[1:], imag[:-1]), (real[1:], imag[:-1])):
        assert abs(np.corrcoef(first, second)[0, 1]) < 5 / math.sqrt(count)
    # Circular in every moment, not in the second alone: the angle is uniform and independent of the radius.
    turns = np.angle(noise) / (2 * np.pi) + 0.5
    assert stats.kstest(turns, "uniform").pvalue > 1e-6
    assert abs(np.corrcoef(np.abs(noise), turns)[0, 1]) < 5 / math.sqrt(count)


def test_system_noise_has_tails() -> None:
    """P(|z| > 4.5) = exp(-4.5^2/2) = 4.0e-5: 40 of a million, by Poisson between 10 and 80 but for 1e-7."""
    assert 10 < np.count_nonzero(np.abs(system_noise(1_000_000)) > 4.5) < 80


def test_system_noise_is_never_the_same_and_no_seed_changes_that(monkeypatch: pytest.MonkeyPatch) -> None:
    import random

    def once(seed: int) -> NDArray[np.complex64]:
        np.random.seed(seed)  # noqa: NPY002 - the point is that it has no influence
        random.seed(seed)
        return system_noise(64)

    draws = [once(1), once(1), once(2)]
    for first in range(3):
        for second in range(first):
            assert not np.any(draws[first] == draws[second])
    # It comes from the operating system and from nowhere else.
    monkeypatch.setattr("os.urandom", lambda count: bytes(range(256)) * (count // 256))
    np.testing.assert_array_equal(system_noise(64), system_noise(64))


def test_system_noise_is_the_default() -> None:
    assert JammerNode(transmitter_of(Recorder(), AIR)).noise is system_noise


def selective() -> NDArray[np.complex128]:
    """12 dB between the strongest subcarrier and the weakest."""
    return np.asarray(0.25 * (1 + 0.6 * np.exp(-2j * np.pi * NUMEROLOGY.used_frequencies * 9)))


def test_the_promised_noise_arrives_on_every_subcarrier() -> None:
    """Through a selective channel that was measured without error: variance r^2 per axis, at each subcarrier, within
    the bound's own margin. 77,000 values: 0.26 % standard deviation of the whole's standard deviation; 400 of each
    subcarrier. Accepted where it is right, refused where it is 3 % off."""
    promised = 0.01
    channel = selective()
    jammer, radio = jammer_of()
    decision = jammer.decide(JammingOrder(promised, state_of(channel)))
    jammer.transmit(Transmit(0))
    cells = demodulate(radio.sent[0][1], NUMEROLOGY).astype(np.complex128) * channel
    # The margin is known: |H| over its lower bound, here the estimator's bias alone.
    floor = np.abs(channel) - 1e-3 * math.sqrt(np.mean(np.abs(channel) ** 2))
    margin = np.abs(channel) / floor
    assert margin.max() < 1.005
    values = (cells / margin).reshape(-1).view(np.float64)
    assert variance_p_value(values, promised**2) > 1e-3
    for wrong in (0.97, 1.03, math.sqrt(0.5), math.sqrt(2)):
        assert variance_p_value(values, (wrong * promised) ** 2) < 1e-9
    for subcarrier in cells.T:
        # Never less than promised, on I and on Q.
        for axis in (subcarrier.real, subcarrier.imag):
            assert stats.chi2.cdf(np.sum(axis**2) / promised**2, axis.size) > 1e-6
    assert decision.alpha == pytest.approx(promised / floor.min(), rel=1e-5)
    assert decision.gain_lower == pytest.approx(floor.min(), rel=1e-5)
    assert abs(np.corrcoef(values[0::2], values[1::2])[0, 1]) < 5 / math.sqrt(values.size / 2)


@pytest.mark.parametrize("std", [1e-3, 1e-2])
def test_a_channel_as_weak_as_its_measurement_allows_still_brings_the_noise(std: float) -> None:
    """a[k] (|H^[k]| - q std) = r: whatever the channel really is within the error, at least r arrives."""
    channel = selective()
    jammer, radio = jammer_of(lambda cells: np.ones(cells, np.complex64))
    jammer.decide(JammingOrder(0.002, state_of(channel, std)))
    jammer.transmit(Transmit(0))
    amplitudes = np.abs(demodulate(radio.sent[0][1], NUMEROLOGY)).mean(axis=0)
    worst = np.abs(channel) - AIR.error_quantile() * std
    assert np.all(amplitudes * worst >= 0.002 * (1 - 1e-5))
    # And not much more: the margin is the error's.
    assert np.all(amplitudes * worst <= 0.002 * (1 + 1e-2))


@pytest.mark.parametrize("weak", [0.0, 1e-4, 0.034])
def test_a_jammer_that_cannot_be_heard_everywhere_is_no_jammer(weak: float) -> None:
    """One subcarrier within q std = 0.035 of nothing is enough: an update may lie on it alone."""
    channel = selective()
    channel[100] = weak
    jammer, radio = jammer_of()
    with pytest.raises(PrivacyError, match="no client may send"):
        jammer.decide(JammingOrder(0.02, state_of(channel, 0.01)))
    with pytest.raises(PrivacyError, match="without an order"):
        jammer.transmit(Transmit(0))
    assert radio.sent == []


def test_an_order_is_good_for_one_burst() -> None:
    jammer, radio = jammer_of(system_noise)
    for number in range(2):
        jammer.decide(JammingOrder(0.02, state_of(selective())))
        jammer.transmit(Transmit(number))
        with pytest.raises(PrivacyError, match="without an order"):
            jammer.transmit(Transmit(number))
    (_, first), (_, second) = radio.sent
    assert abs(np.vdot(first, second)) < 5 * math.sqrt(first.size) * np.mean(np.abs(first) ** 2)


def test_noise_that_would_clip_is_not_sent() -> None:
    """Shortened samples would be less noise than the ledger says, and not Gaussian."""
    jammer, radio = jammer_of()
    jammer.decide(JammingOrder(2.0, state_of(selective())))
    with pytest.raises(TxClippingError):
        jammer.transmit(Transmit(0))
    assert radio.sent == []
