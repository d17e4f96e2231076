"""How far each client was out of phase, and how far it might have been."""

import math

import numpy as np
from matplotlib.figure import Figure

from fl.inspect.panels import GREY, empty_panels, legend_below, name_rows, set_title
from fl.inspect.view import UplinkView
from fl.run.figures import BLUE, ORANGE, RED


def phase_figure(view: UplinkView) -> Figure:
    """Predicted phase error of each client at the payload's end, and the gate that it had to pass."""
    snapshot = view.snapshot
    clients = snapshot.phase_error_rad.size
    figure, (panel,) = empty_panels(8.0, float(np.clip(2.0 + 0.2 * clients, 2.8, 7.5)))
    rows = np.arange(clients)
    errors = np.maximum(snapshot.phase_error_rad, 1e-9)
    channels = np.maximum(np.abs(snapshot.channels[:clients]), 1e-12)
    estimates = np.sqrt(np.mean(snapshot.channel_var[:clients] / channels**2, axis=1) / 2.0)
    left = 10.0 ** math.floor(math.log10(0.7 * float(min(errors.min(), max(estimates.min(), 1e-9), view.gate_rad))))
    sends = rows != (-1 if view.silent_client is None else view.silent_client)
    panel.hlines(rows[sends], left, errors[sends], color=BLUE, linewidth=1.0, alpha=0.5)
    panel.plot(errors[sends], rows[sends], "o", color=BLUE, markersize=5, label="predicted at the payload's end")
    panel.plot(
        estimates[sends], rows[sends], "|", color=ORANGE, markersize=9, mew=1.6, label="channel estimate's share"
    )
    if not sends.all():
        panel.plot(
            errors[~sends], rows[~sends], "o", color=GREY, fillstyle="none", markersize=5, label="jams, sends no update"
        )
    panel.axvline(view.gate_rad, color=RED, linewidth=1.3, label=f"gate: {view.gate_rad:g} rad")
    panel.set_xscale("log")
    panel.set(xlim=(left, 2.0 * max(float(errors.max()), view.gate_rad)), ylim=(clients - 0.4, -0.6))
    panel.set_xlabel("phase error in rad rms")
    name_rows(panel, snapshot.names[:clients])
    panel.grid(visible=False, axis="y")
    set_title(figure, view, "phase error of each client")
    legend_below(figure, 4)
    return figure
