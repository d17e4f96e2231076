"""A recording: what one radio received, or sent, in the order in which it did, and what is marked in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hardware.radio.errors import HardwareError
from hardware.radio.samples import Capture


class RecordingError(HardwareError):
    """A recording that is missing, incomplete or not what airdp writes."""


@dataclass(frozen=True)
class Segment:
    """Samples that came in one piece. time: when the radio handed them over, in UTC."""

    capture: Capture
    time: datetime


@dataclass(frozen=True)
class Mark:
    """Something at a place in the recording. start_sample: in the radio's count. edges_hz: lowest and highest."""

    start_sample: int
    sample_count: int
    label: str
    comment: str
    edges_hz: tuple[float, float] | None = None


@dataclass(frozen=True)
class Recording:
    """radio: its name. hardware, description: in words. facts: further keys, JSON-ready, of the extension `airdp`."""

    radio: str
    hardware: str
    description: str
    segments: tuple[Segment, ...]
    marks: tuple[Mark, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sample_count(self) -> int:
        """Samples of all segments."""
        return sum(segment.capture.samples.size for segment in self.segments)


class Tape:
    """A tap that keeps what it is shown: see `Radio.tap_received` and `tap_sent`. It is on between `wind` and `cut`."""

    def __init__(self) -> None:
        self._segments: list[Segment] | None = None

    def __call__(self, capture: Capture) -> None:
        """Keep a copy."""
        if self._segments is not None:
            own = Capture(
                capture.samples.copy(),
                capture.start_sample,
                capture.settings,
                capture.clipped_samples,
                capture.temperature_c,
                capture.rssi_db,
            )
            self._segments.append(Segment(own, datetime.now(UTC)))

    def wind(self) -> None:
        """Begin anew; what was kept is forgotten."""
        self._segments = []

    @property
    def sample_count(self) -> int:
        """Samples that are kept now."""
        return sum(segment.capture.samples.size for segment in self._segments or ())

    def cut(self) -> tuple[Segment, ...]:
        """What was kept, and no more is."""
        segments, self._segments = self._segments, None
        return tuple(segments or ())
