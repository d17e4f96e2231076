import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.interpolate import BSpline

from hardware.air.front_end import FrontEnd
from hardware.pluto.converters import to_words, tx_step
from phy.dither import Dither, dithered, headroom, limited, seeded_words, system_words
from phy.errors import SignalError
from phy.impairments import quantise

STEP = 1.0 / 2047.0
COUNT = 200_000
PLACES = [0.0, 0.1, 0.25, 0.5, 0.77, -0.3]


def codes_at(place: float, dither: Dither, count: int = COUNT, seed: int = 1) -> NDArray[np.int64]:
    """Codes that a value `place` steps from a level leaves the converter with."""
    values = np.full(count // 2, place * STEP * (1 + 1j), np.complex64)
    out, shortened = dithered(values, STEP, dither, seeded_words(np.random.default_rng(seed)))
    assert shortened == 0
    return np.asarray(np.rint(out.view(np.float32) / STEP), dtype=np.int64)


@pytest.mark.parametrize("dither", Dither)
@pytest.mark.parametrize("place", PLACES)
def test_mean_and_variance_do_not_depend_on_the_value(place: float, dither: Dither) -> None:
    """Five standard errors; fourth moment of the error at most 3.5 var^2."""
    codes = codes_at(place, dither)
    assert abs(codes.mean() - place) < 5 * math.sqrt(dither.variance / codes.size)
    spread = float(np.mean((codes - place) ** 2))
    assert abs(spread - dither.variance) < 5 * dither.variance * math.sqrt(2.5 / codes.size)
    assert Dither.TRIANGULAR.variance == 0.25


@pytest.mark.parametrize("place", [0.1, 0.25])
def test_without_dither_the_mean_would_be_seen_to_be_wrong(place: float) -> None:
    plain, _ = quantise(np.full(10, place * STEP, np.complex64), 12)
    assert abs(plain.real.mean() / STEP - place) > 5 * math.sqrt(0.25 / COUNT)


@pytest.mark.parametrize("dither", Dither)
@pytest.mark.parametrize("place", PLACES)
def test_levels_have_the_probabilities_of_a_b_spline(place: float, dither: Dither) -> None:
    spline = BSpline.basis_element(np.arange(dither + 2) - (dither + 1) / 2, extrapolate=False)
    codes = codes_at(place, dither, seed=2)
    for level in range(-5, 6):
        expected = float(np.nan_to_num(spline(level - place)))
        error = 5 * math.sqrt(expected * (1 - expected) / codes.size) + 2e-5
        assert abs(np.mean(codes == level) - expected) < error


def test_axes_and_samples_are_independent() -> None:
    out, _ = dithered(np.zeros(COUNT, np.complex64), STEP, Dither.SMOOTH, system_words)
    parts = (out.view(np.float32) / STEP).reshape(-1, 2)
    for first, second in ((parts[:, 0], parts[:, 1]), (parts[:-1, 0], parts[1:, 0]), (parts[:-1, 1], parts[1:, 0])):
        assert abs(float(np.mean(first * second))) < 5 * Dither.SMOOTH.variance / math.sqrt(first.size)


def test_the_same_seed_gives_the_same_samples_and_the_system_never_does() -> None:
    values = np.zeros(1000, np.complex64)
    again = [
        dithered(values, STEP, Dither.TRIANGULAR, seeded_words(np.random.default_rng(seed)))[0] for seed in (3, 3, 4)
    ]
    assert np.array_equal(again[0], again[1])
    assert not np.array_equal(again[0], again[2])
    first, second = (dithered(values, STEP, Dither.TRIANGULAR, system_words)[0] for _ in range(2))
    assert not np.array_equal(first, second)


@pytest.fixture(params=[1000, 16384 // 2, 40_001])
def burst(request: pytest.FixtureRequest) -> NDArray[np.complex64]:
    rng = np.random.default_rng(5)
    values = 0.3 * (rng.standard_normal(request.param) + 1j * rng.standard_normal(request.param))
    return np.asarray(values, np.complex64)


@pytest.mark.parametrize("bits", [8, 12, 14, 16])
@pytest.mark.parametrize("dither", Dither)
def test_a_simulated_converter_changes_nothing(burst: NDArray[np.complex64], bits: int, dither: Dither) -> None:
    front_end = FrontEnd(dac_bits=bits)
    assert front_end.tx_step is not None
    out, _ = dithered(burst, front_end.tx_step, dither, seeded_words(np.random.default_rng(1)))
    sent, _ = front_end.send(out, 0.0)
    assert np.array_equal(sent.view(np.uint64), out.view(np.uint64))
    assert not np.array_equal(front_end.send(burst, 0.0)[0], burst)


@pytest.mark.parametrize("digital_db", [0.0, -0.1, -0.2499])
@pytest.mark.parametrize("dither", Dither)
def test_words_of_a_pluto_are_the_samples(burst: NDArray[np.complex64], digital_db: float, dither: Dither) -> None:
    scale = 10 ** (digital_db / 20)
    out, _ = dithered(burst, tx_step(scale), dither, seeded_words(np.random.default_rng(1)))
    words = to_words(out, scale).astype(np.float64)
    assert not np.any(words % 16)
    assert np.abs(words / (scale * 2**14) - out.view(np.float32).reshape(-1, 2)).max() < 1e-6 * tx_step(scale) / STEP


@pytest.mark.parametrize("dither", Dither)
@pytest.mark.parametrize("bits", [6, 12])
def test_nothing_is_pushed_beyond_full_scale(dither: Dither, bits: int) -> None:
    step = 1.0 / (2 ** (bits - 1) - 1)
    loud = (1.2 * np.exp(2j * np.pi * np.arange(50_000) / 50_000)).astype(np.complex64)
    out, shortened = dithered(loud, step, dither, seeded_words(np.random.default_rng(1)))
    assert shortened == loud.size
    assert np.abs(out).max() <= 1.0
    at_limit = (headroom(step, dither) * loud / np.abs(loud) * 0.999999).astype(np.complex64)
    assert dithered(at_limit, step, dither, seeded_words(np.random.default_rng(1)))[1] == 0


def test_limiting_keeps_phases_and_brings_signals_no_further_apart() -> None:
    rng = np.random.default_rng(2)
    first, change = (rng.standard_normal((2, 5000)) + 1j * rng.standard_normal((2, 5000))).astype(np.complex64)
    a, b = first, (first + 0.1 * change).astype(np.complex64)
    (short_a, count), (short_b, _) = limited(a, 0.8), limited(b, 0.8)
    assert count == np.count_nonzero(np.abs(a) > 0.8) > 0
    assert np.abs(short_a).max() <= 0.8 * (1 + 1e-6)
    assert np.allclose(np.angle(short_a), np.angle(a), atol=1e-6)
    assert np.all(np.abs(short_a - short_b) <= np.abs(a - b) * (1 + 1e-5) + 1e-7)
    untouched, none = limited(a, 100.0)
    assert untouched is a
    assert none == 0


@pytest.mark.parametrize("step", [0.0, -1.0, 0.2, math.nan])
def test_a_step_without_meaning_is_refused(step: float) -> None:
    with pytest.raises(SignalError, match="step"):
        dithered(np.zeros(3, np.complex64), step, Dither.TRIANGULAR, system_words)


def test_another_type_of_samples_is_refused() -> None:
    with pytest.raises(SignalError, match="complex64"):
        dithered(np.zeros(3), STEP, Dither.TRIANGULAR, system_words)  # type: ignore[arg-type]
