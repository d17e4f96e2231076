"""Ours and a reference, alternating in one process, so that a busy machine slows both."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """Seconds are medians; the ratio is the median of the pairs' ratios, below 1 where ours is faster."""

    workload: str
    reference: str
    ours_s: float
    reference_s: float
    ratio: float
    ratio_min: float
    ratio_max: float
    repeats: int
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]], **about: Any) -> "Measurement":
        """From pairs of seconds, ours and the reference's."""
        ratios = [own / theirs for own, theirs in pairs]
        return cls(
            ours_s=statistics.median(own for own, _ in pairs),
            reference_s=statistics.median(theirs for _, theirs in pairs),
            ratio=statistics.median(ratios),
            ratio_min=min(ratios),
            ratio_max=max(ratios),
            repeats=len(pairs),
            **about,
        )

    def to_json(self) -> dict[str, Any]:
        """Flat and JSON-ready."""
        data = asdict(self)
        return {**data.pop("facts"), **data}


@dataclass(frozen=True)
class Seconds:
    """By the clock on the wall and by the processor's, all threads together."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> "Seconds":
        """Both clocks."""
        return cls(time.perf_counter(), time.process_time())

    def since(self, before: "Seconds") -> "Seconds":
        """What has passed."""
        return Seconds(self.wall - before.wall, self.cpu - before.cpu)


def compare(
    ours: Callable[[], object],
    other: Callable[[], object],
    repeats: int,
    before: Callable[[], object] = lambda: None,
    facts: Mapping[str, Any] | None = None,
    *,
    one_thread: bool = False,
    **about: Any,
) -> Measurement:
    """Time both once to warm up, then in alternation; `before` is called ahead of each pair and not timed.

    one_thread: both sides have one. Then the processor's time is what is compared, because on a busy machine the wall
    clock says who had to wait; its ratio is among the facts.
    """
    pairs: list[tuple[Seconds, Seconds]] = []
    for number in range(repeats + 1):
        before()
        pair = (_seconds(ours), _seconds(other))
        if number:
            pairs.append(pair)
    walls = [(own.wall, theirs.wall) for own, theirs in pairs]
    if not one_thread:
        return Measurement.of(walls, facts=dict(facts or {}), **about)
    ratio_wall = statistics.median(own / theirs for own, theirs in walls)
    processor = [(own.cpu, theirs.cpu) for own, theirs in pairs]
    return Measurement.of(processor, facts={"ratio_wall": ratio_wall, **(facts or {})}, **about)


def _seconds(work: Callable[[], object]) -> Seconds:
    started = Seconds.now()
    work()
    return Seconds.now().since(started)
