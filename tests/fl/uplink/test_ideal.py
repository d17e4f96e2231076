"""The ideal uplink: the exact weighted sum, and no privacy whatever is claimed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl.errors import PrivacyError
from fl.privacy.accountant import Accountant
from fl.privacy.clipping import clip_update
from fl.privacy.mechanism import SigmaOrigin
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import state_privacy
from fl.uplink.contract import as_cells, as_coordinates, cells_needed
from fl.uplink.ideal import IdealUplink

SIZES = np.array([100, 300, 600])


@settings(deadline=None)
@given(st.integers(1, 9))
def test_coordinates_and_cells_are_two_views_of_one_thing(coordinates: int) -> None:
    """I and Q alternate; an odd number leaves the last Q empty."""
    values = np.arange(1, coordinates + 1, dtype=np.float32)
    cells = as_cells(values)
    assert cells.shape == (cells_needed(coordinates),)
    assert cells.dtype == np.complex64
    np.testing.assert_array_equal(cells.real, values[0::2])
    np.testing.assert_array_equal(cells.imag[: coordinates // 2], values[1::2])
    if coordinates % 2:
        assert cells.imag[-1] == 0
    np.testing.assert_array_equal(as_coordinates(cells, coordinates), values)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.floats(0.1, 100))
def test_it_is_the_weighted_sum(coordinates: int, clip_norm: float) -> None:
    uplink = IdealUplink(SIZES, coordinates, clip_norm, record_bounded=False)
    rng = np.random.default_rng(coordinates)
    updates = [clip_update(rng.standard_normal(coordinates).astype(np.float32), clip_norm) for _ in SIZES]
    plan = uplink.plan(1)
    authorised: list[None] = []
    aggregate = uplink.exchange(plan, enumerate(updates), lambda: authorised.append(None))
    assert len(authorised) == 1
    expected = sum(p * u.values.astype(np.float64) for p, u in zip((0.1, 0.3, 0.6), updates, strict=True))
    np.testing.assert_allclose(aggregate.values, expected, rtol=0, atol=1e-6)
    assert aggregate.values.dtype == np.float32
    assert aggregate.signal_norm == pytest.approx(float(np.linalg.norm(expected)), rel=1e-4, abs=1e-6)
    assert aggregate.noise_norm == 0.0
    assert aggregate.contributions.clipped == sum(u.norm_before > clip_norm for u in updates)


@pytest.mark.parametrize("label", list(Label))
def test_without_noise_there_is_no_privacy(label: Label) -> None:
    uplink = IdealUplink(SIZES, 3, 1.0, record_bounded=True)
    mechanism = uplink.plan(1).mechanism
    assert mechanism.sigma_origin is SigmaOrigin.NONE
    said = state_privacy([mechanism], SIZES, label=label, neighbours=Neighbours.ZERO_OUT, delta=0.99)
    assert said.epsilon[Accountant.EXACT] == math.inf
    assert said.epsilon[Accountant.PAPER] == math.inf


def never() -> None:
    raise AssertionError("it was authorised")


def test_it_refuses_what_the_symbol_uplink_refuses() -> None:
    """Learning must not be able to tell the two apart."""
    uplink = IdealUplink(SIZES, 4, 1.0, record_bounded=True)
    update = clip_update(np.ones(4, np.float32), 1.0)
    with pytest.raises(PrivacyError, match="client 0 did not clip per sample"):
        uplink.exchange(uplink.plan(1), [(0, update)], never)
    uplink = IdealUplink(SIZES, 4, 1.0, record_bounded=False)
    for updates, match in (
        ([(0, clip_update(np.ones(4, np.float32), 1.1))], "clipped to 1.1"),
        ([(0, clip_update(np.ones(3, np.float32), 1.0))], "shape"),
        ([(0, update), (0, update)], "client 0 is not the next sender"),
        ([(0, update), (1, update)], "client 2 has no update"),
    ):
        with pytest.raises(PrivacyError, match=match):
            uplink.exchange(uplink.plan(1), updates, never)
