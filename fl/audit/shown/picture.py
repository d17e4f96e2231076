"""What the attacker saw beside what was claimed: two histograms, and noise and gain over the band."""

import io
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d
from scipy.stats import norm

from fl.audit.estimate import standardised
from fl.audit.parts import over_the_band
from fl.audit.trials import Trials
from fl.audit.verdict import View

_NEAR = 9
"""Subcarriers over which a curve is a mean: single ones are known to some percent only."""
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#777777"


def draw(trials: Trials) -> Figure:
    """One client: statistics with and without the worst changes, and the parts of its claim by subcarrier."""
    half = trials.present.shape[1] // 2
    figure = Figure(figsize=(13.5, 3.9), layout="constrained")
    for place, (view, values) in enumerate(((View.SAMPLES, trials.samples), (View.CELLS, trials.cells))):
        axes = figure.add_subplot(1, 3, place + 1)
        inside, outside = standardised(values[:, :half], trials.present[:, :half])
        _histograms(axes, inside, outside, float(np.sqrt(np.mean(trials.claimed**2))) * trials.share)
        what = "raw capture" if view is View.SAMPLES else "demodulated sum"
        axes.set_title(f"{trials.client}: from the {what}", fontsize=11)
    _parts(figure.add_subplot(1, 3, 3), trials)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _histograms(axes: Axes, inside: NDArray[np.float64], outside: NDArray[np.float64], claimed: float) -> None:
    """Two histograms, and the Gaussians that are as far apart as the claim allows."""
    grid = np.linspace(-4.0, max(claimed, 0.0) + 4.0, 400)
    bins = np.linspace(grid[0], grid[-1], 60).tolist()
    for found, colour, name in ((outside, BLUE, "without the change"), (inside, ORANGE, "with the change")):
        axes.hist(found, bins=bins, density=True, color=colour, alpha=0.4, label=name)
    axes.plot(grid, norm.pdf(grid), color=BLUE, lw=1.5)
    axes.plot(grid, norm.pdf(grid - claimed), color=ORANGE, lw=1.5, ls="--", label="with it, as far as claimed")
    axes.set_ylim(0.0, 0.6)
    axes.set_xlabel("statistic, in units of its noise")
    axes.set_ylabel("density")
    axes.legend(frameon=False, fontsize=9, loc="upper left")


def _parts(axes: Axes, trials: Trials) -> None:
    noise, gain = (uniform_filter1d(values, _NEAR, mode="nearest") for values in over_the_band(trials.looks))
    curves = [(noise, BLUE, "noise: at least 1 is claimed"), (gain, ORANGE, "gain: at most 1 is claimed")]
    for values, colour, name in curves if trials.coherent else curves[:1]:
        reach = values.size // 2
        subcarriers = np.concatenate([np.arange(-reach, 0), np.arange(1, values.size - reach + 1)])
        axes.plot(subcarriers, values, color=colour, lw=1.0, label=name)
    axes.axhline(1.0, color=GREY, lw=1.2, ls="--")
    axes.set_ylim(min(0.7, float(gain.min()) - 0.05), max(1.45, 1.1 * float(max(noise.max(), gain.max()))))
    axes.set_title(f"{trials.client}: parts of the claim", fontsize=11)
    axes.set_xlabel("subcarrier")
    axes.set_ylabel(f"measured over claimed, mean of {_NEAR}")
    axes.legend(frameon=False, fontsize=9, loc="upper left")


def save(figure: Figure, path: Path) -> None:
    """As PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    path.write_bytes(buffer.getvalue())
