"""Two histograms and what was claimed of them, and a page that holds all of it."""

import io
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import norm

from fl.audit.estimate import standardised
from fl.audit.trials import Trials
from fl.audit.verdict import Validation, View

BLUE, ORANGE = "#0072B2", "#D55E00"
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem;border-bottom:1px solid #ccc;text-align:right}"
    "td:nth-child(-n+3),th:nth-child(-n+3){text-align:left}img{max-width:100%}.refuted{color:#b00020}"
)


def histograms(trials: Trials, title: str) -> Figure:
    """The attacker's statistics with and without the worst changes, beside the Gaussians that the claim allows."""
    half = trials.present.shape[1] // 2
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    claimed = float(np.sqrt(np.mean(trials.claimed**2))) * trials.share
    for place, (view, values) in enumerate(((View.SAMPLES, trials.samples), (View.CELLS, trials.cells))):
        axes = figure.add_subplot(1, 2, place + 1)
        inside, outside = standardised(values[:, :half], trials.present[:, :half])
        for found, colour, name in ((outside, BLUE, "without"), (inside, ORANGE, "with the change")):
            axes.hist(found, bins=60, density=True, color=colour, alpha=0.45, label=name)
        grid = np.linspace(-4.0, max(claimed, float(inside.max())) + 1.0, 400)
        axes.plot(grid, norm.pdf(grid), color=BLUE, lw=1.5)
        axes.plot(grid, norm.pdf(grid - claimed), color=ORANGE, lw=1.5, ls="--", label="claimed at most")
        axes.set_title(f"{title}: {view.value}, worst directions")
        axes.set_xlabel("attacker's statistic, in units of its noise")
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def write_page(folder: Path, validation: Validation, facts: Mapping[str, Any], pictures: Sequence[Path]) -> Path:
    """index.html, with its pictures inside."""
    verdict = "holds" if validation.holds else "refuted"
    rows = "".join(
        f"<tr><td>{escape(found.client)}</td><td>{found.view.value}</td><td>{found.direction.value}</td>"
        f"<td>{found.claimed_mu:.3f}</td><td>{found.estimate.mu:.3f}</td>"
        f"<td>{found.estimate.interval()[0]:.3f} to {found.estimate.interval()[1]:.3f}</td>"
        f"<td>{found.estimate.trials}</td></tr>"
        for found in validation.findings
    )
    images = "".join(
        f'<img alt="{escape(path.stem)}" src="data:image/png;base64,{b64encode(path.read_bytes()).decode()}">'
        for path in pictures
    )
    listed = "".join(f"<li>{escape(str(name))}: {escape(str(value))}</li>" for name, value in facts.items())
    predicted = ", ".join(f"{escape(name)} {mu:.3f}" for name, mu in validation.predicted.items())
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>airdp validate: {verdict}</title>"
        f"<style>{_STYLE}</style><h1 class={verdict}>The claim {'holds' if validation.holds else 'is refuted'}</h1>"
        f"<ul>{listed}</ul><p>Worst direction by linear algebra, mu: {predicted}.</p>"
        "<table><tr><th>client<th>view<th>direction<th>claimed mu<th>measured<th>95 % interval<th>trials</tr>"
        f"{rows}</table>{images}</html>"
    )
    path = folder / "index.html"
    path.write_text(page, encoding="utf-8")
    return path


def save(figure: Figure, path: Path) -> None:
    """As PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    path.write_bytes(buffer.getvalue())
