from typing import Any

import pytest

from hardware.foundation.tables import differing_keys, flat

LAB: dict[str, Any] = {
    "name": "bench",
    "medium": {"noise": 1e-5, "taps": [[0, 0.0], [3, -6.0]], "radio": {}},
    "radio": [{"name": "ps", "gain": 0.0}, {"name": "client-1", "gain": 3.0}],
}


def test_values_go_by_dotted_keys_and_entries_by_their_names() -> None:
    assert flat(LAB) == {
        "name": "bench",
        "medium.noise": 1e-5,
        "medium.taps": [[0, 0.0], [3, -6.0]],
        "medium.radio": {},
        "radio.ps.name": "ps",
        "radio.ps.gain": 0.0,
        "radio.client-1.name": "client-1",
        "radio.client-1.gain": 3.0,
    }


@pytest.mark.parametrize("entries", [[], [{"gain": 1}], [{"name": "a"}, {"name": "a"}], [{"name": "a"}, 3]])
def test_lists_without_names_are_values(entries: list[Any]) -> None:
    assert flat({"radio": entries}) == {"radio": entries}


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({}, []),
        ({"name": "other"}, ["name"]),
        ({"medium": {**LAB["medium"], "noise": 2e-5}}, ["medium.noise"]),
        ({"medium": {**LAB["medium"], "taps": [[0, 0.0]]}}, ["medium.taps"]),
        ({"radio": LAB["radio"][:1]}, ["radio.client-1.name", "radio.client-1.gain"]),
        ({"radio": [LAB["radio"][0], {"name": "client-1", "gain": 4.0}]}, ["radio.client-1.gain"]),
        ({"more": {"x": None}}, ["more.x"]),
        ({"more": {}}, ["more"]),
    ],
)
def test_what_differs_is_named_from_either_side(change: dict[str, Any], keys: list[str]) -> None:
    assert differing_keys(LAB, {**LAB, **change}) == keys
    assert differing_keys({**LAB, **change}, LAB) == keys


def test_the_order_of_radios_does_not_count() -> None:
    assert differing_keys(LAB, {**LAB, "radio": LAB["radio"][::-1]}) == []
