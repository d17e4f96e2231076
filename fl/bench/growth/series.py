"""The series of `airdp bench growth`, its table, and its picture."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fl.bench.growth.points import (
    CLIENTS,
    COORDINATES,
    FEW_CLIENTS,
    FEW_COORDINATES,
    RADIO,
    SYMBOL,
    Point,
    exponent,
    measured_apart,
)


@dataclass(frozen=True)
class Series:
    """Points in which one quantity grows. over: "clients" or "coordinates"."""

    fidelity: str
    over: str
    points: tuple[Point, ...]

    @property
    def sizes(self) -> list[int]:
        """What grows."""
        return [getattr(point, self.over) for point in self.points]

    @property
    def time_exponent(self) -> float:
        """Over the last factor of ten: 1 is linear."""
        return exponent(self.sizes, [point.uplink_s for point in self.points])

    @property
    def memory_growth(self) -> float:
        """Of the largest over the first, less 1."""
        return self.points[-1].peak_mib / self.points[0].peak_mib - 1.0

    @property
    def bytes_each(self) -> float:
        """Memory for each further client or coordinate."""
        first, last = self.points[0], self.points[-1]
        return (last.peak_mib - first.peak_mib) * 2**20 / (self.sizes[-1] - self.sizes[0])

    def to_json(self) -> dict[str, Any]:
        """Points and what follows from them."""
        return {
            "fidelity": self.fidelity,
            "over": self.over,
            "points": [asdict(point) for point in self.points],
            "time_exponent": self.time_exponent,
            "memory_growth": self.memory_growth,
            "bytes_each": self.bytes_each,
        }


def measure_growth(
    repeats: int,
    *,
    clients: Sequence[int] = CLIENTS,
    coordinates: Sequence[int] = COORDINATES,
    on_point: Callable[[str], None] = lambda words: None,
) -> list[Series]:
    """All series; `on_point` is told what is measured next."""

    def points(fidelity: str, over: str) -> Iterator[Point]:
        for size in clients if over == "clients" else coordinates:
            on_point(f"{fidelity}, {size:,} {over}")
            few = (size, FEW_COORDINATES) if over == "clients" else (FEW_CLIENTS, size)
            yield measured_apart(fidelity, *few, repeats)

    kinds = [(fidelity, over) for fidelity in (SYMBOL, RADIO) for over in ("clients", "coordinates")]
    return [Series(fidelity, over, tuple(points(fidelity, over))) for fidelity, over in kinds]


def draw_growth(series: Sequence[Series], path: Path) -> None:
    """Time and memory against clients and coordinates, with a line of slope 1 beside the times."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots(2, 2)
    for column, over in enumerate(("clients", "coordinates")):
        above, below = axes[0, column], axes[1, column]
        for one in (one for one in series if one.over == over):
            above.loglog(one.sizes, [point.uplink_s for point in one.points], "o-", label=one.fidelity)
            below.semilogx(one.sizes, [point.peak_mib for point in one.points], "o-", label=one.fidelity)
        largest = max((one for one in series if one.over == over), key=lambda one: one.points[-1].uplink_s)
        last = largest.points[-1].uplink_s
        guide = [last * size / largest.sizes[-1] for size in largest.sizes]
        above.loglog(largest.sizes, guide, ":", color="grey", label="linear")
        fixed = f"{FEW_COORDINATES:,} coordinates" if over == "clients" else f"{FEW_CLIENTS} clients"
        above.set_title(fixed)
        above.set_ylabel("processor time of an uplink, s")
        below.set_ylabel("peak memory of the process, MiB")
        below.set_ylim(bottom=0)
        for axis in (above, below):
            axis.set_xlabel(over)
            axis.grid(visible=True, alpha=0.3)
            axis.legend()
    figure.savefig(path, dpi=120)
