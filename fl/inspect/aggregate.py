"""The sum that arrived, cell by cell."""

import math

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fl.inspect.panels import BLACK, empty_panels, legend_below, set_title
from fl.inspect.view import UplinkView
from fl.run.figures import BLUE, ORANGE, RED


def aggregate_figure(view: UplinkView) -> Figure:
    """The aggregate's cells, which are analog: updates and noise together; beside them I and Q against the noise."""
    snapshot, sigma = view.snapshot, view.mechanism.sigma
    cells = snapshot.cells
    figure, (plane, counts) = empty_panels(8.6, 4.5, columns=2)
    alpha = min(0.8, max(0.15, 700.0 / cells.size))
    plane.scatter(cells.real, cells.imag, s=5, color=BLUE, alpha=alpha, linewidths=0)
    reach = 1.05 * float(max(np.abs(cells.real).max(), np.abs(cells.imag).max(), 3.0 * sigma, 1e-30))
    turn = np.exp(2j * np.pi * np.linspace(0.0, 1.0, 200)) * sigma * math.sqrt(-2.0 * math.log(0.05))
    plane.plot(turn.real, turn.imag, color=RED, linewidth=1.3, label="holds 95 % of the noise alone")
    plane.axhline(0.0, color=BLACK, linewidth=0.5)
    plane.axvline(0.0, color=BLACK, linewidth=0.5)
    plane.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    offered = MaxNLocator(4, symmetric=True, steps=[1, 2, 5, 10]).tick_values(-reach, reach)
    ticks = [tick for tick in offered if abs(tick) <= reach]
    plane.set_xticks(ticks)
    plane.set_yticks(ticks)
    plane.set(xlabel=r"I in units of $\tau$", ylabel=r"Q in units of $\tau$")
    shown = "all" if cells.size == snapshot.cells_received else f"first {cells.size:,} of"
    plane.set_title(f"{shown} {snapshot.cells_received:,} cells", fontsize="medium")
    edges = np.linspace(-reach, reach, int(np.clip(math.sqrt(cells.size), 12, 60))).tolist()
    for values, colour, style, name in ((cells.real, BLUE, "-", "I"), (cells.imag, ORANGE, "--", "Q")):
        label = f"{name}: rms {float(np.sqrt(np.mean(values.astype(np.float64) ** 2))):.3g} $\\tau$"
        counts.hist(values, edges, density=True, histtype="step", color=colour, linestyle=style, label=label)
    if sigma > 0:
        x = np.linspace(-reach, reach, 300)
        gaussian = np.exp(-((x / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi))
        counts.plot(x, gaussian, color=RED, linewidth=1.3, label=rf"noise alone: $\sigma$ = {sigma:.3g} $\tau$")
    counts.set(xlabel=r"amplitude in units of $\tau$", ylabel=r"density per $\tau$", xlim=(-reach, reach))
    counts.set_title("I and Q", fontsize="medium")
    counts.locator_params(axis="x", nbins=5)
    set_title(figure, view, "aggregate")
    legend_below(figure, 4)
    return figure
