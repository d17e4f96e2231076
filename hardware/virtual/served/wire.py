"""What is said between a radio and the air that serves it: one request, one answer, over a private Unix socket.

A message is one or two frames: MessagePack, and samples as complex64 where there are any.
"""

from dataclasses import asdict
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from hardware.radio import errors
from hardware.radio.errors import HardwareError
from hardware.radio.settings import RadioSettings

Samples = NDArray[np.complex64]
LARGEST_BYTES = 1 << 28
"""Of one message: 33 million samples."""


def packed(content: dict[str, Any], samples: Samples | None = None) -> list[Any]:
    """Frames of a message."""
    frames: list[Any] = [msgpack.packb(content)]
    if samples is not None:
        frames.append(np.ascontiguousarray(samples, np.complex64))
    return frames


def unpacked(frames: list[bytes]) -> tuple[dict[str, Any], Samples | None]:
    """Content and samples of a message; `HardwareError` where it is none."""
    try:
        content = msgpack.unpackb(frames[0])
        samples = np.frombuffer(frames[1], np.complex64) if len(frames) > 1 else None
    except (IndexError, ValueError, msgpack.UnpackException) as error:
        raise HardwareError(f"not a message of a served air: {error}") from error
    if not isinstance(content, dict):
        raise HardwareError(f"not a message of a served air: {type(content).__name__}")
    return content, samples


def settings_to_wire(settings: RadioSettings) -> dict[str, float]:
    """By name."""
    return asdict(settings)


def settings_from_wire(content: dict[str, Any]) -> RadioSettings:
    """Inverse of `settings_to_wire`; numbers that make no settings are a `HardwareError`."""
    try:
        return RadioSettings(**{name: float(value) for name, value in content.items()})
    except (TypeError, ValueError) as error:
        raise HardwareError(f"not the settings of a radio: {error}") from error


def raised(kind: str, text: str) -> HardwareError:
    """The error that the other side had, as its own class where that is one of a radio's."""
    found = getattr(errors, kind, HardwareError)
    known = isinstance(found, type) and issubclass(found, HardwareError)
    return found(text) if known else HardwareError(text)
