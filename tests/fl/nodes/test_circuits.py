"""Peaks, rounding and image of a transmitter: what is done about them, and what is charged."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.nodes.air_format import AirFormat
from fl.nodes.circuits import (
    charged_gain_upper,
    circuits_of,
    dither_for,
    gain_with_image,
    peak_limit,
    rounding_of,
)
from fl.nodes.messages import Announcement, Circuits, FlatChannel, Rounding, SoundedChannel
from fl.nodes.precoding import relative_gain_upper
from fl.nodes.transmitter import Transmitter, Workspace
from fl.privacy.converters import tail_delta
from phy.compute.filters import convolve
from phy.dither import Dither, limited, seeded_words
from phy.impairments import apply_taps, iq_imbalance
from phy.inversion import band_numerology
from phy.numerology import Numerology
from tests.fl.nodes.radios import Recorder

NUMEROLOGY = Numerology(256, 64, 192, 5e6)
AIR = AirFormat(NUMEROLOGY, 20_000)
STEP = 1.0 / 2047.0
NOISE_STD = 2.2e-3
FLAT = 0.3 * np.exp(0.7j)


def selective(seed: int) -> tuple[NDArray[np.complex64], SoundedChannel]:
    """Taps of a channel with 14 dB or more between its gains, and what a sounding without noise shows of it."""
    rng = np.random.default_rng(seed)
    powers = np.array([1.0, 0.25, 0.1])
    while True:
        values = 0.25 * np.sqrt(powers / 2) * (rng.standard_normal(3) + 1j * rng.standard_normal(3))
        taps = np.zeros(8, np.complex64)
        taps[[0, 3, 7]] = values
        band = band_numerology(NUMEROLOGY)
        channel = np.exp(-2j * np.pi * band.used_frequencies[:, None] * np.arange(8)) @ taps
        if np.abs(channel).max() > 5 * np.abs(channel).min():
            var = np.full(channel.size, 1e-12)
            return taps, SoundedChannel(channel.astype(np.complex64), var, NUMEROLOGY, 0.0, 0.0, 0, 0)


def flat() -> SoundedChannel:
    size = band_numerology(NUMEROLOGY).data_subcarriers
    state = selective(1)[1]
    return replace(
        state, channel=np.full(size, FLAT, np.complex64), flat=FlatChannel(complex(FLAT), 0, deviation=0.0, std=1e-6)
    )


def payload(rng: np.random.Generator, state: SoundedChannel, rms: float) -> NDArray[np.complex64]:
    """White samples that would leave with this rms where all of them were at the frequency that takes most power."""
    values = rng.standard_normal(8192) + 1j * rng.standard_normal(8192)
    return np.asarray(values * (rms * state.weakest_gain / math.sqrt(2)), np.complex64)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_that_is_shortened_before_the_filter_is_beyond_full_scale_behind_it(seed: int) -> None:
    """The worst signal for a filter: its own taps turned round, at the limit throughout."""
    _, state = selective(seed)
    limit = peak_limit(state, None, None)
    worst = (limit * np.exp(-1j * np.angle(state.inverse.taps[::-1]))).astype(np.complex64)
    reached = np.abs(convolve(worst, state.inverse.taps)).max()
    assert 0.999 < reached <= 1.0
    assert peak_limit(flat(), None, None) == pytest.approx(abs(FLAT), rel=1e-4)
    assert peak_limit(state, STEP, Dither.SMOOTH) < limit


@pytest.mark.parametrize("seed", range(5))
def test_shortening_brings_no_neighbours_further_apart_in_what_arrives(seed: int) -> None:
    taps, state = selective(seed)
    rng = np.random.default_rng(seed)
    whole = payload(rng, state, 0.5)
    limit = peak_limit(state, None, None)
    # The worst change there is for shortening: where samples are short, and none where they are long.
    change = np.where(np.abs(whole) < limit, payload(rng, state, 0.05), 0).astype(np.complex64)
    sent = [convolve(limited(m, limit)[0], state.inverse.taps) for m in (whole, (whole + change).astype(np.complex64))]
    arrived = np.linalg.norm(apply_taps(sent[0], taps) - apply_taps(sent[1], taps))
    assert arrived <= relative_gain_upper(state, AIR) * np.linalg.norm(change) * (1 + 1e-5)


def test_shortening_where_samples_leave_would() -> None:
    """Why it is done before the filter. A burst that leaves far beyond full scale, and a change where the channel is
    weak, which leaves strongly: shortened at the antenna, a part of it moves to where the channel is strong."""
    found = 0.0
    for seed in range(12):
        taps, state = selective(seed)
        rng = np.random.default_rng(seed)
        gains = state.inverse.gains
        whole = payload(rng, state, 2.0)
        weakest = np.argmax(gains) / gains.size
        change = (1e-3 * state.weakest_gain * np.exp(2j * np.pi * weakest * np.arange(whole.size))).astype(np.complex64)
        sent = [
            limited(convolve(m, state.inverse.taps), 1.0)[0] for m in (whole, (whole + change).astype(np.complex64))
        ]
        arrived = np.linalg.norm(apply_taps(sent[0], taps) - apply_taps(sent[1], taps))
        found = max(found, float(arrived / np.linalg.norm(change)) / relative_gain_upper(state, AIR))
    assert found > 1.3


@pytest.mark.parametrize("image_db", [-20.0, -35.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_image_is_charged_with_what_it_makes_of_the_worst_pair_of_frequencies(seed: int, image_db: float) -> None:
    """Tones at the pair of frequencies between which most is leaked, in the worst proportion, through such a mixer."""
    taps, state = selective(seed)
    image = 10 ** (image_db / 20)
    gains, magnitude = state.inverse.gains, np.abs(state.response)
    used = np.isin(np.arange(gains.size) // (gains.size // 256), NUMEROLOGY.used_bins)
    leaked = np.where(used, magnitude * np.roll(gains[::-1], 1), 0.0)
    frequency = int(np.argmax(leaked)) / gains.size
    index = np.arange(16384)
    arrived = []
    for turn in (0.0, math.pi):
        for share in (0.3, 0.6, math.sqrt(0.5), 0.8, 0.95):
            for phase in np.linspace(0, 2 * math.pi, 16, endpoint=False):
                tones = math.sqrt(1 - share**2) * np.exp(2j * np.pi * frequency * index)
                tones = tones + share * np.exp(-2j * np.pi * frequency * index + 1j * (phase + turn))
                sent = iq_imbalance(convolve(tones.astype(np.complex64), state.inverse.taps), image_db)
                heard = apply_taps(sent, taps)[4096:-4096]
                arrived.append(float(np.sqrt(np.mean(np.abs(heard) ** 2) / np.mean(np.abs(tones) ** 2))))
        if image_db < -30:
            break
    charged = gain_with_image(state, AIR, image)
    assert max(arrived) <= charged
    # Not much above what is found; and the image's own level would not do.
    assert charged - relative_gain_upper(state, AIR) < 1.5 * (max(arrived) - 1.0) + 0.03
    assert charged > 1.0 + image * 1.2
    assert gain_with_image(flat(), AIR, image) == pytest.approx(1.0 + image, rel=3e-3)


def test_circuits_that_are_ideal_cost_nothing() -> None:
    _, state = selective(1)
    assert charged_gain_upper(state, AIR, Circuits(), NOISE_STD) == relative_gain_upper(state, AIR)
    assert dither_for(state, AIR, Circuits(), NOISE_STD) is None


def test_what_twelve_bits_and_an_image_cost() -> None:
    """2 % and less, where rounding alone let one record count twice."""
    _, state = selective(1)
    twelve = Circuits(step=STEP, image=0.0)
    plain = relative_gain_upper(state, AIR)
    assert plain < charged_gain_upper(state, AIR, twelve, NOISE_STD) < 1.02 * plain
    assert dither_for(state, AIR, twelve, NOISE_STD) is Dither.SMOOTH
    assert dither_for(flat(), AIR, Circuits(step=1e-5), NOISE_STD) is Dither.TRIANGULAR
    both = charged_gain_upper(state, AIR, Circuits(STEP, 0.01), NOISE_STD)
    assert both > gain_with_image(state, AIR, 0.01) + 0.99 * (charged_gain_upper(state, AIR, twelve, NOISE_STD) - plain)


def test_a_converter_that_is_too_coarse_is_refused() -> None:
    with pytest.raises(PrivacyError, match="more than twice the receiver's noise"):
        charged_gain_upper(flat(), AIR, Circuits(step=0.05), NOISE_STD)


def test_a_radio_describes_itself() -> None:
    assert circuits_of(Recorder()) == Circuits()  # type: ignore[arg-type]
    known = circuits_of(Recorder(tx_step=STEP, tx_image_db=-40.0))  # type: ignore[arg-type]
    assert known.step == STEP
    assert known.image == pytest.approx(0.01)


def test_what_is_sent_lies_on_the_converters_grid_and_repeats_with_its_seed() -> None:
    air = AirFormat(NUMEROLOGY, 2000)
    sent = []
    for block in (3, 3, 4):
        radio = Recorder(tx_step=STEP)
        transmitter = Transmitter(
            radio,  # type: ignore[arg-type]
            air,
            Workspace.of(air),
            words_for=lambda number: seeded_words(np.random.default_rng(number)),
        )
        values = np.random.default_rng(1).standard_normal(2000).astype(np.float32)
        burst = transmitter.send(values, 1e-2, Announcement(1.0, flat(), 0, 1, NOISE_STD, block), 0)
        assert burst.clipped_samples == 0
        sent.append(radio.sent[0][1])
    codes = sent[0].view(np.float32) / np.float32(STEP)
    assert np.abs(codes - np.rint(codes)).max() < 1e-3
    assert np.abs(codes).max() > 3
    assert np.array_equal(sent[0], sent[1])
    assert not np.array_equal(sent[0], sent[2])


@pytest.mark.parametrize("channel", [flat(), selective(2)[1]], ids=["flat", "selective"])
def test_rounding_is_charged_for_every_sample_that_leaves(channel: SoundedChannel) -> None:
    """Distance: a step of each real value at the channel's largest gain, over alpha_u. Nothing without a converter."""
    air, alpha_u = AirFormat(NUMEROLOGY, 2000), 0.7
    radio = Recorder(tx_step=STEP, tx_image_db=-60.0)
    transmitter = Transmitter(radio, air, Workspace.of(air))  # type: ignore[arg-type]
    transmitter.send(np.ones(2000, np.float32), 1e-4, Announcement(alpha_u, channel, 0, 1, NOISE_STD, 0), 0)
    samples = radio.sent[0][1].size
    found = rounding_of(channel, air, transmitter.circuits, alpha_u)
    strongest = float(np.abs(channel.channel).max())
    assert found.delta == pytest.approx(tail_delta(samples), rel=1e-12)
    assert strongest < found.distance * alpha_u / (STEP * math.sqrt(2 * samples)) < 1.2 * strongest
    assert rounding_of(channel, air, Circuits(), alpha_u) == Rounding()


def test_memory_of_many_channels_is_that_of_the_channels() -> None:
    """Responses and filters on the fine grid are 130 times the size of a channel (4 kB): kept for some, not for all."""
    tracemalloc.start()
    try:
        states, traced = [], []
        for number in range(140):
            states.append(selective(number)[1])
            assert states[-1].weakest_gain > 0.0
            charged_gain_upper(states[-1], AIR, Circuits(STEP, 0.01), NOISE_STD)
            if number in (79, 139):
                traced.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert traced[1] - traced[0] < 60 * 20_000
