"""Whether the radios of a lab share a clock."""

from enum import StrEnum


class ClockMode(StrEnum):
    """Whether radios share a reference."""

    SHARED = "shared"
    FREE_RUNNING = "free-running"
