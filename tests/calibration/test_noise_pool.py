"""The pool of silences: its bound lies below every subcarrier's noise as often as it says, whatever the colour.

AIRDP_SILENCES=1000 sets how many silences are made of samples; how many were covered is in the log
(`-o log_cli=true --log-cli-level=INFO`).
"""

import logging
import math
import os
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.errors import MeasurementError
from calibration.noise import BoundSource, measure_noise, sigma_lower_bound
from calibration.pooling.noise_pool import DISAGREEMENT_LEVEL, LEVEL_TOLERANCE_DB, SHARES, NoisePool
from calibration.pooling.spectrum import Spectrum, spectrum_of
from calibration.silence import observe_silence
from calibration.statistics import variance_lower_factor
from phy.impairments import iq_imbalance
from tests.calibration.silences import DEFAULT, NOISE_VAR_REAL, tone, white

BINS = 192
TRIALS = 1000
CONFIDENCE = 0.999
SILENCES = int(os.environ.get("AIRDP_SILENCES", "12"))
LOG = logging.getLogger(__name__)


def decibels(value: float) -> float:
    return float(10.0 ** (value / 10.0))


def notched(depth_db: float, bins: int = 1) -> NDArray[np.float64]:
    spectrum = np.ones(BINS)
    spectrum[40 : 40 + bins] *= decibels(-depth_db)
    return spectrum


SPECTRA = {
    "white": np.ones(BINS),
    "tilted": 10.0 ** (np.linspace(-0.1, 0.1, BINS) / 10.0),
    "notch-1": notched(1.0),
    "notch-3": notched(3.0),
    "notch-10": notched(10.0),
    "eight-low": notched(3.0, bins=8),
    # A bin that is far above the others makes the level's estimate uncertain, and is too steady to be found a spur.
    "peak": 1.0 / notched(10.0),
}


def spectrum(powers: NDArray[np.float64], blocks: int) -> Spectrum:
    """A circular silence: what is measured is `powers` (K,), mean |z|^2."""
    return Spectrum(np.arange(BINS), blocks, powers, np.ones(BINS, np.bool_), 0j, 10**9)


