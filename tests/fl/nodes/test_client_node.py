"""A client: power from its own channel, within its limit, and an update that arrives undistorted."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.nodes.air import AirFormat
from fl.nodes.client import ClientNode
from fl.nodes.messages import Announcement, Decision, Sound, SoundedChannel, Transmit
from fl.nodes.transmitter import ESTIMATOR_BIAS, gains_lower, relative_gain_upper
from fl.privacy.clipping import BoundedUpdate, clip_update
from fl.uplink.modes import Backoff
from phy.impairments import rotate
from phy.modem import demodulate
from tests.fl.nodes.radios import NUMEROLOGY, SYMBOL, TAU, Recorder, state_of, transmitter_of

AIR = AirFormat(NUMEROLOGY, 3 * SYMBOL)
WEIGHT = 0.3


def channel_of(seed: int, floor: float = 0.0) -> NDArray[np.complex128]:
    """A frequency-selective channel: six random taps; no subcarrier weaker than `floor`."""
    rng = np.random.default_rng(seed)
    taps = rng.standard_normal((6, 2)) @ [1, 1j] / 4
    channel = np.exp(-2j * np.pi * NUMEROLOGY.used_frequencies[:, None] * np.arange(6)) @ taps
    return np.asarray(channel * np.maximum(1.0, floor / np.abs(channel)))


def client_of(
    state: SoundedChannel, alpha_u: float, *, backoff: Backoff = Backoff.WORST_CASE, air: AirFormat = AIR
) -> tuple[ClientNode, Recorder]:
    """A client that has decided, and its radio."""
    radio = Recorder()
    node = ClientNode(transmitter_of(radio, air), WEIGHT, TAU, backoff)
    node.decide(Announcement(alpha_u, state, 1000, 500))
    return node, radio


def update_of(norm: float = TAU, seed: int = 1, air: AirFormat = AIR) -> BoundedUpdate:
    values = np.random.default_rng(seed).standard_normal(air.coordinates)
    return clip_update((values * (norm / np.linalg.norm(values))).astype(np.float32), TAU)


def arrived(radio: Recorder, channel: NDArray[np.complex128], air: AirFormat = AIR) -> NDArray[np.float64]:
    """Coordinates that a noiseless server would read."""
    cells = demodulate(radio.sent[-1][1], air.numerology) * channel
    return air.grid.to_coordinates(cells.astype(np.complex64)).astype(np.float64)


def decided(state: SoundedChannel, alpha_u: float, start: int = 1000, samples: int = 500) -> Decision:
    node = ClientNode(transmitter_of(Recorder(), AIR), WEIGHT, TAU)
    return node.decide(Announcement(alpha_u, state, start, samples))


def test_an_update_arrives_as_its_share() -> None:
    """sum over the air of x_i H_i = alpha_u p_i u_i / (tau s_i), for a channel with all phases. Float32's accuracy."""
    channel = channel_of(3, floor=0.1)
    for alpha_u in (0.5, 500.0):
        node, radio = client_of(state_of(channel), alpha_u)
        update = update_of(norm=0.7 * TAU)
        sent = node.transmit(update, Transmit(12_345))
        assert (radio.sent[0][0], sent.samples) == (12_345, AIR.grid.symbols * NUMEROLOGY.symbol_samples)
        if sent.clipped_samples == 0:
            expected = alpha_u * WEIGHT / (TAU * node.backoff_for(update)) * update.values.astype(np.float64)
            np.testing.assert_allclose(arrived(radio, channel), expected, atol=2e-6 * np.abs(expected).max())


def test_back_off_is_that_of_the_weakest_subcarrier() -> None:
    """s = max(1, alpha_u p / (min|H| sqrt(P))): a client with one notch must be as quiet as the notch needs."""
    channel = np.full(192, 0.5 + 0.5j)
    channel[17] = 0.01j
    limit = AIR.energy_limit
    needs = WEIGHT / (0.01 * math.sqrt(limit))
    assert decided(state_of(channel), 2.5 / needs).backoff == pytest.approx(2.5)
    assert decided(state_of(channel), 0.99 / needs).backoff == 1.0
    flat = np.full(192, 0.5 + 0.5j)
    assert decided(state_of(flat), 2.5 / needs).backoff == 1.0


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    alpha_db=st.floats(-40, 60),
    length=st.floats(0, 1),
    backoff=st.sampled_from(Backoff),
    one_subcarrier=st.booleans(),
)
def test_energy_keeps_the_limit(
    seed: int, alpha_db: float, length: float, backoff: Backoff, one_subcarrier: bool
) -> None:
    """||x||^2 <= P for every update of norm <= tau, also for one that lies on the weakest subcarrier alone."""
    channel = channel_of(seed)
    node, radio = client_of(state_of(channel), 10 ** (alpha_db / 20), backoff=backoff)
    update = update_of(length * TAU, seed)
    if one_subcarrier:
        cells = np.zeros((AIR.grid.symbols, 192), np.complex64)
        cells[1, np.abs(channel).argmin()] = 1.0
        update = clip_update(AIR.grid.to_coordinates(cells) * np.float32(length * TAU), TAU)
    energy = node.energy_of(update)
    assert energy <= AIR.energy_limit * (1 + 1e-5)
    node.transmit(update, Transmit(0))
    sent = demodulate(radio.sent[0][1], NUMEROLOGY)
    # What left has the energy that was said, or less where samples were shortened.
    assert np.vdot(sent, sent).real <= energy * (1 + 1e-4) + 1e-12


