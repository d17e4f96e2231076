"""Clipping keeps its bound in exact arithmetic, for every float32 there is, and the sensitivities follow from it.

Oracle for norms: `fractions.Fraction`, in which sums and squares of floats have no rounding.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray
from scipy.linalg import hadamard

from fl.errors import PrivacyError
from fl.privacy.clipping import (
    MOST_TERMS,
    ROUNDING,
    SMALLEST_CLIP_NORM,
    BoundedUpdate,
    checked_clip_norm,
    clip_update,
    mean_of_clipped,
    per_sample_scales,
)
from fl.privacy.sensitivity import Clipping, Label, Neighbours
from phy.grid import CoordinateGrid
from phy.modem import modulate
from phy.numerology import Numerology

Vector = NDArray[np.float32]

FLOAT32_MAX = float(np.finfo(np.float32).max)
any_float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
vectors = npst.arrays(np.float32, st.integers(1, 20), elements=any_float32)
clip_norms = st.floats(-12, 40).map(lambda exponent: max(10.0**exponent, SMALLEST_CLIP_NORM))


def squared_norm(values: NDArray[np.floating]) -> Fraction:
    return sum((Fraction(float(value)) ** 2 for value in values), Fraction(0))


@settings(max_examples=300, deadline=None)
@given(vectors, clip_norms)
def test_the_norm_is_within_the_bound_in_exact_arithmetic(update: Vector, clip_norm: float) -> None:
    bounded = clip_update(update, clip_norm)
    assert squared_norm(bounded.values) <= Fraction(clip_norm) ** 2
    assert bounded.clip_norm == clip_norm
    assert bounded.values.dtype == np.float32
    assert bounded.norm_before == pytest.approx(math.sqrt(squared_norm(update)), rel=1e-12)


@settings(max_examples=200, deadline=None)
@given(vectors, st.floats(1e-3, 1e3))
def test_an_update_at_the_bound_is_the_hard_case(direction: Vector, clip_norm: float) -> None:
    """Scaled so that its norm is the bound up to rounding, where an error of one unit would break the bound."""
    norm = np.linalg.norm(direction.astype(np.float64))
    if norm == 0:
        return
    update = (direction.astype(np.float64) * (clip_norm / norm)).astype(np.float32)
    for candidate in (update, np.nextafter(update, np.copysign(np.float32(np.inf), update))):
        assert squared_norm(clip_update(candidate, clip_norm).values) <= Fraction(clip_norm) ** 2


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e3, 1e30, 1e37])
def test_the_bound_holds_at_the_size_of_a_model(scale: float) -> None:
    """155,830 coordinates. A float32 squared is exact in float64 and `fsum` rounds once. At 1e30 a float32 norm would
    overflow; at 1e37 a float32 factor would be subnormal."""
    update = (scale * np.random.default_rng(1).standard_normal(155_830)).astype(np.float32)
    long = float(np.linalg.norm(update.astype(np.float64)))
    for clip_norm in (1.0, 1e-5, max(0.9999 * long, SMALLEST_CLIP_NORM)):
        values = clip_update(update, clip_norm).values.astype(np.float64)
        norm = math.sqrt(math.fsum((values * values).tolist()))
        assert norm <= clip_norm
        if long > clip_norm:
            assert norm >= clip_norm * (1 - 1e-6), "clipped further than needed"


@pytest.mark.parametrize("clip_norm", [1e-7, 3.3e-6, 1.1e-5, 0.7])
def test_the_longest_updates_are_not_rounded_over_the_bound(clip_norm: float) -> None:
    """clip_norm / norm is below 2^-126 here: as float32 it is subnormal and off by up to half of itself."""
    update = np.full(3, FLOAT32_MAX, np.float32)
    assert squared_norm(clip_update(update, clip_norm).values) <= Fraction(clip_norm) ** 2


@settings(max_examples=200, deadline=None)
@given(vectors, clip_norms)
def test_it_never_lengthens_and_keeps_the_direction(update: Vector, clip_norm: float) -> None:
    bounded = clip_update(update, clip_norm)
    assert np.all(np.abs(bounded.values) <= np.abs(update))
    assert np.all(np.sign(bounded.values) * np.sign(update) >= 0)
    norm = math.sqrt(squared_norm(update))
    if norm <= clip_norm * (1 - 2**-21):
        np.testing.assert_array_equal(bounded.values, update)
    else:
        expected = update.astype(np.float64) * min(1.0, clip_norm / norm)
        np.testing.assert_allclose(bounded.values, expected, rtol=5e-7, atol=2e-45)


@settings(max_examples=100, deadline=None)
@given(vectors, vectors, st.floats(1e-6, 1e6))
def test_clipping_is_a_projection_and_brings_no_two_updates_further_apart(
    one: Vector, other: Vector, clip_norm: float
) -> None:
    """Projection onto a convex set is non-expansive: why a clipped mean keeps the sensitivity of the mean."""
    size = min(one.size, other.size)
    one, other = (np.clip(v[:size], -1e6, 1e6) for v in (one, other))
    before = float(np.linalg.norm(one.astype(np.float64) - other.astype(np.float64)))
    clipped = [clip_update(v, clip_norm).values.astype(np.float64) for v in (one, other)]
    assert float(np.linalg.norm(clipped[0] - clipped[1])) <= before * (1 + 1e-6) + 1e-6 * clip_norm


def test_zero_stays_zero_and_keeps_its_bound() -> None:
    bounded = clip_update(np.zeros(4, np.float32), 1.0)
    assert not np.any(bounded.values)
    assert bounded.norm_before == 0.0
    assert bounded.clipping == Clipping.whole(1.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_not_sent(bad: float) -> None:
    with pytest.raises(PrivacyError, match="client 3 has 2 NaN or infinite of 5 coordinates"):
        clip_update(np.array([0, bad, 1, bad, 2], np.float32), 1.0, origin="client 3")


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, 1e-13])
def test_what_is_no_bound_is_refused(bad: float) -> None:
    for use in (
        lambda: checked_clip_norm(bad),
        lambda: clip_update(np.ones(2, np.float32), bad),
        lambda: per_sample_scales(np.ones(2), bad, terms=2),
        lambda: mean_of_clipped(np.ones(2, np.float32), 2, bad),
    ):
        with pytest.raises(PrivacyError, match="clip norm"):
            use()


def test_an_update_clipped_as_a_whole_bounds_the_client_and_no_record() -> None:
    clipping = clip_update(np.ones(4, np.float32), 0.5).clipping
    assert clipping.sensitivity(Label.CLIENT, Neighbours.ZERO_OUT) == 0.5
    assert clipping.sensitivity(Label.CLIENT, Neighbours.REPLACE_ONE) == 1.0
    assert clipping.sensitivity(Label.RECORD, Neighbours.ZERO_OUT) == math.inf
    assert clipping.sensitivity(Label.RECORD, Neighbours.REPLACE_ONE) == math.inf


samples = st.integers(1, 6).flatmap(
    lambda d: npst.arrays(
        np.float32,
        st.tuples(st.integers(1, 12), st.just(d)),
        elements=st.floats(-(2.0**66), 2.0**66, width=32),
    )
)


def clipped_terms(terms: NDArray[np.float32], clip_norm: float) -> NDArray[np.float64]:
    """The per-sample terms as a client scales them, with the product in float64."""
    exact = terms.astype(np.float64)
    scales = per_sample_scales(np.linalg.norm(exact, axis=1), clip_norm, terms=len(exact))
    return np.asarray(scales.astype(np.float64)[:, None] * exact)


def mean_update(terms: NDArray[np.float32], clip_norm: float) -> BoundedUpdate:
    return mean_of_clipped(clipped_terms(terms, clip_norm).mean(axis=0).astype(np.float32), len(terms), clip_norm)


@settings(max_examples=200, deadline=None)
@given(samples, clip_norms)
def test_every_scaled_term_is_within_the_bound(terms: NDArray[np.float32], clip_norm: float) -> None:
    for term, scaled in zip(terms, clipped_terms(terms, clip_norm), strict=True):
        assert squared_norm(scaled) <= Fraction(clip_norm) ** 2
        if squared_norm(term) <= Fraction(clip_norm) ** 2:
            # Short terms lose no more than the two margins: that of the mean's rounding, and that of the factor's own.
            np.testing.assert_allclose(scaled, term.astype(np.float64), rtol=len(terms) * ROUNDING + 1e-6)


@settings(max_examples=200, deadline=None)
@given(samples, st.data(), st.floats(1e-6, 1e6))
def test_one_record_moves_the_mean_by_no_more_than_is_claimed(
    terms: NDArray[np.float32], data: st.DataObject, clip_norm: float
) -> None:
    """tau/n where the sample is taken out (its term becomes zero), 2 tau/n where it becomes any other."""
    which = data.draw(st.integers(0, len(terms) - 1))
    other = terms.copy()
    other[which] = data.draw(npst.arrays(np.float32, terms.shape[1], elements=st.floats(-(2.0**66), 2.0**66, width=32)))
    without = clipped_terms(terms, clip_norm)
    without[which] = 0.0
    mean = clipped_terms(terms, clip_norm).mean(axis=0)
    claim = mean_update(terms, clip_norm)
    assert claim.clipping == Clipping.each_of(len(terms), clip_norm)
    for neighbour, neighbours in (
        (without.mean(axis=0), Neighbours.ZERO_OUT),
        (clipped_terms(other, clip_norm).mean(axis=0), Neighbours.REPLACE_ONE),
    ):
        moved = float(np.linalg.norm(mean - neighbour))
        assert moved <= claim.clipping.sensitivity(Label.RECORD, neighbours)
    # What is sent is the mean in float32, which rounds each coordinate of both means once more: it is in the claim.
    sent = np.linalg.norm(claim.values.astype(np.float64) - mean_update(other, clip_norm).values.astype(np.float64))
    assert float(sent) <= claim.clipping.sensitivity(Label.RECORD, Neighbours.REPLACE_ONE)


def test_the_claimed_sensitivity_is_not_larger_than_needed() -> None:
    """Opposite samples at the bound reach it: a claim of half as much would be wrong, and the test above would see."""
    terms = np.array([[1e9], [3.0], [-2.0]], np.float32)
    other = terms * np.array([[-1], [1], [1]], np.float32)
    one = mean_update(terms, 1.0)
    moved = abs(float(one.values[0]) - float(mean_update(other, 1.0).values[0]))
    assert moved == pytest.approx(one.clipping.sensitivity(Label.RECORD, Neighbours.REPLACE_ONE), rel=1e-5)


@pytest.mark.parametrize("terms", [1000, 100_000, MOST_TERMS])
def test_what_float32_rounds_is_within_the_claim_of_large_clients(terms: int) -> None:
    """A long mean and one record: rounding both to float32 moves them further apart, and less than was left for it.

    A term that is clipped to tau itself goes beyond, as with 10^6 records of which nothing was left.
    """
    rng = np.random.default_rng(1)
    mean = rng.standard_normal(20_000)
    mean *= 0.95 / np.linalg.norm(mean)
    term = rng.standard_normal(mean.size)
    term *= 1e3 / np.linalg.norm(term)
    scale = float(per_sample_scales(np.array([1e3]), 1.0, terms=terms)[0])
    sent, without = (mean_of_clipped(m.astype(np.float32), terms, 1.0) for m in (mean, mean - scale * term / terms))
    moved = float(np.linalg.norm(sent.values.astype(np.float64) - without.values.astype(np.float64)))
    claimed = sent.clipping.sensitivity(Label.RECORD, Neighbours.ZERO_OUT)
    assert moved <= claimed
    assert moved + ROUNDING > claimed * (1 - 1e-3)


def test_without_room_for_rounding_the_claim_would_be_broken() -> None:
    rng = np.random.default_rng(1)
    mean = rng.standard_normal(20_000)
    mean *= 0.95 / np.linalg.norm(mean)
    term = rng.standard_normal(mean.size)
    term /= np.linalg.norm(term)
    moved = np.linalg.norm((mean.astype(np.float32) - (mean - term / 10**7).astype(np.float32)).astype(np.float64))
    assert moved > 1.02 / 10**7


@pytest.mark.parametrize("kind", ["white", "spike", "smooth", "few"])
def test_the_way_to_a_radio_rounds_less_than_is_left_for_it(kind: str) -> None:
    """Whitening and modulation in float32 against float64; twice, because both neighbours are rounded."""
    numerology = Numerology(1024, 0, 768, 1e6)
    grid = CoordinateGrid(numerology, 100_000, seed=1)
    rng = np.random.default_rng(2)
    shapes = {
        "white": rng.standard_normal(grid.coordinates),
        "spike": np.eye(1, grid.coordinates, 77)[0],
        "smooth": np.exp(-np.arange(grid.coordinates) / 5000),
        "few": rng.standard_normal(grid.coordinates) * (rng.random(grid.coordinates) < 1e-3),
    }
    update = (shapes[kind] / np.linalg.norm(shapes[kind])).astype(np.float32)
    samples = modulate(grid.to_cells(update), numerology)
    padded = np.zeros(2 * grid.cells)
    padded[: update.size] = update * np.sign(grid._signs).astype(np.float64)
    mixed = (hadamard(grid.order) / math.sqrt(grid.order)) @ padded.reshape(grid.order, -1)
    cells = mixed.reshape(-1).view(np.complex128).reshape(grid.symbols, -1)
    spectrum = np.zeros((grid.symbols, numerology.fft_size), np.complex128)
    spectrum[:, numerology.used_bins] = cells
    error = np.linalg.norm(samples - np.fft.ifft(spectrum, norm="ortho").reshape(-1))
    assert 2 * error < ROUNDING / 2


def test_update_clipping_alone_would_not_earn_the_record_claim() -> None:
    """One unclipped sample moves a clipped mean by 2 tau, whatever n is: why no record is bounded then."""
    terms = np.concatenate([np.zeros(99), [1e6]]).astype(np.float32)
    one = clip_update(np.array([terms.mean()], np.float32), 1.0)
    other = clip_update(np.array([-terms.mean()], np.float32), 1.0)
    assert abs(float(one.values[0] - other.values[0])) > 1.9
    assert one.clipping.sensitivity(Label.RECORD, Neighbours.REPLACE_ONE) > 1.9


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_samples_without_a_norm_are_refused(bad: float) -> None:
    with pytest.raises(PrivacyError, match="gradients of client 2 of 1 samples"):
        per_sample_scales(np.array([1.0, bad]), 1.0, terms=2, origin="gradients of client 2")


def test_factors_of_samples_that_are_zero_or_far_too_long() -> None:
    scales = per_sample_scales(np.array([0.0, 1e-300, 1.0, 4.0, 1e31, 1e38, 1e300]), 1.0, terms=7)
    assert scales.dtype == np.float32
    assert np.all(scales <= 1.0)
    np.testing.assert_allclose(scales[:4], [1.0, 1.0, 1.0, 0.25], rtol=1e-5)
    np.testing.assert_array_equal(scales[4:], 0.0)


def test_a_mean_that_cannot_be_one_of_clipped_terms_is_refused() -> None:
    with pytest.raises(PrivacyError, match="not clipped"):
        mean_of_clipped(np.array([2.0], np.float32), 10, 1.0)
    for terms in (0, -3, MOST_TERMS + 1):
        with pytest.raises(PrivacyError, match="expected 1 to"):
            mean_of_clipped(np.array([0.5], np.float32), terms, 1.0)
    with pytest.raises(PrivacyError, match="NaN"):
        mean_of_clipped(np.array([np.nan], np.float32), 10, 1.0)
