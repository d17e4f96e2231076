"""Whether a stream that is counted in samples keeps step with the wall clock."""

import math

_DRIFT = 2e-4
"""Relative: no two crystals differ by as much."""
_HOST_SLACK_S = 0.05


class Watchdog:
    """Finds lost samples that no status register tells of.

    A reader may be late by what queues hold, and catches up; samples that were lost never come. So the count may fall
    behind its own best by the queues' capacity and the host's delays, and by nothing more. Single buffers stay below
    that: they show in the status register, or here once several are gone.
    """

    def __init__(self, rate_hz: float, queue_samples: int) -> None:
        self._rate_hz = rate_hz
        self._slack = queue_samples + _HOST_SLACK_S * rate_hz
        self._best = -math.inf
        self._last_s = 0.0

    def missing(self, counted: int, now_s: float) -> int:
        """Samples that are missing for certain after `counted` at the time `now_s`; 0 where all may be there.

        What was reported once is not reported again.
        """
        lead = counted - self._rate_hz * now_s
        self._best = max(self._best - _DRIFT * self._rate_hz * (now_s - self._last_s), lead)
        self._last_s = now_s
        behind = self._best - lead
        if behind <= self._slack:
            return 0
        self._best = lead
        return round(behind)