def test_energy_reaches_the_limit_on_the_weakest_subcarrier() -> None:
    """The bound is tight: an update on that subcarrier alone uses all of P once the client backs off."""
    channel = channel_of(2)
    node, _ = client_of(state_of(channel), 1e3)
    cells = np.zeros((AIR.grid.symbols, 192), np.complex64)
    cells[0, np.abs(channel).argmin()] = 1.0
    update = clip_update(AIR.grid.to_coordinates(cells) * np.float32(TAU), TAU)
    assert node.backoff_for(update) > 1
    assert node.energy_of(update) == pytest.approx(AIR.energy_limit, rel=1e-5)


def test_worst_case_back_off_does_not_look_at_the_update() -> None:
    state = state_of(channel_of(1))
    worst, actual = (client_of(state, 100.0, backoff=backoff)[0] for backoff in (Backoff.WORST_CASE, Backoff.ACTUAL))
    assert worst.backoff_for(update_of(TAU)) > 2
    assert len({worst.backoff_for(update_of(norm, seed)) for norm, seed in ((TAU, 1), (0.1, 2), (0.0, 3))}) == 1
    for norm in (TAU, 0.6 * TAU, 0.01 * TAU, 0.0):
        expected = max(1.0, worst.backoff_for(update_of()) * norm / TAU)
        assert actual.backoff_for(update_of(norm)) == pytest.approx(expected, rel=1e-5)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    std=st.floats(1e-4, 0.02),
    turns=st.lists(st.floats(0, 1), min_size=192, max_size=192),
    alpha_db=st.floats(-20, 50),
    reach=st.floats(0, 1),
)
def test_no_channel_within_the_error_gets_more_than_the_bound(
    seed: int, std: float, turns: list[float], alpha_db: float, reach: float
) -> None:
    """gain_upper bounds |H alpha_i| tau/(alpha_u p_i) at every k for every H with |H - H^| <= q std."""
    estimate = channel_of(seed, floor=1e-3)
    state = state_of(estimate, std)
    alpha_u = 10 ** (alpha_db / 20)
    decision = decided(state, alpha_u)
    errors = reach * AIR.error_quantile() * std * np.exp(2j * np.pi * np.array(turns))
    node, _ = client_of(state, alpha_u)
    sent = node.weight / (decision.backoff * np.abs(state.channel.astype(np.complex128)))
    arriving = np.abs(state.channel + errors) * sent / node.weight
    assert arriving.max() <= decision.gain_upper * (1 + 1e-9)


def test_the_bounds_are_the_formula() -> None:
    """1 + max_k (q std_k + b rms)/|H^_k| above, and |H^_k| - q std_k - b rms below."""
    channel = channel_of(4, floor=0.05)
    std = np.linspace(1e-3, 2e-3, 192)
    state = state_of(channel, channel_var=std**2)
    error = AIR.error_quantile() * std + ESTIMATOR_BIAS * math.sqrt(np.mean(np.abs(channel) ** 2))
    assert relative_gain_upper(state, AIR) == pytest.approx(1 + float((error / np.abs(channel)).max()), rel=1e-6)
    np.testing.assert_allclose(gains_lower(state, AIR), np.maximum(0, np.abs(channel) - error), rtol=1e-5, atol=1e-8)
    assert decided(state, 1e-3).gain_upper == relative_gain_upper(state, AIR)
    backed_off = decided(state, 1e3)
    assert backed_off.gain_upper == pytest.approx(relative_gain_upper(state, AIR) / backed_off.backoff)


def test_a_dead_subcarrier_is_weak_not_strong() -> None:
    """1/0 must come out as "needs all the power", and as a gain of nothing for who counts on it."""
    channel = channel_of(1, floor=0.1).astype(np.complex64)
    channel[5] = 0.0
    state = state_of(channel, 1e-3)
    assert state.weakest_gain == pytest.approx(1e-12)
    assert decided(state, 1.0).backoff > 1e9
    assert gains_lower(state, AIR)[5] == 0.0
    assert relative_gain_upper(state, AIR) > 1e9
    np.testing.assert_allclose(state.inverse[:5] * channel[:5], 1, rtol=1e-6)