def drawn(truth: NDArray[np.float64], blocks: int, trials: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(trials, K) mean |z|^2 of circular Gaussian cells of these variances: Gamma, the distribution of a silence."""
    return np.asarray(truth * rng.gamma(blocks, size=(trials, BINS)) / blocks)


@pytest.mark.parametrize(("own", "first"), [(256, 4096), (16, 4096), (256, 0), (16, 0)])
@pytest.mark.parametrize("name", SPECTRA)
def test_the_bound_is_below_every_subcarrier_as_often_as_it_says(name: str, own: int, first: int) -> None:
    """1,000 trials at 99.9 %, of which 99.5 % must hold (binomial: 1e-3 that fewer than 996 do at 99.9 %); own silences
    of 65,536 and of 4,096 samples, after a first silence of 2^20 and without one. The level has risen by 0.1 dB since
    the first silence, which leaves its shape."""
    rng = np.random.default_rng(1)
    truth = SPECTRA[name]
    level = decibels(0.1)
    now = drawn(level * truth, own, TRIALS, rng)
    held, ratios = 0, []
    before = drawn(truth, first, TRIALS, rng) if first else None
    for trial in range(TRIALS):
        silence = spectrum(now[trial], own)
        pool = NoisePool.of(silence)
        if before is not None:
            pool = NoisePool.of(spectrum(before[trial], first)).settled().joined(silence)
        bound = pool.bound(silence, CONFIDENCE).noise_var_real
        held += bound <= level * truth.min() / 2.0
        ratios.append(2.0 * bound / (level * truth.min()))
    LOG.info("%s, %d blocks after %d: covered in %.1f %% of %d", name, own, first, 100 * held / TRIALS, TRIALS)
    assert held >= 0.995 * TRIALS
    if before is not None and own == 256:
        # It gives away 12 % of the variance, 6 % of sigma, where one silence alone gives away 30 % and more.
        assert np.mean(ratios) > (0.84 if name == "peak" else 0.87)


def test_what_a_whiteness_test_would_have_passed_is_covered_by_the_bound_of_one_silence() -> None:
    """One subcarrier 1 dB down among 192, 256 blocks: the mean over subcarriers would be 26 % too high."""
    rng = np.random.default_rng(2)
    powers = drawn(SPECTRA["notch-1"], 256, TRIALS, rng)
    factor = variance_lower_factor(256, 1e-3)
    assert np.mean(factor * powers.min(axis=1) <= SPECTRA["notch-1"].min()) >= 0.995
    assert np.mean(variance_lower_factor(256 * BINS, 1e-3) * powers.mean(axis=1) <= SPECTRA["notch-1"].min()) == 0.0


@pytest.mark.parametrize("blocks", [256, 16])
def test_one_silence_of_samples_is_bounded_too(blocks: int) -> None:
    """`sigma_lower_bound` on samples with a notch of 3 dB, made in the frequency domain, block by block."""
    rng = np.random.default_rng(3)
    truth = np.ones(256)
    truth[DEFAULT.used_bins[40]] = decibels(-3.0)
    below = 0
    for _ in range(60):
        cells = np.fft.fft(white(blocks, rng).reshape(-1, 256), axis=1, norm="ortho") * np.sqrt(truth)
        samples = np.fft.ifft(cells, axis=1, norm="ortho").reshape(-1).astype(np.complex64)
        bound = sigma_lower_bound(measure_noise(samples, DEFAULT, 0.998))
        assert bound.confidence == pytest.approx(0.999)
        below += bound.noise_var_real <= NOISE_VAR_REAL * decibels(-3.0)
    assert below == 60


def silence_of(powers: NDArray[np.float64], blocks: int, rng: np.random.Generator) -> Spectrum:
    """Of samples with this spectrum over the used bins, made in the frequency domain, block by block."""
    truth = np.ones(256)
    truth[DEFAULT.used_bins] = powers
    cells = np.fft.fft(white(blocks, rng).reshape(-1, 256), axis=1, norm="ortho") * np.sqrt(truth)
    samples = np.fft.ifft(cells, axis=1, norm="ortho").reshape(-1).astype(np.complex64)
    return spectrum_of(observe_silence(samples, DEFAULT))


@pytest.mark.timeout(300 + SILENCES)
@pytest.mark.parametrize("name", SPECTRA)
def test_the_bound_from_samples_is_below_every_subcarrier(name: str) -> None:
    """All of it: spurs are looked for, the converter's step, unequal I and Q. Own silences of 65,536 samples."""
    rng, truth = np.random.default_rng(14), SPECTRA[name]
    held, ratios = 0, []
    for _ in range(SILENCES):
        own = silence_of(truth, 256, rng)
        pool = NoisePool.of(silence_of(truth, 512, rng)).settled().joined(own)
        ratios.append(pool.bound(own, CONFIDENCE).noise_var_real / (NOISE_VAR_REAL * truth.min()))
        held += ratios[-1] <= 1.0
    LOG.info(
        "%s, of samples: covered in %.1f %% of %d, counted %.3f", name, 100 * held / SILENCES, SILENCES, np.mean(ratios)
    )
    assert held >= 0.995 * SILENCES
    # It gives away more than the long silence of a run, which has 16,384 blocks.
    assert np.mean(ratios) > 0.68


@pytest.mark.parametrize("wide", [1.0, 2.0, 8.0])
@pytest.mark.parametrize("depth_db", [3.0, 10.0, 40.0])
def test_a_notch_of_a_filter_is_as_deep_as_it_is(depth_db: float, wide: float) -> None:
    """Made with one long transform, as a filter makes it, wherever its middle is: blocks that are just cut out show 5
    of 10 dB in a single subcarrier, and 16 of 40 in eight. Of 40 dB the window shows 30 in one, all but 2 % in two."""
    rng = np.random.default_rng(15)

    def filtered(blocks: int) -> Spectrum:
        samples = white(blocks, rng)
        f = np.fft.fftfreq(samples.size) * 256
        low = np.abs(f - 40.25) <= wide / 2.0
        samples = np.fft.ifft(np.fft.fft(samples) * np.where(low, 10 ** (-depth_db / 20), 1.0)).astype(np.complex64)
        return spectrum_of(observe_silence(samples, DEFAULT))

    own = filtered(256)
    pool = NoisePool.of(filtered(2048)).settled().joined(own)
    truth = NOISE_VAR_REAL * decibels(-depth_db)
    found = pool.bound(own, CONFIDENCE).noise_var_real / truth
    assert 0.7 < found < {(40.0, 1.0): 12.0, (40.0, 2.0): 1.05}.get((depth_db, wide), 1.0)
    cut = replace(pool, windowed=None, fine=None).bound(own, CONFIDENCE).noise_var_real / truth
    assert cut >= found
    assert (cut > 2.0) == (depth_db == 40.0 or (depth_db, wide) == (10.0, 1.0))


def test_noise_without_notches_costs_nothing_for_them() -> None:
    """In 40 pools of white noise no part of a bin is taken for quieter: that comes once in 1e4."""
    rng = np.random.default_rng(16)
    for _ in range(40):
        own = spectrum_of(observe_silence(white(256, rng), DEFAULT))
        pool = NoisePool.of(own).settled()
        plain = replace(pool, windowed=None, fine=None).bound(own, CONFIDENCE).noise_var_real
        assert pool.bound(own, CONFIDENCE).noise_var_real > 0.9 * plain


def test_the_minimum_needs_no_correction_for_having_been_looked_for() -> None:
    """Bonferroni would spend a 192nd of the error on each; the smallest of them is below the truth as often without."""
    rng = np.random.default_rng(4)
    powers = drawn(SPECTRA["notch-3"], 4096, 20_000, rng)
    held = np.mean(variance_lower_factor(4096, 0.01) * powers.min(axis=1) <= SPECTRA["notch-3"].min())
    # Tight where one subcarrier is quietest by far: 1 % within five standard deviations of 0.07 %.
    assert held == pytest.approx(0.99, abs=0.0035)


def test_a_bound_from_the_pool_alone_is_found_out_where_the_level_falls() -> None:
    """The level is the uplink's own: after a fall by 0.2 dB the pool's mean is above the truth, the bound below it."""
    rng = np.random.default_rng(5)
    fallen = decibels(-0.2)
    first, now = drawn(np.ones(BINS), 10**6, 1, rng)[0], drawn(fallen * np.ones(BINS), 256, 1, rng)[0]
    pool = NoisePool.of(spectrum(first, 10**6)).settled()
    assert pool.agreement(spectrum(now, 256)).holds
    bound = pool.joined(spectrum(now, 256)).bound(spectrum(now, 256), CONFIDENCE)
    assert bound.noise_var_real <= fallen / 2.0
    assert bound.noise_var_real > 0.96 * fallen / 2.0


# Agreement.


def test_noise_that_has_not_changed_ends_a_pool_as_rarely_as_stated() -> None:
    """20,000 silences at a level of 1e-4: 2 expected, more than 9 has the probability 5e-5 (Poisson)."""
    rng = np.random.default_rng(6)
    truth = SPECTRA["tilted"]
    pool = NoisePool.of(spectrum(drawn(truth, 4096, 1, rng)[0], 4096)).settled()
    silences = drawn(truth, 256, 20_000, rng)
    ended = sum(not pool.agreement(spectrum(powers, 256)).holds for powers in silences)
    assert ended <= 9
    assert DISAGREEMENT_LEVEL == 1e-4


@pytest.mark.parametrize(("fall_db", "lowest"), [(2.5, 0.9), (4.0, 1.0)])
def test_a_subcarrier_that_falls_ends_the_pool(fall_db: float, lowest: float) -> None:
    rng = np.random.default_rng(7)
    pool = NoisePool.of(spectrum(drawn(np.ones(BINS), 4096, 1, rng)[0], 4096)).settled()
    silences = drawn(notched(fall_db), 256, 300, rng)
    assert np.mean([not pool.agreement(spectrum(powers, 256)).holds for powers in silences]) >= lowest


def test_a_fall_too_small_for_one_silence_is_found_in_several() -> None:
    """0.8 dB within 16 silences, nine times in ten, though one of them alone sees it hardly ever."""
    rng = np.random.default_rng(8)
    seen, at_once = 0, 0
    for _ in range(100):
        pool = NoisePool.of(spectrum(drawn(np.ones(BINS), 4096, 1, rng)[0], 4096)).settled()
        for number, powers in enumerate(drawn(notched(0.8), 256, 16, rng)):
            silence = spectrum(powers, 256)
            if not pool.agreement(silence).holds:
                seen += 1
                at_once += number == 0
                break
            pool = pool.joined(silence)
    assert seen >= 90
    assert at_once <= 10


def test_a_level_beyond_the_tolerance_ends_the_pool() -> None:
    rng = np.random.default_rng(9)
    pool = NoisePool.of(spectrum(drawn(np.ones(BINS), 4096, 1, rng)[0], 4096)).settled()
    for change_db, holds in ((0.0, True), (LEVEL_TOLERANCE_DB, True), (2 * LEVEL_TOLERANCE_DB, False), (-0.5, False)):
        agreement = pool.agreement(spectrum(drawn(decibels(change_db) * np.ones(BINS), 256, 1, rng)[0], 256))
        assert agreement.holds is holds
        assert agreement.level_db == pytest.approx(change_db, abs=0.12)


# Values.


def test_more_silences_give_more_noise_to_count_on() -> None:
    own = spectrum(np.ones(BINS), 256)
    bounds = [
        NoisePool.of(spectrum(np.ones(BINS), blocks)).joined(own).bound(own, 1.0 - 1e-9).noise_var_real
        for blocks in (256, 1024, 4096, 16384)
    ]
    assert bounds == sorted(bounds)
    # Without chance in the powers: five and a half standard deviations of 1/sqrt(16384), and of the level.
    assert bounds[-1] == pytest.approx(0.5 * (1 - 6.0 / 128 - 6.1 / math.sqrt(256 * BINS)), rel=0.01)


def test_parts_of_the_error_are_the_whole() -> None:
    assert sum(SHARES.values()) == pytest.approx(1.0)
    own = spectrum(np.ones(BINS), 256)
    bound = NoisePool.of(own).bound(own, CONFIDENCE)
    assert (bound.source, bound.confidence) == (BoundSource.POOL, CONFIDENCE)
    assert "256 blocks of agreeing silences" in bound.reason


def test_unequal_i_and_q_lower_the_bound_by_the_image() -> None:
    """An image at -30 dB has |rho| = 0.063; the bound is below the quieter axis and not far below it."""
    rng = np.random.default_rng(11)
    truth = NOISE_VAR_REAL * (1.0 - 10.0**-1.5) ** 2
    silences = [spectrum_of(observe_silence(iq_imbalance(white(1024, rng), -30.0), DEFAULT)) for _ in range(4)]
    pool = NoisePool.of(silences[0])
    for silence in silences[1:]:
        assert pool.agreement(silence).holds
        pool = pool.joined(silence)
    assert 0.87 * truth < pool.bound(silences[-1], CONFIDENCE).noise_var_real <= truth


def test_spurs_take_no_part_in_the_level() -> None:
    """A tone that has come since does not raise what is counted on."""
    rng = np.random.default_rng(12)
    clean = spectrum_of(observe_silence(white(1024, rng), DEFAULT))
    noise = white(256, rng)
    wavering = np.repeat(white(256, rng)[:256] * 30.0, 256) * tone(noise.size, 25.0, 1.0)
    disturbed = spectrum_of(observe_silence((noise + wavering).astype(np.complex64), DEFAULT))
    assert not disturbed.steady.all()
    pool = NoisePool.of(clean)
    assert pool.joined(disturbed).bound(disturbed, CONFIDENCE).noise_var_real <= NOISE_VAR_REAL


def test_other_bins_can_be_asked_for() -> None:
    """The band to 0.41 of the sample rate, which sidelobes of a payload reach."""
    numbers = np.concatenate([np.arange(-105, 0), np.arange(1, 106)]) % 256
    rng = np.random.default_rng(13)
    wide = spectrum_of(observe_silence(white(64, rng), DEFAULT, numbers))
    assert wide.powers.shape == (210,)
    bound = NoisePool.of(wide).bound(wide, CONFIDENCE)
    assert bound.noise_var_real <= NOISE_VAR_REAL
    assert bound.bin in numbers
    with pytest.raises(MeasurementError, match="other bins than its pool"):
        NoisePool.of(wide).joined(spectrum_of(observe_silence(white(64, rng), DEFAULT)))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_power_that_is_none_is_refused(bad: float) -> None:
    powers = np.ones(BINS)
    powers[3] = bad
    with pytest.raises(MeasurementError, match="not above 0"):
        spectrum(powers, 16)
