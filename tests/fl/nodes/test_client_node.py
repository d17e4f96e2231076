"""A client: power from its own channel, within its limit, and an update that arrives undistorted."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.nodes.air_format import AirFormat
from fl.nodes.client import ClientNode, Departure
from fl.nodes.messages import (
    Announcement,
    CountOffset,
    Decision,
    FlatChannel,
    JammingOrder,
    Receive,
    Sent,
    Sound,
    SoundedChannel,
    Transmit,
)
from fl.nodes.precoding import ESTIMATOR_BIAS, noise_gain, noise_gain_lower, relative_gain_upper
from fl.privacy.clipping import BoundedUpdate, clip_update
from fl.uplink.modes import Backoff
from phy.impairments import rotate
from phy.inversion import SMALLEST_RESPONSE
from phy.modem import demodulate
from tests.fl.nodes.radios import BAND, NUMEROLOGY, SYMBOL, TAU, Recorder, state_of, through, transmitter_of

AIR = AirFormat(NUMEROLOGY, 3 * SYMBOL)
WEIGHT = 0.3


def taps_of(seed: int, *, mild: bool = False) -> NDArray[np.complex128]:
    """Six random taps; with `mild` a first path that is stronger than all others together, so that nothing vanishes."""
    rng = np.random.default_rng(seed)
    taps = rng.standard_normal((6, 2)) @ [1, 1j] / 4
    if mild:
        taps[0] = 1.5 * np.abs(taps[1:]).sum() * np.exp(1j)
    return np.asarray(taps)


def channel_of(seed: int, *, mild: bool = False) -> NDArray[np.complex128]:
    """The response of `taps_of` at the band's subcarriers."""
    return response(taps_of(seed, mild=mild), BAND.used_frequencies)


def response(taps: NDArray[np.complex128], frequencies: NDArray[np.float64]) -> NDArray[np.complex128]:
    return np.asarray(np.exp(-2j * np.pi * frequencies[:, None] * np.arange(len(taps))) @ taps)


def client_of(
    state: SoundedChannel, alpha_u: float, *, backoff: Backoff = Backoff.WORST_CASE, air: AirFormat = AIR
) -> tuple[ClientNode, Recorder]:
    """A client that has decided, and its radio."""
    radio = Recorder()
    node = ClientNode(transmitter_of(radio, air), WEIGHT, TAU, SHELF.pop, backoff)
    node.decide(Announcement(alpha_u, state, 1000, 500, 1e-3, 0))
    return node, radio


SHELF: list[BoundedUpdate] = []
"""Where clients fetch their updates."""


def departure_of(node: ClientNode, update: BoundedUpdate, start: int = 0) -> Departure:
    """Let a client that has decided send this update."""
    SHELF.append(update)
    sent = node.answer(Transmit(start))
    assert node.departure is not None
    assert sent == Sent(node.departure.burst.samples)
    return node.departure


def update_of(norm: float = TAU, seed: int = 1, air: AirFormat = AIR) -> BoundedUpdate:
    values = np.random.default_rng(seed).standard_normal(air.coordinates)
    return clip_update((values * (norm / np.linalg.norm(values))).astype(np.float32), TAU)


def arrived(radio: Recorder, taps: NDArray[np.complex128], air: AirFormat = AIR, start: int = 0) -> NDArray[np.float64]:
    """Coordinates that a noiseless server would read."""
    return air.grid.to_coordinates(through(radio.sent[-1], taps.tolist(), air, start)).astype(np.float64)


def relative_error(found: NDArray[np.float64], expected: NDArray[Any]) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def decided(state: SoundedChannel, alpha_u: float, start: int = 1000, samples: int = 500) -> Decision:
    node = ClientNode(transmitter_of(Recorder(), AIR), WEIGHT, TAU, SHELF.pop)
    return node.decide(Announcement(alpha_u, state, start, samples, 1e-3, 0))