def test_predicted_phase_error() -> None:
    """Half of the channel's error power, and the square of 2 pi f_std times the time from sounding to payload's end."""
    channel = channel_of(1, floor=0.2)
    state = state_of(channel, 1e-2, cfo_std_cycles_per_sample=1e-7, reference_sample=-40_000)
    decision = decided(state, 1.0, start=10_000, samples=50_000)
    relative = np.mean(1e-4 / np.abs(channel) ** 2)
    drift = 2 * math.pi * 1e-7 * 100_000
    assert decision.csi_error == pytest.approx(relative, rel=1e-5)
    assert decision.phase_error_rad == pytest.approx(math.sqrt(relative / 2 + drift**2), rel=1e-5)
    # A clock's error is as many parts per million as its carrier's: the slope is smaller by subcarrier over carrier.
    slope = drift * NUMEROLOGY.used_frequencies * 5e6 / 2.45e9
    assert decision.timing_error == pytest.approx(np.mean(slope**2), rel=1e-6)
    steady = decided(state_of(channel, 1e-2), 1.0)
    assert (steady.phase_error_rad, steady.timing_error) == (pytest.approx(math.sqrt(relative / 2), rel=1e-5), 0.0)


@pytest.mark.parametrize("cfo", [3e-4, -3e-4])
def test_the_channels_turn_since_the_sounding_is_undone(cfo: float) -> None:
    """Oracle: the receiver sees x[n] exp(j 2 pi f (n - reference)) through the channel that held at the reference, and
    a clock that is fast by f/f_carrier sends early, by that part of the time since the reference."""
    channel = channel_of(3, floor=0.1)
    state = state_of(channel, cfo_cycles_per_sample=cfo, reference_sample=5_000)
    node, radio = client_of(state, 0.5)
    update, start = update_of(), 400_000
    node.transmit(update, Transmit(start))
    cells = demodulate(rotate(radio.sent[0][1], cfo, start - 5_000), NUMEROLOGY) * channel
    parts = cfo * 5e6 / 2.45e9
    middles = start - 5_000 + (np.arange(AIR.grid.symbols) + 0.5) * NUMEROLOGY.symbol_samples
    early = np.exp(2j * np.pi * (parts * middles)[:, None] * NUMEROLOGY.used_frequencies)
    assert np.abs(np.angle(early)).max() > 0.3
    received = AIR.grid.to_coordinates((cells * early).astype(np.complex64))
    expected = 0.5 * WEIGHT / TAU * update.values
    np.testing.assert_allclose(received, expected, atol=1e-4 * np.abs(expected).max())


def test_a_counter_that_is_off_is_followed() -> None:
    node, radio = client_of(state_of(np.ones(192)), 1.0)
    node.transmitter.follow(state_of(np.ones(192), offset_samples=7))
    node.transmitter.follow(state_of(np.ones(192), offset_samples=-3))
    node.transmit(update_of(), Transmit(1000))
    assert radio.sent[0][0] == 1000 - 4


@pytest.mark.parametrize("gain", [1.0, 0.1])
def test_clipping_is_counted_and_weighed(gain: float) -> None:
    """Oracle: what arrives less what would have arrived, in energy."""
    air = AirFormat(NUMEROLOGY, 40 * SYMBOL, payload_rms=0.5)
    channel = np.full(192, gain * np.exp(0.3j))
    alpha_u = gain / WEIGHT * math.sqrt(air.energy_limit)
    node, radio = client_of(state_of(channel), alpha_u, air=air)
    update = update_of(air=air)
    sent = node.transmit(update, Transmit(0))
    # At an rms of 0.5 a Gaussian sample is beyond full scale with probability exp(-4) = 1.83 %.
    assert sent.clipped_samples / sent.samples == pytest.approx(math.exp(-4), rel=0.15)
    assert np.count_nonzero(np.abs(radio.sent[0][1]) > 1 - 1e-6) == sent.clipped_samples
    missing = arrived(radio, channel, air) - alpha_u * WEIGHT / TAU * update.values.astype(np.float64)
    assert sent.clipped_energy == pytest.approx(float(missing @ missing), rel=1e-2)
    quiet, _ = client_of(state_of(channel), alpha_u / 10, air=air)
    sent = quiet.transmit(update, Transmit(0))
    assert (sent.clipped_samples, sent.clipped_energy) == (0, 0.0)


def test_nothing_is_sent_before_a_decision() -> None:
    radio = Recorder()
    node = ClientNode(transmitter_of(radio, AIR), WEIGHT, TAU)
    with pytest.raises(PrivacyError, match="after it has decided"):
        node.transmit(update_of(), Transmit(0))
    assert radio.sent == []


def test_a_sounding_is_within_full_scale_and_known() -> None:
    radio = Recorder()
    transmitter = transmitter_of(radio, AIR)
    sent = transmitter.sound(Sound(77))
    assert (radio.sent[0][0], sent.samples, sent.clipped_samples) == (77, AIR.sounding.length, 0)
    assert np.abs(radio.sent[0][1]).max() <= 1.0
