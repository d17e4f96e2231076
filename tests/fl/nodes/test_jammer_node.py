"""The jammer: noise that nobody can predict, that arrives everywhere, and that is never less than promised."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fl.errors import PrivacyError
from fl.nodes.air_format import AirFormat
from fl.nodes.jammer import JammerNode, Jamming, system_noise
from fl.nodes.messages import Announcement, JammingOrder, Sent, Transmit
from fl.nodes.precoding import noise_gain_lower
from hardware.radio.errors import TxClippingError
from phy.fading import circular_noise
from tests.fl.nodes.radios import BAND, NUMEROLOGY, SYMBOL, Recorder, state_of, transmitter_of

AIR = AirFormat(NUMEROLOGY, 200 * SYMBOL)


def variance_p_value(values: NDArray[np.floating], variance: float) -> float:
    """Two-sided chi-square test of a known variance, mean zero."""
    lower = float(stats.chi2.cdf(np.sum(np.square(values, dtype=np.float64)) / variance, values.size))
    return 2 * min(lower, 1 - lower)


def seeded(count: int) -> NDArray[np.complex64]:
    return circular_noise(count, 1.0, np.random.default_rng(7))


def jammer_of(noise: Callable[[int], NDArray[np.complex64]] = seeded) -> tuple[Jamming, Recorder]:
    radio = Recorder()
    return Jamming(transmitter_of(radio, AIR), lambda block: noise), radio


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


def test_the_noise_that_is_never_drawn_matters_to_no_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest words there are give the largest radius r. What lies beyond, P(|z| > r) = exp(-r^2/2), times 200,000
    samples, 1,000 uplinks and e^40, is below a thousandth of a delta of 1e-5; beyond 6.7, of 32 bits, it is not."""
    monkeypatch.setattr("fl.nodes.jammer.os.urandom", bytes)
    largest = float(np.abs(system_noise(1))[0])
    assert largest == pytest.approx(math.sqrt(2.0 * 129.0 * math.log(2.0)), rel=1e-6)
    assert 200_000 * 1_000 * math.exp(40.0 - largest**2 / 2.0) < 1e-8
    assert 200_000 * math.exp(-(6.7**2) / 2.0) > 1e-5


def test_small_words_take_more_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: a radius from the words 3 and 2^63 is sqrt(-2 log(3.5/2^64))."""
    supply = iter([(3).to_bytes(8, "little"), (1 << 63).to_bytes(8, "little"), bytes(4)])
    monkeypatch.setattr("fl.nodes.jammer.os.urandom", lambda count: next(supply))
    assert system_noise(1)[0] == pytest.approx(math.sqrt(-2.0 * math.log(3.5 / 2.0**64)), rel=1e-6)


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
    assert Jamming(transmitter_of(Recorder(), AIR)).noise_for(1000) is system_noise


def test_a_node_that_only_jams() -> None:
    """It answers orders to jam and to transmit, each sounding with its own noise, and nothing that is for a client."""
    blocks: list[int] = []

    def noise_for(block: int) -> Callable[[int], NDArray[np.complex64]]:
        blocks.append(block)
        return seeded

    radio = Recorder()
    transmitter = transmitter_of(radio, AIR)
    node = JammerNode(transmitter, Jamming(transmitter, noise_for))
    for block in (1000, 1001):
        assert node.answer(JammingOrder(0.02, state_of(selective()), block)).alpha > 0
        assert node.answer(Transmit(5)) == Sent(radio.sent[-1][1].size)
    assert blocks == [1000, 1001]
    with pytest.raises(PrivacyError, match="told Announcement, which is not for it"):
        node.answer(Announcement(1.0, state_of(selective()), 0, 1, 1e-3, 0))


TAPS = [0.25, 0, 0, 0, 0, 0, 0, 0, 0, 0.15]


def selective() -> NDArray[np.complex128]:
    """12 dB between the strongest subcarrier and the weakest."""
    return np.asarray(0.25 * (1 + 0.6 * np.exp(-2j * np.pi * BAND.used_frequencies * 9)))


def heard(burst: tuple[int, NDArray[np.complex64]]) -> NDArray[np.complex128]:
    """Samples behind `TAPS`, from where the jammer's filter has settled to where it ends."""
    frame = AIR.payload
    samples = np.convolve(burst[1].astype(np.complex128), TAPS)
    settled = slice(frame.tail_samples, frame.jamming_slice.stop - frame.jamming_slice.start - frame.tail_samples)
    return np.asarray(samples[settled])


def test_the_noise_covers_the_payload_and_its_margins() -> None:
    jammer, radio = jammer_of()
    jammer.decide(JammingOrder(0.01, state_of(selective()), 1000))
    jammer.transmit(Transmit(50_000))
    start, samples = radio.sent[0]
    frame = AIR.payload
    assert start == 50_000 - frame.margin_samples
    assert samples.size == frame.length - 2 * frame.quiet_samples