def test_an_update_arrives_as_its_share() -> None:
    """sum over the air of x_i * h_i = alpha_u p_i u_i / (tau s_i), for a channel with all phases. What is missing are
    the sidelobes that the band leaves out."""
    taps = taps_of(3, mild=True)
    for alpha_u in (0.5, 50.0):
        node, radio = client_of(state_of(channel_of(3, mild=True)), alpha_u)
        update = update_of(norm=0.7 * TAU)
        departure = departure_of(node, update, 12_345)
        assert radio.sent[0][0] == 12_345 - 4 * 256
        assert departure.burst.samples == AIR.grid.symbols * 1024 + 8 * 256
        assert (departure.relative_norm, departure.shortened) == (pytest.approx(0.7, rel=1e-6), False)
        if departure.burst.clipped_samples == 0:
            expected = alpha_u * WEIGHT / (TAU * departure.backoff) * update.values.astype(np.float64)
            assert relative_error(arrived(radio, taps, start=12_345), expected) < 0.02


def test_a_flat_channel_takes_a_factor_and_a_delay() -> None:
    """Nothing is filtered, so nothing is missing: float32's accuracy."""
    gain = 0.4 * np.exp(2j)
    path = gain * np.exp(-2j * np.pi * BAND.used_frequencies * 3)
    node, radio = client_of(state_of(path, flat=FlatChannel(gain, 3, 0.0, 0.0)), 0.5)
    update = update_of()
    departure = departure_of(node, update, 1000)
    assert (radio.sent[0][0], departure.burst.samples) == (997, AIR.grid.symbols * 1024)
    expected = 0.5 * WEIGHT / TAU * update.values.astype(np.float64)
    assert relative_error(arrived(radio, np.array([0, 0, 0, gain]), start=1000), expected) < 1e-5


def test_back_off_is_that_of_the_weakest_frequency() -> None:
    """s = max(1, alpha_u p sup|G| / sqrt(P)): a client with a notch must be as quiet as undoing it needs."""
    state = state_of(1 + 0.6 * np.exp(-2j * np.pi * BAND.used_frequencies * 9))
    needs = WEIGHT / (state.weakest_gain * math.sqrt(AIR.energy_limit))
    assert 0.38 < state.weakest_gain <= 0.4
    assert decided(state, 2.5 / needs).backoff == pytest.approx(2.5)
    assert decided(state, 0.99 / needs).backoff == 1.0
    assert decided(state_of(np.full(208, 1.0)), 2.5 / needs).backoff == pytest.approx(1.0, rel=0.02)


@settings(max_examples=40, deadline=None, derandomize=True)
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
    node, radio = client_of(state_of(channel_of(seed)), 10 ** (alpha_db / 20), backoff=backoff)
    update = update_of(length * TAU, seed)
    if one_subcarrier:
        cells = np.zeros((AIR.grid.symbols, 768), np.complex64)
        cells[1, weakest_of(seed)] = 1.0
        update = clip_update(AIR.grid.to_coordinates(cells) * np.float32(length * TAU), TAU)
    energy = departure_of(node, update).burst.energy
    assert energy <= AIR.energy_limit * (1 + 1e-5)
    sent = radio.sent[0][1]
    # What left has the energy that was said, or less where samples were shortened.
    assert np.vdot(sent, sent).real <= energy * (1 + 1e-4) + 1e-12


def weakest_of(seed: int) -> int:
    """The payload's subcarrier at which the channel is weakest."""
    return int(np.abs(response(taps_of(seed), AIR.payload_numerology.used_frequencies)).argmin())


def test_energy_nearly_reaches_the_limit_on_the_weakest_subcarrier() -> None:
    """The bound is tight: an update on that subcarrier alone uses nearly all of P once the client backs off."""
    node, _ = client_of(state_of(channel_of(2)), 1e3)
    cells = np.zeros((AIR.grid.symbols, 768), np.complex64)
    cells[0, weakest_of(2)] = 1.0
    departure = departure_of(node, clip_update(AIR.grid.to_coordinates(cells) * np.float32(TAU), TAU))
    assert departure.backoff > 1
    assert 0.8 * AIR.energy_limit < departure.burst.energy <= AIR.energy_limit * (1 + 1e-5)


