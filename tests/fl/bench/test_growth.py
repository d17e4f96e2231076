"""Growth on small sizes: what is measured, what follows from it, and the picture."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fl.bench.growth.points import Point, exponent
from fl.bench.growth.series import Series, draw_growth, measure_growth
from tests.conftest import Outcome
from tests.fl.cli.test_bad_input import assert_refused


def test_every_point_is_an_uplink_in_a_process_of_its_own(tmp_path: Path) -> None:
    told: list[str] = []
    series = measure_growth(1, clients=(2, 20), coordinates=(500,), on_point=told.append)
    assert [(one.fidelity, one.over, one.sizes) for one in series] == [
        ("symbol", "clients", [2, 20]),
        ("symbol", "coordinates", [500]),
        ("radio", "clients", [2, 20]),
        ("radio", "coordinates", [500]),
    ]
    assert len(told) == 6
    for one in series:
        assert all(point.uplink_s > 0 and point.peak_mib >= point.start_mib > 10 for point in one.points)
    draw_growth(series, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 10_000


def test_what_follows_from_points() -> None:
    """Made up: time quadratic, 2 KiB for each client."""
    points = [Point("symbol", k, 10, 1e-6 * k * k, 0.0, 50.0, 100 + 2 * k / 1024) for k in (10, 100, 1000)]
    series = Series("symbol", "clients", tuple(points))
    assert series.time_exponent == pytest.approx(2.0)
    assert series.bytes_each == pytest.approx(2048)
    assert series.memory_growth == pytest.approx((100 + 2000 / 1024) / (100 + 20 / 1024) - 1)
    assert exponent([1, 10, 100], [5, 5, 50]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["growth", "modem"], ("growth is measured alone",)),
        (["growth", "--picture", "growth.txt"], ("expected a name that ends in .png",)),
        (["modem", "--picture", "growth.png"], ("--picture is for `airdp bench growth`",)),
        (["growth", "--repeats", "0"], ("--repeats is 0",)),
    ],
)
def test_what_is_refused(command: Callable[..., Outcome], arguments: list[str], words: tuple[str, ...]) -> None:
    assert_refused(command("bench", *arguments), *words)
