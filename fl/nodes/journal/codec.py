"""What is said between coordinator and nodes as JSON, exactly, and where two such texts differ.

Dataclasses are objects with their class's name under "is", arrays objects with their bytes; every number reads back as
it was, bit for bit.
"""

import base64
import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.pooling.noise_pool import NoisePool
from fl.errors import RunFolderError
from fl.nodes import messages

NOT_MEASURED = frozenset({"samples", "cells", "power"})
"""Of a server's answers: what is in the recording, follows from it and is large, or is made for pictures."""
_CLASSES = {
    name: kind
    for name, kind in {**vars(messages), "NoisePool": NoisePool}.items()
    if isinstance(kind, type) and is_dataclass(kind)
}


class Arrays(Enum):
    """How arrays are written: all of their bytes, or a digest of them where the values are written elsewhere."""

    WHOLE = "whole"
    DIGEST = "digest"


def encode(value: Any, arrays: Arrays = Arrays.WHOLE) -> Any:
    """JSON-ready. Numbers that JSON has not, enums and NumPy's numbers become what they stand for."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.generic):
        return encode(value.item(), arrays)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": str(value)}
    if isinstance(value, complex):
        return {"complex": [encode(value.real), encode(value.imag)]}
    if isinstance(value, np.ndarray):
        return _encode_array(value, arrays)
    if isinstance(value, Mapping):
        return {"mapping": [[key, encode(part, arrays)] for key, part in value.items()]}
    if isinstance(value, list | tuple):
        return [encode(part, arrays) for part in value]
    if is_dataclass(value):
        parts = {field.name: encode(getattr(value, field.name), arrays) for field in fields(value)}
        return {"is": type(value).__name__, **parts}
    raise TypeError(f"{type(value).__name__} cannot be written into a journal")


def encode_measured(answer: Any) -> Any:
    """A server's answer without `NOT_MEASURED`."""
    if not is_dataclass(answer):
        return encode(answer)
    names = [field.name for field in fields(answer) if field.name not in NOT_MEASURED]
    return {"is": type(answer).__name__, **{name: encode(getattr(answer, name)) for name in names}}


def _encode_array(value: NDArray[Any], arrays: Arrays) -> dict[str, Any]:
    content = np.ascontiguousarray(value)
    portable = content.dtype.newbyteorder("<")
    described = {"dtype": portable.str, "shape": list(content.shape)}
    raw = content.astype(portable, copy=False).tobytes()
    if arrays is Arrays.DIGEST:
        return {"sha256": hashlib.sha256(raw).hexdigest(), **described}
    return {"array": base64.b64encode(raw).decode(), **described}


def decode(data: Any) -> Any:
    """The value that `encode` made `data` of. Lists become tuples; of classes, messages and pools are known."""
    if isinstance(data, list):
        return tuple(decode(part) for part in data)
    if not isinstance(data, dict):
        return data
    if "number" in data:
        return float(data["number"])
    if "complex" in data:
        return complex(*(decode(part) for part in data["complex"]))
    if "mapping" in data:
        return {key: decode(part) for key, part in data["mapping"]}
    if "array" in data:
        return _decode_array(data)
    kind = _CLASSES.get(data.get("is", ""))
    if kind is None:
        raise RunFolderError(f"a journal has a '{data.get('is')}': it was written by another version of airdp")
    try:
        return kind(**{name: decode(part) for name, part in data.items() if name != "is"})
    except TypeError as error:
        raise RunFolderError(f"a journal's '{data['is']}' is of another version of airdp: {error}") from error


def _decode_array(data: Mapping[str, Any]) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(data["array"]), dtype=data["dtype"]).reshape(data["shape"])


@dataclass(frozen=True)
class Difference:
    """quantity: what differs. detail: by how much, in words."""

    quantity: str
    detail: str


def differences(recorded: Any, replayed: Any, quantity: str) -> Iterator[Difference]:
    """Where two encoded values differ, by the dotted name of each quantity that does."""
    if recorded == replayed:
        return
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        if "array" in recorded and "array" in replayed:
            yield Difference(quantity, array_difference(_decode_array(recorded), _decode_array(replayed)))
            return
        if "is" in recorded and recorded.keys() == replayed.keys():
            for name in recorded:
                yield from differences(recorded[name], replayed[name], f"{quantity}.{name}")
            return
    if isinstance(recorded, list) and isinstance(replayed, list) and len(recorded) == len(replayed):
        if all(_is_number(part) for part in (*recorded, *replayed)):
            yield Difference(quantity, array_difference(np.array(recorded), np.array(replayed)))
            return
        for place, (old, new) in enumerate(zip(recorded, replayed, strict=True)):
            yield from differences(old, new, f"{quantity}[{place}]")
        return
    if _is_number(recorded) and _is_number(replayed):
        yield Difference(quantity, f"{recorded!r} was recorded, {replayed!r} comes out: {replayed - recorded:+.3g}")
        return
    yield Difference(quantity, f"{_short(recorded)} was recorded, {_short(replayed)} comes out")


def array_difference(recorded: NDArray[Any], replayed: NDArray[Any]) -> str:
    """By how much two arrays differ, in words."""
    if recorded.shape != replayed.shape:
        return f"shape {recorded.shape} was recorded, {replayed.shape} comes out"
    changed = np.flatnonzero(recorded.reshape(-1) != replayed.reshape(-1))
    if not changed.size:
        return f"{recorded.dtype} was recorded, {replayed.dtype} comes out"
    largest = float(np.max(np.abs(np.subtract(replayed, recorded, dtype=np.result_type(recorded, np.float64)))))
    return f"{changed.size} of {recorded.size} values, the first at {changed[0]}, by up to {largest:.3g}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = "other values" if isinstance(value, dict) and "sha256" in value else str(value)
    return text if len(text) <= 200 else text[:200] + "…"
