"""Sample numbers and ticks of a box's clock: whole numbers, because seconds as floating point lose samples."""

from dataclasses import dataclass
from typing import Any

from hardware.radio.errors import CapabilityError
from hardware.usrp.library import library

_WHOLE = 1e-6


@dataclass(frozen=True)
class Ticks:
    """tick_rate_hz: of the box's clock. per_sample: ticks of one sample. origin: tick of sample 0."""

    tick_rate_hz: float
    per_sample: int
    origin: int = 0

    def time_of(self, sample: int) -> Any:
        """UHD's time of a sample, exactly."""
        return library().types.TimeSpec.from_ticks(self.origin + sample * self.per_sample, self.tick_rate_hz)

    def between(self, time_spec: Any) -> bool:
        """Whether a time is between those of two samples."""
        return bool((int(time_spec.to_ticks(self.tick_rate_hz)) - self.origin) % self.per_sample)

    def sample_at(self, time_spec: Any) -> int:
        """The sample that is under way at a time: for times of samples, that sample."""
        return (int(time_spec.to_ticks(self.tick_rate_hz)) - self.origin) // self.per_sample


def ticks_of(name: str, tick_rate_hz: float, sample_rate_hz: float) -> Ticks:
    """For a rate that must be a whole fraction of the clock's: otherwise samples have no tick of their own."""
    ratio = tick_rate_hz / sample_rate_hz
    whole = round(ratio)
    if whole < 1 or abs(ratio - whole) > _WHOLE:
        raise CapabilityError(
            f"{name}: sample_rate_hz is {sample_rate_hz:.12g}: its clock of {tick_rate_hz:.12g} Hz makes whole "
            f"fractions of that, such as {tick_rate_hz / max(1, whole):.12g}"
        )
    return Ticks(tick_rate_hz, whole)
