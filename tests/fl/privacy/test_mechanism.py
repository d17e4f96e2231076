"""One uplink's loss under every label, by hand; and its record, which must read back to the same bits or not at all."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl.errors import PrivacyError
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.privacy.sensitivity import Label, Neighbours

SIZES = np.array([100, 300, 600])

EXAMPLE = RoundMechanism(
    uplink=1,
    received_gains=(1.0, 0.5, 0.0),
    sigma=0.01,
    sigma_origin=SigmaOrigin.SIMULATED,
    record_bounded=True,
    clip_norm=2.0,
    alpha_u=100.0,
    alpha_cj=0.0,
    jammer_gain=0.0,
    noise_std_real=1.0,
)


@pytest.mark.parametrize(
    ("label", "neighbours", "ratios"),
    [
        # p_i g_i / sigma with p = (0.1, 0.3, 0.6); the third client is silent.
        (Label.CLIENT, Neighbours.ZERO_OUT, [10.0, 15.0, 0.0]),
        (Label.CLIENT, Neighbours.REPLACE_ONE, [20.0, 30.0, 0.0]),
        # g_i / (n sigma) with n = 1000.
        (Label.PAPER_CLAIM, Neighbours.ZERO_OUT, [0.1, 0.05, 0.0]),
        (Label.PAPER_CLAIM, Neighbours.REPLACE_ONE, [0.2, 0.1, 0.0]),
        (Label.RECORD, Neighbours.ZERO_OUT, [0.1, 0.05, 0.0]),
        (Label.RECORD, Neighbours.REPLACE_ONE, [0.2, 0.1, 0.0]),
    ],
)
def test_losses_by_hand(label: Label, neighbours: Neighbours, ratios: list[float]) -> None:
    np.testing.assert_allclose(EXAMPLE.noise_ratios(SIZES, label, neighbours), ratios, rtol=1e-14)
    np.testing.assert_allclose(EXAMPLE.losses(SIZES, label, neighbours), np.square(ratios) / 2, rtol=1e-14)


def test_rounding_by_hand() -> None:
    """0.02 over sigma is 2: a whole client pays it once, whatever its neighbours; a record 2^-22 of it while dither is
    counted on, and all of it where it is not. Who is silent rounds nothing."""
    rounds = replace(EXAMPLE, rounding=0.02)
    for neighbours in Neighbours:
        for label in (Label.RECORD, Label.PAPER_CLAIM):
            plain = EXAMPLE.noise_ratios(SIZES, label, neighbours)
            np.testing.assert_allclose(
                rounds.noise_ratios(SIZES, label, neighbours) - plain, [2.0**-21, 2.0**-21, 0.0], rtol=1e-6
            )
            np.testing.assert_allclose(
                rounds.noise_ratios(SIZES, label, neighbours, smoothed=False) - plain, [2.0, 2.0, 0.0], rtol=1e-12
            )
        plain = EXAMPLE.noise_ratios(SIZES, Label.CLIENT, neighbours)
        np.testing.assert_allclose(
            rounds.noise_ratios(SIZES, Label.CLIENT, neighbours) - plain, [2.0, 2.0, 0.0], rtol=1e-12
        )
    assert RoundMechanism.from_json(rounds.to_json()) == rounds


@pytest.mark.parametrize("label", list(Label))
@pytest.mark.parametrize(
    "changes",
    [
        {"sigma_origin": SigmaOrigin.UNKNOWN},
        {"sigma_origin": SigmaOrigin.NONE},
        {"sigma": 0.0},
        {"sigma": 0.0, "sigma_origin": SigmaOrigin.MEASURED},
    ],
)
def test_unknown_noise_protects_nobody_who_sends(label: Label, changes: dict[str, Any]) -> None:
    losses = replace(EXAMPLE, **changes).losses(SIZES, label, Neighbours.ZERO_OUT)
    np.testing.assert_array_equal(losses, [math.inf, math.inf, 0.0])


def test_the_record_label_must_be_earned() -> None:
    unearned = replace(EXAMPLE, record_bounded=False)
    np.testing.assert_array_equal(unearned.losses(SIZES, Label.RECORD, Neighbours.ZERO_OUT), [math.inf, math.inf, 0.0])
    for label in (Label.CLIENT, Label.PAPER_CLAIM):
        np.testing.assert_array_equal(
            unearned.losses(SIZES, label, Neighbours.ZERO_OUT), EXAMPLE.losses(SIZES, label, Neighbours.ZERO_OUT)
        )


@pytest.mark.parametrize("origin", [SigmaOrigin.SET, SigmaOrigin.SIMULATED, SigmaOrigin.MEASURED])
def test_a_known_sigma_counts_wherever_it_comes_from(origin: SigmaOrigin) -> None:
    losses = replace(EXAMPLE, sigma_origin=origin).losses(SIZES, Label.CLIENT, Neighbours.ZERO_OUT)
    np.testing.assert_array_equal(losses, EXAMPLE.losses(SIZES, Label.CLIENT, Neighbours.ZERO_OUT))


def test_without_backoff_every_sender_arrives_at_its_weight_at_least() -> None:
    measured = replace(EXAMPLE, received_gains=(1.25, 0.5, 0.0))
    assert measured.without_backoff() == replace(EXAMPLE, received_gains=(1.25, 1.0, 0.0))


def test_clients_must_be_as_many_as_gains() -> None:
    with pytest.raises(PrivacyError, match="3 gains for 2 clients"):
        EXAMPLE.losses(SIZES[:2], Label.CLIENT, Neighbours.ZERO_OUT)


amounts = st.floats(0, allow_infinity=False, allow_nan=False)


@settings(max_examples=200, deadline=None)
@given(
    st.builds(
        RoundMechanism,
        uplink=st.integers(1, 10**9),
        received_gains=st.lists(amounts, min_size=1, max_size=5).map(tuple),
        sigma=amounts,
        sigma_origin=st.sampled_from(SigmaOrigin),
        record_bounded=st.booleans(),
        clip_norm=amounts,
        alpha_u=amounts,
        alpha_cj=amounts,
        jammer_gain=amounts,
        noise_std_real=amounts,
    )
)
def test_its_record_reads_back_to_the_same_bits(mechanism: RoundMechanism) -> None:
    text = json.dumps(mechanism.to_json(), allow_nan=False)
    again = RoundMechanism.from_json(json.loads(text))
    assert again == mechanism
    assert repr(again) == repr(mechanism)
    assert json.dumps(again.to_json(), allow_nan=False) == text


NUMBERS = ("sigma", "clip_norm", "alpha_u", "alpha_cj", "jammer_gain", "noise_std_real")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, bad) for name in NUMBERS for bad in (-1.0, math.nan, math.inf, "0.5", None, True, [1.0])),
        *(("received_gains", bad) for bad in ([], [-1.0], [math.nan], [math.inf], ["1"], [None], [True])),
        *(("received_gains", bad) for bad in ("11", None, 1.0)),
        *(("uplink", bad) for bad in (0, -1, 1.5, "1", None, True)),
        *(("record_bounded", bad) for bad in ("false", "true", 0, 1, None)),
        *(("sigma_origin", bad) for bad in ("guessed", None, 1, "")),
    ],
)
def test_a_bad_field_is_refused(field: str, value: object) -> None:
    with pytest.raises(PrivacyError):
        RoundMechanism.from_json({**EXAMPLE.to_json(), field: value})


@pytest.mark.parametrize("field", [name for name in EXAMPLE.to_json() if name not in ("view", "bounds", "rounding")])
def test_a_missing_field_is_refused(field: str) -> None:
    record = EXAMPLE.to_json()
    del record[field]
    with pytest.raises(PrivacyError, match="not the record of an uplink"):
        RoundMechanism.from_json(record)


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(PrivacyError, match="not the record of an uplink"):
        RoundMechanism.from_json({**EXAMPLE.to_json(), "sigma_scale": 2.0})


@pytest.mark.parametrize(
    "changes",
    [
        {"uplink": 0},
        {"sigma": -1.0},
        {"sigma": math.nan},
        {"received_gains": ()},
        {"received_gains": (1.0, -0.1)},
        {"received_gains": (math.nan,)},
        {"alpha_u": math.nan},
        {"clip_norm": math.inf},
    ],
)
def test_a_bad_value_cannot_exist(changes: dict[str, Any]) -> None:
    with pytest.raises(PrivacyError):
        replace(EXAMPLE, **changes)


def test_without_the_jammer_the_receivers_noise_is_left() -> None:
    """sigma^2 = ((0.5 0.6)^2 + 0.4^2)/2^2 by hand, and 0.4^2/2^2 of it without."""
    jammed = replace(EXAMPLE, sigma=0.25, alpha_u=2.0, alpha_cj=0.6, jammer_gain=0.5, noise_std_real=0.4)
    alone = jammed.without_jammer()
    assert alone == replace(jammed, sigma=0.2, alpha_cj=0.0)
    assert alone.without_jammer() is alone
    assert (alone.losses(SIZES, Label.CLIENT, Neighbours.ZERO_OUT)[:2] > 0).all()
    # Never more than was charged: a sigma below what it is made of was lowered for a reason.
    assert replace(jammed, sigma=0.1).without_jammer().sigma == 0.1


@pytest.mark.parametrize("unknown", [{"noise_std_real": 0.0}, {"alpha_u": 0.0}])
def test_where_only_the_jammers_noise_is_known_its_absence_protects_nothing(unknown: dict[str, float]) -> None:
    jammed = replace(EXAMPLE, alpha_cj=0.6, jammer_gain=0.5, **unknown)  # type: ignore[arg-type]
    alone = jammed.without_jammer()
    assert alone.sigma_origin is SigmaOrigin.UNKNOWN
    assert alone.losses(SIZES, Label.CLIENT, Neighbours.ZERO_OUT).tolist() == [math.inf, math.inf, 0.0]


def test_an_uplink_that_nobody_jammed_stays_as_it_is() -> None:
    assert EXAMPLE.without_jammer() is EXAMPLE
