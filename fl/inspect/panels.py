"""What the pictures of an uplink share: colours, panels, titles, and how numbers and names are written."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fl.inspect.view import UplinkView

PURPLE, SKY, GREY, BLACK = "#CC79A7", "#56B4E9", "#7F7F7F", "black"


def number(value: float, digits: int = 1) -> str:
    """Rounded, with a minus as long as a plus, and zero without one."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def empty_panels(
    width: float, height: float, rows: int = 1, columns: int = 1, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """An empty figure and its panels, row by row. Sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    made = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for panel in made:
        panel.grid(alpha=0.3, linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, made


def set_title(figure: Figure, view: UplinkView, text: str) -> None:
    """Which uplink it is, and what is shown."""
    figure.suptitle(f"{view.name}, round {view.uplink}: {text}", fontsize="medium")


def legend_below(figure: Figure, columns: int) -> None:
    """One legend for all panels."""
    figure.legend(frameon=False, fontsize="small", loc="outside lower center", ncols=columns)


def spread(count: int, most: int = 26) -> list[int]:
    """At most `most` of `count` places, evenly spread from the first on, and the last."""
    step, last = -(-count // most), count - 1
    return [place for place in range(0, last, step) if last - place >= step] + [last]


def name_rows(panel: Axes, names: NDArray[np.str_]) -> None:
    """Names beside a panel with a row for each, some of them where they are many."""
    rows = spread(len(names))
    panel.set_yticks(rows, [str(names[row]) for row in rows], fontsize="small")
