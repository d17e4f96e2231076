"""The curves of a study: mean over trials with the 95 % interval of the mean, as files and as panels for a page.

With two axes or more, the first one makes the panels and the others the curves, as in the paper. A curve has its own
colour (Okabe and Ito's, told apart by colour-blind readers), line style and marker (told apart in grey print).
"""

import io
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fl.learning.settings import LossName
from fl.report.inline_svg import inline_svg
from fl.report.sources import Curve, Study, printable
from fl.report.statistics import Band, band
from fl.sweep.estimate import LEAST_TRIALS

# Without their yellow, which is too pale for a line on white. The numbers of colours, styles and markers share no
# divisor, so that no two of 7 x 4 x 9 curves look alike.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
_STYLES = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (1.2, 1.2)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_PANEL_INCHES = (4.7, 3.7)
_MARKS = 8
"""Markers on a curve, about."""
_LOG_SPAN = 30.0
"""Losses whose largest mean is this many times the smallest are drawn on a log scale."""


class Against(StrEnum):
    """What an x axis counts."""

    UPLINKS = "uplinks"
    ITERATIONS = "model iterations"


@dataclass(frozen=True)
class Panel:
    """One panel for a page: SVG that may stand in HTML, with its text alternative inside."""

    title: str
    svg: str


@dataclass(frozen=True)
class Picture:
    """One figure. files: content by suffix, png and pdf, with all panels. wide: needs the page's whole width."""

    name: str
    caption: str
    panels: tuple[Panel, ...]
    files: dict[str, bytes]
    wide: bool = False


@dataclass(frozen=True)
class _Line:
    label: str
    look: int
    band: Band


@dataclass(frozen=True)
class _Quantity:
    """low, high: what values are possible; an interval of a few trials may reach beyond, and is cut there."""

    metric: str
    name: str
    scale: float
    low: float
    high: float


_EPSILON = _Quantity("epsilon", "claimed epsilon spent", 1.0, 0.0, math.inf)