def test_the_promised_noise_arrives_white() -> None:
    """Through a selective channel that was measured without error: variance r^2 per axis in every band of frequencies
    that a payload has, within the bound's own margin, and no sample depends on another. The whole is accepted where it
    is right, and refused where it is 3 % off."""
    promised = 0.01
    jammer, radio = jammer_of()
    decision = jammer.decide(JammingOrder(promised, state_of(selective()), 1000))
    jammer.transmit(Transmit(0))
    samples = heard(radio.sent[0])
    blocks = samples[: samples.size // 256 * 256].reshape(-1, 256)
    cells = np.fft.fft(blocks, norm="ortho")[:, NUMEROLOGY.used_bins]
    margin = 1 / noise_gain_lower(state_of(selective()), AIR)
    assert 1 < margin < 1.02
    values = (cells / margin).reshape(-1).view(np.float64)
    assert variance_p_value(values, promised**2) > 1e-3
    for wrong in (0.97, 1.03, math.sqrt(0.5), math.sqrt(2)):
        assert variance_p_value(values, (wrong * promised) ** 2) < 1e-9
    for subcarrier in cells.T:
        # Never less than promised, on I and on Q.
        for axis in (subcarrier.real, subcarrier.imag):
            assert stats.chi2.cdf(np.sum(axis**2) / promised**2, axis.size) > 1e-6
    assert decision.alpha * decision.gain_lower == pytest.approx(promised, rel=1e-9)
    assert decision.gain_lower == pytest.approx(0.1, rel=0.05)
    # Nothing of it comes twice, as a prefix would: |correlation| at each lag within five of its deviations, but for the
    # few lags that the transition of the band takes.
    spectrum = np.fft.fft(samples, 2 * samples.size)
    correlation = np.abs(np.fft.ifft(np.abs(spectrum) ** 2))[: samples.size // 2]
    assert correlation[40:].max() < 6 * correlation[0] / math.sqrt(samples.size)


@pytest.mark.parametrize("std", [1e-3, 3e-3])
def test_a_channel_as_weak_as_its_measurement_allows_still_brings_the_noise(std: float) -> None:
    """The level is raised by what the channel may be weaker than its estimate, at its weakest frequency: 0.1."""
    jammer, radio = jammer_of()
    decision = jammer.decide(JammingOrder(0.002, state_of(selective(), std), 1000))
    assert decision.gain_lower == pytest.approx(0.1 - AIR.error_quantile() * std, rel=0.05)
    jammer.transmit(Transmit(0))
    # A channel that is weaker by the whole error, everywhere, still brings it.
    samples = heard(radio.sent[0])
    blocks = samples[: samples.size // 256 * 256].reshape(-1, 256)
    found = np.mean(np.abs(np.fft.fft(blocks, norm="ortho")) ** 2, axis=0)[NUMEROLOGY.used_bins] / 2
    known = np.isin(BAND.used_subcarriers, NUMEROLOGY.used_subcarriers)
    strength = np.abs(selective()[known])
    weaker = found * (1 - AIR.error_quantile() * std / strength) ** 2
    assert np.all(stats.chi2.cdf(2 * len(blocks) * weaker / 0.002**2, 2 * len(blocks)) > 1e-6)
    assert np.mean(weaker) < 1.05 * 0.002**2


@pytest.mark.parametrize("std", [0.03, 0.1])
def test_a_jammer_that_cannot_be_heard_everywhere_is_no_jammer(std: float) -> None:
    """One frequency within q std of nothing is enough: an update may lie on it alone."""
    jammer, radio = jammer_of()
    with pytest.raises(PrivacyError, match="no client may send"):
        jammer.decide(JammingOrder(0.02, state_of(selective(), std), 1000))
    with pytest.raises(PrivacyError, match="without an order"):
        jammer.transmit(Transmit(0))
    assert radio.sent == []


def test_an_order_is_good_for_one_burst() -> None:
    jammer, radio = jammer_of(system_noise)
    for number in range(2):
        jammer.decide(JammingOrder(0.02, state_of(selective()), 1000))
        jammer.transmit(Transmit(number))
        with pytest.raises(PrivacyError, match="without an order"):
            jammer.transmit(Transmit(number))
    (_, first), (_, second) = radio.sent
    assert abs(np.vdot(first, second)) < 5 * math.sqrt(first.size) * np.mean(np.abs(first) ** 2)


def test_noise_that_would_clip_is_not_sent() -> None:
    """Shortened samples would be less noise than the ledger says, and not Gaussian."""
    jammer, radio = jammer_of()
    jammer.decide(JammingOrder(2.0, state_of(selective()), 1000))
    with pytest.raises(TxClippingError):
        jammer.transmit(Transmit(0))
    assert radio.sent == []