def test_worst_case_back_off_does_not_look_at_the_update() -> None:
    state = state_of(channel_of(1))

    def used(backoff: Backoff, norm: float, seed: int = 1) -> float:
        return departure_of(client_of(state, 100.0, backoff=backoff)[0], update_of(norm, seed)).backoff

    worst = used(Backoff.WORST_CASE, TAU)
    assert worst > 2
    assert {used(Backoff.WORST_CASE, norm, seed) for norm, seed in ((TAU, 1), (0.1, 2), (0.0, 3))} == {worst}
    assert decided(state, 100.0).backoff == worst
    for norm in (TAU, 0.6 * TAU, 0.01 * TAU, 0.0):
        assert used(Backoff.ACTUAL, norm) == pytest.approx(max(1.0, worst * norm / TAU), rel=1e-5)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1000), error_seed=st.integers(0, 1000), std=st.floats(1e-4, 0.02), alpha_db=st.floats(-20, 50)
)
def test_no_channel_within_the_error_gets_more_than_the_bound(
    seed: int, error_seed: int, std: float, alpha_db: float
) -> None:
    """||h * g * m|| <= gain_upper ||m|| for the worst m, by power iteration over whole bursts, where the true channel
    differs from the sounded one by as much as the bound allows at some frequency: the errors are taps too."""
    wrong = taps_of(error_seed)
    state = state_of(channel_of(seed), std)
    allowed = AIR.error_quantile() * std
    largest = np.abs(response(wrong, np.fft.fftfreq(4096))).max()
    true = taps_of(seed) + wrong * (allowed / largest)
    decision = decided(state, 10 ** (alpha_db / 20))
    assert largest_gain(state, true) / decision.backoff <= decision.gain_upper * (1 + 1e-6)


def largest_gain(state: SoundedChannel, taps: NDArray[np.complex128], symbols: int = 2) -> float:
    """sup ||h * g * M u|| / ||u|| over updates of a few symbols, by power iteration on the samples themselves."""
    numerology = AIR.payload_numerology
    whole = np.convolve(state.inverse.taps.astype(np.complex128), taps)
    count = symbols * numerology.fft_size
    size = 1 << (count + whole.size).bit_length()
    spectrum = np.fft.fft(whole, size)
    vector = np.random.default_rng(1).standard_normal((symbols, 768)) + 0j
    norm = 0.0
    for _ in range(30):
        grid = np.zeros((symbols, numerology.fft_size), np.complex128)
        grid[:, numerology.used_bins] = vector / np.linalg.norm(vector)
        sent = np.fft.ifft(grid, norm="ortho").reshape(-1)
        heard = np.fft.fft(sent, size) * spectrum
        norm = float(np.linalg.norm(np.fft.ifft(heard)))
        back = np.fft.ifft(heard * spectrum.conj())[:count].reshape(symbols, -1)
        vector = np.fft.fft(back, norm="ortho")[:, numerology.used_bins]
    return norm


def test_what_arrives_is_an_isometry_of_the_update() -> None:
    """In the worst of all directions no more arrives than was meant, whatever the channel; a channel undone subcarrier
    by subcarrier behind a prefix would let 2.3 to 6 times the energy arrive."""
    for seed in range(6):
        assert largest_gain(state_of(channel_of(seed)), taps_of(seed)) == pytest.approx(1.0, abs=2e-3)


