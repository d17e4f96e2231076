"""The mirror image is measured in soundings, and charged with what it makes of the worst pair of frequencies."""

from dataclasses import replace

import numpy as np
import pytest

from fl.errors import PrivacyError
from fl.nodes.circuits import gain_with_image, image_upper, noise_kept
from fl.nodes.precoding import noise_gain_lower, noise_inverse, relative_gain_upper
from hardware.air.front_end import FrontEnd
from tests.fl.nodes.soundings.media import (
    AIR,
    Medium,
    sound_through,
    true_gain,
    true_gain_with_image,
    true_noise_with_image,
)

DRAWS = 30


def medium(image_db: float | None, *, paths: int = 3) -> Medium:
    taps = ((0, 0.0), (3, -6.0), (7, -10.0))[:paths]
    return Medium(FrontEnd(iq_image_db=image_db, dc_offset_dbfs=-30.0, dac_bits=12, adc_bits=12), taps=taps)


@pytest.mark.parametrize("paths", [1, 3])
@pytest.mark.parametrize("image_db", [-35.0, -25.0])
def test_the_charged_factor_covers_the_true_one_and_is_not_far_above_it(image_db: float, paths: int) -> None:
    """Measured alone, without any word from the lab file. Without a charge for it the bound is broken."""
    scene, rng = medium(image_db, paths=paths), np.random.default_rng(3)
    image = 10 ** (image_db / 20)
    covered, uncharged, excess = [], [], []
    for _ in range(DRAWS):
        taps = scene.draw(rng)
        state = replace(sound_through(scene, taps, rng), flat=None)
        truth, charged = true_gain_with_image(taps, state, image), gain_with_image(state, AIR, None)
        plain = relative_gain_upper(state, AIR)
        covered.append(truth <= charged)
        uncharged.append(truth <= plain)
        excess.append((charged / plain) / (truth / true_gain(taps, state)))
    assert all(covered)
    assert np.mean(uncharged) < 0.9
    assert np.median(excess) < 1.05
    assert max(excess) < 1.3


@pytest.mark.parametrize("image_db", [-35.0, -25.0])
def test_a_jammers_noise_counts_as_it_is_in_its_quietest_direction(image_db: float) -> None:
    """Its own image makes it quieter in one direction of a frequency and its opposite. Uncharged, the bound is broken
    where the image is strong against the error of the sounding."""
    scene, rng, image = medium(image_db), np.random.default_rng(7), 10 ** (image_db / 20)
    covered, uncharged, kept = [], [], []
    for _ in range(DRAWS):
        taps = scene.draw(rng)
        state = replace(sound_through(scene, taps, rng), flat=None)
        lower = noise_gain_lower(state, AIR)
        if lower == 0.0:
            continue
        kept.append(noise_kept(state, AIR, None))
        truth = true_noise_with_image(taps, state, noise_inverse(state, AIR).gains, image)
        covered.append(truth >= kept[-1] * lower)
        uncharged.append(truth >= lower)
    assert len(covered) > DRAWS / 2
    assert all(covered)
    assert image_db < -30 or np.mean(uncharged) < 0.9
    assert np.median(kept) > 1.0 - 8 * image
    none = replace(sound_through(medium(None), medium(None).draw(rng), rng), image=None)
    assert noise_kept(none, AIR, 0.0) == 1.0


def test_the_image_is_found_at_its_level_and_none_where_there_is_none() -> None:
    rng = np.random.default_rng(4)
    for image_db, amplitude in ((None, 0.0), (-35.0, 10 ** (-35 / 20)), (-25.0, 10 ** (-25 / 20))):
        scene = medium(image_db)
        for _ in range(10):
            state = sound_through(scene, scene.draw(rng), rng)
            assert state.image is not None
            weakest = np.abs(state.channel).min()
            five = 5 * float(np.max(state.image.std)) / weakest
            assert abs(abs(state.image.taps[1]) - amplitude) < five
            assert amplitude == 0.0 or abs(abs(state.image.taps[1]) - 2 * amplitude) > five or five > amplitude


def test_a_receivers_own_image_is_told_apart_where_there_are_several_paths() -> None:
    """The server's mixer mirrors what it receives, noise too. It is not the transmitter's, which has none here."""
    rng, scene = np.random.default_rng(5), medium(None)
    state = sound_through(scene, scene.draw(rng), rng, receiver=FrontEnd(iq_image_db=-25.0))
    assert state.image is not None
    assert abs(state.image.taps[1]) < 0.2 * 10 ** (-25 / 20)


def test_a_lab_file_limits_what_is_charged_unless_the_sounding_shows_more() -> None:
    rng, scene = np.random.default_rng(6), medium(-30.0)
    taps = scene.draw(rng)
    state = replace(sound_through(scene, taps, rng), flat=None)
    measured = gain_with_image(state, AIR, None)
    assert gain_with_image(state, AIR, 1.0) == measured
    assert relative_gain_upper(state, AIR) < gain_with_image(state, AIR, 10 ** (-30 / 20)) <= measured
    # -60 dB is refuted, and so is none at all: what was measured counts.
    assert gain_with_image(state, AIR, 1e-3) == gain_with_image(state, AIR, 0.0) == measured


def test_an_image_that_nobody_knows_is_refused() -> None:
    rng, scene = np.random.default_rng(8), medium(-30.0)
    state = replace(sound_through(scene, scene.draw(rng), rng), image=None)
    with pytest.raises(PrivacyError, match="was not measured, and the lab file does not say it"):
        image_upper(state, AIR, None)
    assert gain_with_image(state, AIR, 0.0) == relative_gain_upper(state, AIR)
