"""The pictures of a run, drawn from its folder alone: learning, privacy, power."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibration.plots import save_figure
from fl.privacy.accountant import Accountant, epsilon_of_loss
from fl.privacy.ledger import LedgerContents, read_ledger
from fl.privacy.sensitivity import Label
from fl.run.folder import RunFolder

# Okabe and Ito's colours, told apart by colour-blind readers; line styles tell them apart in grey print.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"


def draw_run(folder: RunFolder) -> None:
    """Write figures/learning.png, privacy.png and power.png; nothing where no uplink was made."""
    rows = folder.metrics()
    if not rows:
        return
    folder.figures_path.mkdir(exist_ok=True)
    contents = read_ledger(folder.ledger_path)
    config = folder.config()
    for name, figure in (
        ("learning", _learning(rows, f"{config.name}: {config.algorithm.name}")),
        ("privacy", _privacy(contents, config.privacy.budget_epsilon)),
        ("power", _power(rows)),
    ):
        save_figure(figure, folder.figures_path / f"{name}.png")


def _figure(panels: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(5.2 * panels, 3.6), layout="constrained")
    axes = [figure.add_subplot(1, panels, number + 1) for number in range(panels)]
    for panel in axes:
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_xlabel("uplink")
    return figure, axes


def _column(rows: Sequence[dict[str, Any]], name: str) -> list[float]:
    """A metric of all uplinks; a gap where it is not known."""
    return [math.nan if row[name] is None else float(row[name]) for row in rows]


def _learning(rows: Sequence[dict[str, Any]], title: str) -> Figure:
    figure, (left, right) = _figure(2)
    uplinks = _column(rows, "uplink")
    left.plot(uplinks, 100 * np.array(_column(rows, "accuracy")), color=BLUE)
    left.set(ylabel="test accuracy in %", title=title)
    right.plot(uplinks, _column(rows, "loss"), color=BLUE, label="training data")
    right.plot(uplinks, _column(rows, "test_loss"), color=ORANGE, linestyle="--", label="test data")
    right.set(ylabel="cross-entropy in nats", title="loss of the global model")
    right.legend(frameon=False)
    return figure


def _privacy(contents: LedgerContents, budget: float) -> Figure:
    """Epsilon after each charged transmission, for the claimed label and for whole clients."""
    header = contents.header
    figure, (panel,) = _figure(1)
    styles = {Accountant.PAPER: "-", Accountant.EXACT: "--"}
    labels = [header.label] if header.label is Label.CLIENT else [header.label, Label.CLIENT]
    for label, colour in zip(labels, (BLUE, RED), strict=False):
        losses = np.array([m.losses(header.sizes_array, label, header.neighbours) for m in contents.mechanisms])
        worst = losses.cumsum(axis=0).max(axis=1)
        for accountant, style in styles.items():
            epsilons = [epsilon_of_loss(accountant, float(loss), header.delta) for loss in worst]
            if np.all(np.isfinite(epsilons)):
                panel.plot(
                    range(1, len(worst) + 1), epsilons, style, color=colour, label=f"{label.value}, {accountant.value}"
                )
    if budget > 0:
        panel.axhline(budget, color="black", linewidth=0.8, linestyle=":", label="budget")
    origins = "+".join(sorted({m.sigma_origin.value for m in contents.mechanisms}))
    panel.set(
        ylabel="epsilon", title=f"delta = {header.delta:g}, {header.neighbours.value} neighbours, sigma {origins}"
    )
    if panel.lines:
        panel.set_yscale("log")
        panel.legend(frameon=False, fontsize="small")
    else:
        panel.text(0.5, 0.5, "epsilon is infinite", transform=panel.transAxes, ha="center")
    panel.set_xlabel("transmission")
    return figure


def _power(rows: Sequence[dict[str, Any]]) -> Figure:
    figure, (left, right) = _figure(2)
    uplinks = _column(rows, "uplink")
    left.plot(uplinks, _column(rows, "signal_norm"), color=BLUE, label="updates")
    left.plot(uplinks, _column(rows, "noise_norm"), color=RED, linestyle="--", label="noise")
    left.set(ylabel="norm in the aggregate", title="what reached the server")
    left.legend(frameon=False)
    right.plot(uplinks, _column(rows, "backoff_max"), color=BLUE, label="largest back-off $s_i$")
    right.plot(uplinks, _column(rows, "alpha_cj"), color=ORANGE, linestyle="--", label=r"jammer's $\alpha_{CJ}$")
    right.set(title="power control", ylabel="factor")
    right.set_yscale("symlog", linthresh=1.0)
    right.legend(frameon=False)
    return figure
