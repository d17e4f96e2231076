"""A transmitter's gain at a payload's level, from the quieter symbols of its sounding."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fl.nodes.air_format import AirFormat
from fl.nodes.messages import LevelChange
from fl.nodes.precoding import gain_margin, noise_gain_lower
from fl.nodes.soundings.level import level_upper, measure_level
from hardware.air.front_end import FrontEnd
from phy.fading import circular_noise
from phy.frame import sounding_samples
from phy.impairments import soft_limit
from tests.fl.nodes.soundings.media import AIR, NUMEROLOGY, Medium, sound_through


def compression(saturation: float, smoothness: float) -> float:
    """Small-signal gain over that of a sounding at full scale: of its linear part."""
    sent = sounding_samples(AIR.sounding)[AIR.sounding.sounding_slice]
    return float(np.vdot(sent, sent).real / np.vdot(sent, soft_limit(sent, saturation, smoothness)).real)


@pytest.mark.parametrize(("saturation", "smoothness"), [(1.25, 2.0), (2.0, 2.0), (2.0, 1.0)])
def test_compression_of_the_sounding_is_measured_and_charged(saturation: float, smoothness: float) -> None:
    """1.25 is the amplifier whose payload once had 1.071 of the gain where 1.049 was charged."""
    medium = Medium(FrontEnd(pa_saturation=saturation, pa_smoothness=smoothness), taps=((0, 0.0),))
    rng, truth = np.random.default_rng(1), compression(saturation, smoothness)
    for _ in range(20):
        # A strong path, in which the amplifier is not hidden by noise.
        state = sound_through(medium, np.array([0.3 + 0.1j]), rng)
        assert state.level is not None
        assert abs(state.level.gain - truth) < 5 * state.level.std + 0.1 * (truth - 1)
        assert truth <= gain_margin(state, AIR) < truth + 0.015
        # A jammer that compresses its sounding is stronger than it seems, which is nobody's risk.
        assert noise_gain_lower(state, AIR) == noise_gain_lower(replace(state, level=None), AIR)


def test_a_linear_transmitter_costs_its_uncertainty() -> None:
    rng = np.random.default_rng(2)
    state = sound_through(Medium(taps=((0, 0.0),)), np.array([0.3 + 0.1j]), rng)
    assert 1.0 <= gain_margin(state, AIR) < 1.01
    assert state.level is not None
    assert state.level.gain == pytest.approx(1.0, abs=5 * state.level.std)


def test_the_deviation_is_what_is_said() -> None:
    """Of 2,000 estimates, within five standard deviations of a standard deviation; a factor of 1.2 is rejected."""
    rng, channel = np.random.default_rng(3), np.exp(2j * np.pi * np.arange(254) / 100).astype(np.complex64)
    gains = []
    for _ in range(2000):
        loud, quiet = (channel + circular_noise(254, var / 2, rng) for var in (1e-3, 1e-2))
        change = measure_level(loud, quiet, loud_var=1e-3, quiet_var=1e-2, level=0.27)
        gains.append(change.gain)
    ratio = float(np.std(gains)) / change.std
    assert abs(ratio - 1.0) < 5 / math.sqrt(2 * 2000)
    assert abs(1.2 - 1.0) > 5 / math.sqrt(2 * 2000)
    assert np.mean(gains) == pytest.approx(1.0, abs=5 * change.std / math.sqrt(2000))


def test_bounds_grow_with_confidence_and_with_what_the_lower_level_hides() -> None:
    change = LevelChange(gain=1.02, std=1e-3, level=0.5)
    high = level_upper(change, 0.999)
    assert high == pytest.approx(1 + (0.02 + 3.09e-3) / 0.75, abs=1e-5)
    assert level_upper(change, 1 - 1e-9) > high
    assert level_upper(None, 0.999) == 1.0
    assert level_upper(LevelChange(0.97, 1e-3, 0.5), 0.999) == 1.0


def test_where_nothing_is_heard_nothing_is_known() -> None:
    noise = circular_noise(254, 1.0, np.random.default_rng(4))
    assert math.isinf(measure_level(noise, noise, loud_var=2.0, quiet_var=2.0, level=0.27).std)


def test_a_calibration_takes_the_place_of_quieter_symbols() -> None:
    plain, calibrated = AirFormat(NUMEROLOGY, 384), AirFormat(NUMEROLOGY, 384, gain_margin=1.008)
    assert plain.sounding.quiet_symbols == 8
    assert calibrated.sounding.quiet_symbols == 0
    assert calibrated.sounding.length == plain.sounding.length - 8 * NUMEROLOGY.symbol_samples
