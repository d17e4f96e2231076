"""Values as JSON and back, and differences by name and size."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl.errors import RunFolderError
from fl.nodes.journal.codec import Arrays, decode, differences, encode
from fl.nodes.messages import Decision, LevelChange, Sent, Sound


def through_json(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


@given(st.floats(allow_nan=False))
def test_numbers_come_back_bit_for_bit(number: float) -> None:
    back = through_json(LevelChange(gain=number, std=1.0, level=1.0))
    assert np.float64(back.gain).tobytes() == np.float64(number).tobytes()


@pytest.mark.parametrize(
    "value",
    [None, True, 7, "x", 1.5, math.inf, 2 - 3j, (1, (2.0, "y")), Sent(5), Decision(1.0, 2.0, 3.0, 4.0, 5.0), {"a": 1}],
)
def test_values_come_back(value: Any) -> None:
    assert through_json(value) == value


@pytest.mark.parametrize("dtype", [np.complex64, np.float64, np.int64, np.dtype(">f4")])
def test_arrays_come_back(dtype: Any) -> None:
    values = np.arange(6).reshape(2, 3).astype(dtype)
    assert np.array_equal(through_json(values), values)


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        encode(object())
    with pytest.raises(RunFolderError, match="another version"):
        decode({"is": "Unheard"})
    with pytest.raises(RunFolderError, match="another version"):
        decode({"is": "Sent", "sample": 5})


def found(recorded: Any, replayed: Any) -> dict[str, str]:
    return {one.quantity: one.detail for one in differences(encode(recorded), encode(replayed), "it")}


def test_differences_are_named_and_measured() -> None:
    same = Decision(1.0, 2.0, 3.0, 4.0, 5.0)
    assert found(same, same) == {}
    assert found(same, Decision(1.0, 2.5, 3.0, 4.0, 5.0)) == {"it.gain_upper": "2.0 was recorded, 2.5 comes out: +0.5"}
    assert list(found(Sent(3), Sound(3))) == ["it"]
    values = np.zeros(8, np.complex64)
    other = values.copy()
    other[5] = 3 + 4j
    assert found(values, other) == {"it": "1 of 8 values, the first at 5, by up to 5"}
    assert found((Sent(1), Sent(2)), (Sent(1), Sent(4))) == {"it[1].samples": "2 was recorded, 4 comes out: +2"}
    assert "shape" in found(values, values[:4])["it"]


def test_a_digest_tells_that_not_by_how_much() -> None:
    values = np.zeros(8)
    digests = [encode(array, Arrays.DIGEST) for array in (values, values, values + 1)]
    assert digests[0] == digests[1]
    (one,) = differences(digests[0], digests[2], "it")
    assert one.quantity == "it"
    assert "array" not in digests[0]
