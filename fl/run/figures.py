"""The pictures of a run, drawn from its folder alone: learning, privacy, power."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from calibration.plots import save_figure
from fl.privacy.accountant import Accountant, epsilon_of_loss
from fl.privacy.converters import vouched_for
from fl.privacy.ledger import LedgerContents, read_ledger
from fl.privacy.sensitivity import Label
from fl.run.config import PrivacyConfig, RunConfig
from fl.run.folder import RunFolder

# Okabe and Ito's colours, told apart by colour-blind readers; line styles tell them apart in grey print.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
_SPENT_TICKS = 6


def draw_run(folder: RunFolder) -> None:
    """Write figures/learning.png, privacy.png and power.png; nothing where no uplink was made."""
    rows = folder.metrics()
    if not rows:
        return
    folder.figures_path.mkdir(exist_ok=True)
    contents = read_ledger(folder.ledger_path)
    config = folder.config()
    for name, figure in (
        ("learning", _learning(rows, config)),
        ("privacy", _privacy(contents, config.privacy)),
        ("power", _power(rows)),
    ):
        save_figure(figure, folder.figures_path / f"{name}.png")


def _figure(panels: int, width: float = 5.2) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width * panels, 3.8), layout="constrained")
    axes = [figure.add_subplot(1, panels, number + 1) for number in range(panels)]
    for panel in axes:
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_xlabel("uplink")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure, axes


def _column(rows: Sequence[dict[str, Any]], name: str) -> list[float]:
    """A metric of all uplinks; a gap where it is not known."""
    return [math.nan if row[name] is None else float(row[name]) for row in rows]


def _learning(rows: Sequence[dict[str, Any]], config: RunConfig) -> Figure:
    figure, (left, right) = _figure(2)
    uplinks = _column(rows, "uplink")
    score = rows[-1].get("score", "accuracy")
    percent = score == "accuracy"
    left.plot(uplinks, (100 if percent else 1) * np.array(_column(rows, "accuracy")), color=BLUE, marker=_marker(rows))
    left.set_ylabel("test accuracy in %" if percent else f"test {score}")
    _spent_above(left, rows, config)
    figure.suptitle(f"{config.name}: {config.algorithm.name}", fontsize="medium")
    right.plot(uplinks, _column(rows, "loss"), color=BLUE, marker=_marker(rows), label="training data")
    right.plot(
        uplinks, _column(rows, "test_loss"), color=ORANGE, linestyle="--", marker=_marker(rows), label="test data"
    )
    right.set_ylabel(f"{config.local.loss} of the global model")
    right.legend(frameon=False)
    return figure


def _marker(rows: Sequence[dict[str, Any]]) -> str:
    """A single uplink is no line."""
    return "o" if len(rows) == 1 else ""


def _spent_above(panel: Axes, rows: Sequence[dict[str, Any]], config: RunConfig) -> None:
    """A second scale along the top: what had been spent after an uplink."""
    top = panel.twiny()
    top.spines[["top", "right"]].set_visible(False)
    top.set_xlim(panel.get_xlim())
    # Equally spaced, and the last among them.
    picked = range(len(rows) - 1, -1, -math.ceil(len(rows) / _SPENT_TICKS))[::-1]
    spent = [float(rows[place]["epsilon"]) for place in picked]
    top.set_xticks(
        [rows[place]["uplink"] for place in picked],
        [f"{value:.3g}" if math.isfinite(value) else "infinite" for value in spent],
        fontsize="small",
    )
    top.tick_params(length=2)
    top.set_xlabel(f"epsilon spent ({config.label.value}, {config.privacy.accountant.value})", fontsize="small")


def _privacy(contents: LedgerContents, wanted: PrivacyConfig) -> Figure:
    """Epsilon after each charged transmission under each label; the claimed one is first."""
    header = contents.header
    figure, (panel,) = _figure(1, 6.4)
    styles = {Accountant.PAPER: "-", Accountant.EXACT: "--"}
    labels = sorted(Label, key=lambda label: label is not header.label)
    left = header.delta - np.cumsum([mechanism.bounds_delta or 0.0 for mechanism in contents.mechanisms])
    for label, colour in zip(labels, (BLUE, RED, GREEN), strict=True):
        claim = (header.sizes_array, label, header.neighbours)
        # With and without the help of dither: see `fl.privacy.converters`.
        worst, whole = (
            np.cumsum([m.losses(*claim, smoothed=smoothed) for m in contents.mechanisms], axis=0).max(axis=1)
            for smoothed in (True, False)
        )
        for accountant, style in styles.items():
            epsilons = [
                epsilon_of_loss(accountant, float(loss if vouched_for(loss, delta) else rough), float(delta))
                if delta > 0
                else math.inf
                for loss, rough, delta in zip(worst, whole, left, strict=True)
            ]
            _curve(panel, epsilons, style, colour, f"{label.value}, {accountant.value}")
    drawn = any(np.isfinite(np.asarray(line.get_ydata())).any() for line in panel.lines)
    aim = f"target: {wanted.epsilon:g} ({header.label.value}, {wanted.accountant.value})"
    panel.axhline(wanted.epsilon, color="black", linewidth=1.0, linestyle="-.", label=aim)
    if wanted.budget_epsilon > 0:
        budget = f"budget: {wanted.budget_epsilon:g}, where the run stops"
        panel.axhline(wanted.budget_epsilon, color="black", linewidth=0.8, linestyle=":", label=budget)
    origins = "+".join(sorted({m.sigma_origin.value for m in contents.mechanisms}))
    panel.set(
        ylabel="epsilon", title=f"delta = {header.delta:g}, {header.neighbours.value} neighbours, sigma {origins}"
    )
    if drawn:
        panel.set_yscale("log")
    else:
        panel.text(0.5, 0.3, "epsilon is infinite", transform=panel.transAxes, ha="center")
        panel.set(xlim=(0.5, len(contents.mechanisms) + 0.5), ylim=(0, 1.5 * wanted.epsilon))
    figure.legend(frameon=False, fontsize="small", loc="outside lower center", ncols=2)
    panel.set_xlabel("transmission")
    return figure


def _curve(panel: Axes, epsilons: Sequence[float], style: str, colour: str, name: str) -> None:
    """Where epsilon is infinite there is no line, and the legend says so."""
    finite = np.isfinite(epsilons)
    if not finite.all():
        first = int(np.argmin(finite)) + 1
        name += ": infinite" if first == 1 else f": infinite from transmission {first} on"
    shown = np.where(finite, epsilons, math.nan)
    marker = "o" if len(epsilons) == 1 else ""
    panel.plot(range(1, len(epsilons) + 1), shown, style, color=colour, marker=marker, label=name)


def _power(rows: Sequence[dict[str, Any]]) -> Figure:
    figure, (sums, backoff, jammer) = _figure(3, 4.2)
    uplinks = _column(rows, "uplink")
    for name, label, colour, style in (
        ("signal_norm", "updates", BLUE, "-"),
        ("noise_norm", "noise", RED, "--"),
        ("step_norm", "both together", GREEN, ":"),
    ):
        values = _column(rows, name)
        if np.isfinite(values).any():
            sums.plot(uplinks, values, color=colour, linestyle=style, marker=_marker(rows), label=label)
    sums.set(ylabel="norm in the aggregate", title="what reached the server", ylim=(0, None))
    sums.legend(frameon=False)
    backoff.plot(uplinks, _column(rows, "backoff_max"), color=BLUE, marker=_marker(rows))
    backoff.set(ylabel="largest back-off $s_i$", title="power control")
    if max(_column(rows, "backoff_max")) <= 1.0:
        backoff.set_ylim(0.9, 1.5)
        _say(backoff, "nobody backs off")
    amplitudes = _column(rows, "alpha_cj")
    jammer.plot(uplinks, amplitudes, color=ORANGE, marker=_marker(rows))
    jammer.set(ylabel=r"amplitude $\alpha_{CJ}$", title="jammer", ylim=(0, None if max(amplitudes) > 0 else 1))
    if max(amplitudes) <= 0.0:
        _say(jammer, "silent")
    return figure


def _say(panel: Axes, words: str) -> None:
    panel.text(0.5, 0.5, words, transform=panel.transAxes, ha="center", color="#555555")