def test_the_bounds_are_the_formula() -> None:
    """sup_f (|H^| + q std + b rms) |G| above, for a channel without structure: 1 + (q std + b)/|H^|, and a ripple."""
    state = state_of(np.full(208, 0.5), 1e-3)
    error = AIR.error_quantile() * 1e-3 + ESTIMATOR_BIAS * 0.5
    assert relative_gain_upper(state, AIR) == pytest.approx(1 + error / 0.5, rel=6e-3)
    assert relative_gain_upper(state, AIR) >= 1 + error / 0.5
    # Noise is sent for the weakest channel that may be, so all of it is counted on, but for a ripple.
    assert 0.99 < noise_gain_lower(state, AIR) < 1.0
    assert noise_gain(state, AIR) == pytest.approx(0.5 - error, rel=1e-2)
    assert decided(state, 1e-3).gain_upper == relative_gain_upper(state, AIR)
    backed_off = decided(state, 1e3)
    assert backed_off.gain_upper == pytest.approx(relative_gain_upper(state, AIR) / backed_off.backoff)


def test_a_channel_that_vanishes_is_held_back_and_not_divided_by() -> None:
    """At its zero nothing arrives, and a payload takes at most 20 times the amplitude; noise is not counted on."""
    state = state_of(1 - np.exp(-2j * np.pi * (BAND.used_frequencies - 0.2)), 1e-3)
    assert 1 / state.weakest_gain < 1.1 / (SMALLEST_RESPONSE * np.sqrt(2))
    assert relative_gain_upper(state, AIR) < 1.5
    assert noise_gain_lower(state, AIR) == 0.0
    nothing = state_of(np.zeros(208), 1e-3)
    assert decided(nothing, 1.0).backoff > 1e6


def test_predicted_phase_error() -> None:
    """Half of the channel's error power, and the square of 2 pi f_std times the time from sounding to payload's end."""
    channel = channel_of(1, mild=True)
    used = np.isin(BAND.used_subcarriers, NUMEROLOGY.used_subcarriers)
    state = state_of(channel, 1e-2, cfo_std_cycles_per_sample=1e-7, reference_sample=-40_000)
    decision = decided(state, 1.0, start=10_000, samples=50_000)
    relative = np.mean(1e-4 / np.abs(channel[used]) ** 2)
    drift = 2 * math.pi * 1e-7 * 100_000
    assert decision.csi_error == pytest.approx(relative, rel=1e-3)
    assert decision.phase_error_rad == pytest.approx(math.sqrt(relative / 2 + drift**2), rel=1e-3)
    # A clock's error is as many parts per million as its carrier's: the slope is smaller by subcarrier over carrier.
    slope = drift * NUMEROLOGY.used_frequencies * 5e6 / 2.45e9
    assert decision.timing_error == pytest.approx(np.mean(slope**2), rel=1e-6)
    steady = decided(state_of(channel, 1e-2), 1.0)
    assert (steady.phase_error_rad, steady.timing_error) == (pytest.approx(math.sqrt(relative / 2), rel=1e-3), 0.0)


@pytest.mark.parametrize("cfo", [3e-4, -3e-4])
def test_the_channels_turn_since_the_sounding_is_undone(cfo: float) -> None:
    """Oracle: the receiver sees (x * h)[n] exp(j 2 pi f (n - reference)) with the channel that held at the reference,
    and a clock that is fast by f/f_carrier sends early, by that part of the time since the reference."""
    gain = 0.7 * np.exp(1j)
    path = np.full(208, gain)
    state = state_of(path, cfo_cycles_per_sample=cfo, reference_sample=5_000, flat=FlatChannel(gain, 0, 0.0, 0.0))
    node, radio = client_of(state, 0.5)
    update, start = update_of(), 400_000
    departure_of(node, update, start)
    numerology = AIR.payload_numerology
    cells = demodulate(rotate(radio.sent[0][1], cfo, start - 5_000), numerology) * np.complex64(gain)
    parts = cfo * 5e6 / 2.45e9
    middles = start - 5_000 + (np.arange(AIR.grid.symbols) + 0.5) * numerology.symbol_samples
    early = np.exp(2j * np.pi * (parts * middles)[:, None] * numerology.used_frequencies)
    assert np.abs(np.angle(early)).max() > 0.3
    received = AIR.grid.to_coordinates((cells * early).astype(np.complex64))
    expected = 0.5 * WEIGHT / TAU * update.values
    np.testing.assert_allclose(received, expected, atol=1e-4 * np.abs(expected).max())