def draw_study(study: Study, key: str) -> list[Picture]:
    """Accuracy, or what the score is, against uplinks, against model iterations where those are not the same, training
    loss, and what was spent where that is finite anywhere.

    key: unique among the studies of a page.
    """
    if not any(trial.uplinks for curve in study.filled for trial in curve.trials):
        return []
    score, loss = _score(study), _loss(study)
    wanted = [("accuracy", score, Against.UPLINKS), ("loss", loss, Against.UPLINKS)]
    steps = {trial.rounds // trial.uplinks for curve in study.filled for trial in curve.trials if trial.uplinks}
    if len(steps) > 1:
        wanted.insert(1, ("accuracy-iterations", score, Against.ITERATIONS))
    if _means(_panels(study, _EPSILON)).size:
        wanted.append(("epsilon", _EPSILON, Against.UPLINKS))
    return [_draw(study, key, name, quantity, against) for name, quantity, against in wanted]


def _score(study: Study) -> _Quantity:
    score = study.score
    return _Quantity("accuracy", score.title, score.scale, score.low, score.high)


def _loss(study: Study) -> _Quantity:
    """Own losses have units of their own, and may be negative."""
    own = {curve.config.local.loss for curve in study.filled} != {LossName.CROSS_ENTROPY}
    return _Quantity(
        "loss", "training loss" if own else "training loss in nats", 1.0, -math.inf if own else 0.0, math.inf
    )


def _draw(study: Study, key: str, name: str, quantity: _Quantity, against: Against) -> Picture:
    panels = _panels(study, quantity)
    # Names come from files: a $ in one is a $, not the start of a formula.
    style = matplotlib.rc_context(
        {"font.size": 11, "pdf.fonttype": 42, "svg.fonttype": "none", "text.parse_math": False}
    )
    with style, matplotlib.rc_context({"svg.hashsalt": f"{key}-{name}"}), warnings.catch_warnings():
        # A name may have letters that the font lacks: a box in the PNG, the letter in the page.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        log = quantity.metric == "loss" and _spans_decades(panels)
        limits = _limits(panels, quantity, log=log)
        drawn = [
            Panel(
                title,
                inline_svg(
                    figure_file(_figure([(title, lines)], study, quantity, against, limits, log=log), "svg"),
                    prefix=f"{key}-{name}-{number}",
                    description=_description(title, lines, quantity, against),
                ),
            )
            for number, (title, lines) in enumerate(panels)
        ]
        whole = _figure(panels, study, quantity, against, limits, log=log)
        files = {suffix: figure_file(whole, suffix) for suffix in ("png", "pdf")}
    return Picture(name, _caption(study, panels, quantity, against), tuple(drawn), files)


def _panels(study: Study, quantity: _Quantity) -> list[tuple[str, list[_Line]]]:
    groups: dict[str, list[_Line]] = {}
    looks: dict[str, int] = {}
    for curve in study.curves:
        title = printable(curve.point.labels[0][1]) if len(study.axes) > 1 else ""
        label = curve_label(study, curve)
        look = looks.setdefault(label, len(looks))
        if any(trial.uplinks for trial in curve.trials):
            groups.setdefault(title, []).append(_Line(label, look, band(curve, quantity.metric)))
    return list(groups.items())


def curve_label(study: Study, curve: Curve) -> str:
    """The curve's name within its panel."""
    if len(study.axes) < 2:
        return curve.name
    return printable(", ".join(value for _, value in curve.point.labels[1:]))


def _finite(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    values = np.concatenate(parts)
    return np.asarray(values[np.isfinite(values)], dtype=np.float64)


def _means(panels: Sequence[tuple[str, list[_Line]]]) -> NDArray[np.float64]:
    return _finite([line.band.mean for _, lines in panels for line in lines])


def _spans_decades(panels: Sequence[tuple[str, list[_Line]]]) -> bool:
    means = _means(panels)
    return bool(means.size and means.min() > 0 and means.max() > _LOG_SPAN * means.min())


def _limits(panels: Sequence[tuple[str, list[_Line]]], quantity: _Quantity, *, log: bool) -> tuple[float, float] | None:
    """Of all panels together, so that they compare; None where no mean is finite."""
    means = _means(panels)
    if not means.size:
        return None
    bands = [line.band for _, lines in panels for line in lines]
    halves = [np.nan_to_num(band.half) for band in bands]
    lower = _finite([band.mean - half for band, half in zip(bands, halves, strict=True)])
    upper = _finite([band.mean + half for band, half in zip(bands, halves, strict=True)])
    if log:
        return float(quantity.scale * means.min() / 1.2), float(quantity.scale * means.max() * 1.2)
    low = max(quantity.scale * float(lower.min()), quantity.low)
    high = min(quantity.scale * float(upper.max()), quantity.high)
    room = 0.05 * (high - low) or 0.5
    return low - room, high + room


def _figure(
    panels: Sequence[tuple[str, list[_Line]]],
    study: Study,
    quantity: _Quantity,
    against: Against,
    limits: tuple[float, float] | None,
    *,
    log: bool,
) -> Figure:
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    most = max(len(lines) for _, lines in panels)
    longest = max(len(line.label) for _, lines in panels for line in lines)
    legend_columns = 1 if longest > 28 else 2 if longest > 12 else 3
    legend_rows = -(-most // legend_columns)
    legend_columns = -(-most // legend_rows)
    height = _PANEL_INCHES[1] + 0.2 * (legend_rows - 1)
    figure = Figure(figsize=(_PANEL_INCHES[0] * columns, height * rows), layout="constrained")
    for number, (title, lines) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, number + 1)
        for line in lines:
            _plot(axes, line, quantity, against)
        axes.set(xlabel=against.value, ylabel=quantity.name, title=title)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        axes.grid(color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        if log:
            axes.set_yscale("log")
        if limits is not None:
            axes.set_ylim(*limits)
        _legend(axes, lines, study, legend_columns)
    return figure


def _look(number: int) -> dict[str, Any]:
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "linestyle": _STYLES[number % len(_STYLES)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "markersize": 5,
        "linewidth": 1.6,
    }


def _plot(axes: Axes, line: _Line, quantity: _Quantity, against: Against) -> None:
    x = line.band.uplinks if against is Against.UPLINKS else line.band.rounds
    mean = np.where(np.isfinite(line.band.mean), quantity.scale * line.band.mean, np.nan)
    half = quantity.scale * line.band.half
    colour = _COLOURS[line.look % len(_COLOURS)]
    axes.fill_between(x, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0)
    step = max(1, len(x) // _MARKS)
    # Each curve has its markers at other places, so that close curves do not hide them.
    axes.plot(x, mean, **_look(line.look), markevery=(line.look * step // 3 % step, step))


def _legend(axes: Axes, lines: Sequence[_Line], study: Study, columns: int) -> None:
    if len(lines) < 2 and not study.axes:
        return
    handles = [Line2D([], [], **_look(line.look)) for line in lines]
    legend = axes.legend(
        handles,
        # Set below: a legend leaves out labels that begin with an underscore.
        ["label"] * len(lines),
        frameon=False,
        fontsize=10,
        handlelength=3.2,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
        ncols=min(columns, len(lines)),
    )
    for text, line in zip(legend.get_texts(), lines, strict=True):
        text.set_text(line.label)


def figure_file(figure: Figure, suffix: str) -> bytes:
    """As svg, png or pdf. The same folders shall make the same bytes, so no file knows when it was made."""
    buffer = io.BytesIO()
    nobody: dict[str, None] = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    undated = {"pdf": {"CreationDate": None}, "svg": nobody}.get(suffix, {})
    figure.savefig(buffer, format=suffix, dpi=200, metadata=undated)
    return buffer.getvalue()


def _caption(study: Study, panels: Sequence[tuple[str, list[_Line]]], quantity: _Quantity, against: Against) -> str:
    counts = [int(line.band.trials[0]) for _, lines in panels for line in lines]
    fewest, most = min(counts), max(counts)
    mean = f"Mean of {most} trials" if fewest == most else f"Mean of {fewest} to {most} trials"
    few = f", none where there are fewer than {LEAST_TRIALS} trials" if fewest < LEAST_TRIALS else ""
    bands = f"; bands: 95 % interval of the mean{few}" if most >= LEAST_TRIALS else ": too few for a band"
    spread = "One trial: there is no band" if most == 1 else mean + bands
    what = quantity.name[0].upper() + quantity.name[1:]
    counted = {
        Against.UPLINKS: "uplinks, which cost transmissions and privacy",
        Against.ITERATIONS: "model iterations, the steps of the global model",
    }[against]
    claims = _claims_note(study) if quantity is _EPSILON else ""
    return f"{what} against {counted}. {spread}.{claims}{_steps_note(study)}"


def _claims_note(study: Study) -> str:
    """No epsilon without what it means."""
    claims = {
        f"{curve.config.label.value}, {privacy.neighbours.value} neighbours, delta {privacy.delta:g}, accountant "
        f"{privacy.accountant.value}, target {privacy.epsilon:g}"
        for curve in study.filled
        for privacy in (curve.config.privacy,)
    }
    return f" Epsilon is for {'; '.join(sorted(claims))}."


def _steps_note(study: Study) -> str:
    steps = {
        str(curve.config.algorithm.name): trial.rounds // trial.uplinks
        for curve in study.filled
        for trial in curve.trials
        if trial.rounds > trial.uplinks
    }
    return "".join(f" Algorithm {name}: {count} model iterations for each uplink." for name, count in steps.items())


def _description(title: str, lines: Sequence[_Line], quantity: _Quantity, against: Against) -> str:
    """The panel in words, for readers who do not see it."""
    ends = "; ".join(
        f"{line.label}: {quantity.scale * line.band.mean[0]:.4g} at first, {quantity.scale * line.band.mean[-1]:.4g} "
        f"after {line.band.uplinks[-1]} uplinks"
        for line in lines
    )
    return f"{title + ': ' if title else ''}{quantity.name} against {against.value}. {ends}."
