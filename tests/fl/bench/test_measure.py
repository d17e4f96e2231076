"""Ours and a reference side by side: what is compared, and what is reported."""

import itertools
from collections.abc import Callable

import pytest

from fl.bench import measure
from fl.bench.measure import compare


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Callable[[], None]]:
    """`clock(seconds)` makes work that takes that long, on a clock that only such work moves."""
    now = 0.0
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now)

    def work_of(*durations: float) -> Callable[[], None]:
        remaining = itertools.cycle(durations)

        def work() -> None:
            nonlocal now
            now += next(remaining)

        return work

    return work_of


ABOUT = {"workload": "w", "reference": "r"}


def test_a_ratio_is_ours_over_the_reference(clock: Callable[..., Callable[[], None]]) -> None:
    measured = compare(clock(1.0), clock(4.0), 3, **ABOUT)
    assert (measured.ours_s, measured.reference_s, measured.ratio, measured.repeats) == (1.0, 4.0, 0.25, 3)
    assert (measured.ratio_min, measured.ratio_max) == (0.25, 0.25)


def test_medians_and_spread_are_of_pairs_and_the_first_pair_is_warm_up(
    clock: Callable[..., Callable[[], None]],
) -> None:
    ours, other = clock(100.0, 1.0, 2.0, 9.0), clock(1.0, 10.0, 10.0, 10.0)
    measured = compare(ours, other, 3, **ABOUT)
    assert measured.ours_s == 2.0
    assert measured.ratio == pytest.approx(0.2)
    assert (measured.ratio_min, measured.ratio_max) == (pytest.approx(0.1), pytest.approx(0.9))


def test_work_of_one_thread_is_compared_by_processor_time(
    clock: Callable[..., Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours takes a second on the wall and all of it on the processor, the other four and half of them."""
    used = itertools.count()
    monkeypatch.setattr(measure.time, "process_time", lambda: [0.0, 1.0, 1.0, 3.0][next(used) % 4])
    said = compare(clock(1.0), clock(4.0), 3, **ABOUT, one_thread=True).to_json()
    assert (said["ours_s"], said["reference_s"], said["ratio"], said["ratio_wall"]) == (1.0, 2.0, 0.5, 0.25)


def test_the_two_alternate() -> None:
    order: list[str] = []
    compare(lambda: order.append("ours"), lambda: order.append("other"), 3, **ABOUT)
    assert order == ["ours", "other"] * 4


def test_an_error_in_the_work_comes_out() -> None:
    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        compare(fail, fail, 1, **ABOUT)


def test_what_is_reported(clock: Callable[..., Callable[[], None]]) -> None:
    said = compare(clock(1.0), clock(2.0), 2, **ABOUT, facts={"cores": 2}).to_json()
    assert said == {
        "workload": "w",
        "reference": "r",
        "cores": 2,
        "repeats": 2,
        "ours_s": 1.0,
        "reference_s": 2.0,
        "ratio": 0.5,
        "ratio_min": 0.5,
        "ratio_max": 0.5,
    }