def test_a_counter_that_is_off_is_followed() -> None:
    node, radio = client_of(state_of(np.ones(208)), 1.0)
    for offset in (7, -4):
        node.answer(CountOffset(offset))
    departure_of(node, update_of(), 1000)
    assert radio.sent[0][0] == 1000 - 4 - 4 * 256


@pytest.mark.parametrize("gain", [1.0, 0.1])
def test_clipping_is_counted_and_weighed(gain: float) -> None:
    """Oracle: what arrives less what would have arrived, in energy."""
    air = AirFormat(NUMEROLOGY, 10 * SYMBOL, payload_rms=0.5)
    factor = gain * np.exp(0.3j)
    alpha_u = gain / WEIGHT * math.sqrt(air.energy_limit)
    state = state_of(np.full(208, factor), flat=FlatChannel(factor, 0, 0.0, 0.0))
    node, radio = client_of(state, alpha_u, air=air)
    update = update_of(air=air)
    sent = departure_of(node, update).burst
    # At an rms of 0.5 a Gaussian sample is beyond full scale with probability exp(-4) = 1.83 %.
    assert sent.clipped_samples / sent.samples == pytest.approx(math.exp(-4), rel=0.15)
    assert np.count_nonzero(np.abs(radio.sent[0][1]) > 1 - 2e-5) == sent.clipped_samples
    missing = arrived(radio, np.array([factor]), air) - alpha_u * WEIGHT / TAU * update.values.astype(np.float64)
    assert sent.clipped_energy == pytest.approx(float(missing @ missing), rel=0.1)
    quiet, _ = client_of(state, alpha_u / 10, air=air)
    sent = departure_of(quiet, update).burst
    assert (sent.clipped_samples, sent.clipped_energy) == (0, 0.0)


def test_an_update_is_sent_once_and_after_a_decision() -> None:
    radio = Recorder()
    node = ClientNode(transmitter_of(radio, AIR), WEIGHT, TAU, SHELF.pop)
    with pytest.raises(PrivacyError, match="after it has decided"):
        node.answer(Transmit(0))
    assert radio.sent == []
    node, radio = client_of(state_of(channel_of(1)), 1.0)
    departure_of(node, update_of())
    with pytest.raises(PrivacyError, match="and once"):
        node.answer(Transmit(0))
    assert len(radio.sent) == 1


def test_an_order_to_jam_ends_with_the_next_announcement() -> None:
    """A client whose turn it was, in a sounding that was given up, must not send noise where its update is due."""
    state = state_of(channel_of(3, mild=True))
    node, radio = client_of(state, 0.5)
    node.answer(JammingOrder(1e-3, state, block=1000))
    node.answer(Announcement(0.5, state, 1000, 500, 1e-3, 0))
    update = update_of()
    departure_of(node, update)
    expected = 0.5 * WEIGHT / TAU * update.values.astype(np.float64)
    assert relative_error(arrived(radio, taps_of(3, mild=True)), expected) < 0.02
    node.answer(Announcement(0.5, state, 1000, 500, 1e-3, 0))
    node.answer(JammingOrder(1e-3, state, block=1001))
    SHELF.append(update)
    assert node.answer(Transmit(0)) == Sent(radio.sent[-1][1].size)
    assert node.departure is None
    assert SHELF.pop() is update


def test_what_is_not_for_a_client_is_refused() -> None:
    node, _ = client_of(state_of(channel_of(1)), 1.0)
    with pytest.raises(PrivacyError, match="'recorder' is told Receive, which is not for it"):
        node.answer(Receive(0, jammed=False))


def test_a_sounding_is_within_full_scale_and_known() -> None:
    radio = Recorder()
    transmitter = transmitter_of(radio, AIR)
    sent = transmitter.sound(Sound(77))
    assert (radio.sent[0][0], sent.samples) == (77, AIR.sounding.length)
    assert np.abs(radio.sent[0][1]).max() <= 1.0
