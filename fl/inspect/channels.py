"""The estimated channels of all transmitters."""

import math

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fl.inspect.panels import BLACK, GREY, PURPLE, SKY, empty_panels, legend_below, name_rows, number, set_title
from fl.inspect.view import FLOOR_DB, Snapshot, UplinkView
from fl.run.figures import BLUE, GREEN, ORANGE, RED
from phy.units import power_ratio_to_db, power_ratios_to_db

_LEAST_SPAN_DB = 10.0
_LINES = (
    (BLUE, "-"),
    (ORANGE, "-"),
    (GREEN, "-"),
    (RED, "--"),
    (PURPLE, "--"),
    (SKY, "--"),
    (GREY, "-."),
    (BLACK, ":"),
)


def channel_figure(view: UplinkView) -> Figure:
    """Magnitude and phase of each estimated channel; the phase without the slope that the mean delay makes.

    Lines with the numbers of each link for a few transmitters, maps for many.
    """
    few = len(view.snapshot.names) <= len(_LINES)
    figure = _channel_lines(view.snapshot) if few else _channel_maps(view.snapshot)
    set_title(figure, view, f"channels of {len(view.snapshot.names)} transmitters")
    return figure


def _straightened(snapshot: Snapshot) -> NDArray[np.complex128]:
    turns = np.outer(snapshot.delays_samples, snapshot.subcarriers) / snapshot.fft_size
    return np.asarray(snapshot.channels * np.exp(2j * np.pi * turns))


def _channel_lines(snapshot: Snapshot) -> Figure:
    figure, (magnitude, phase) = empty_panels(8.0, 6.4, rows=2, sharex=True)
    numbers = np.append(snapshot.subcarriers, 0)
    order = np.argsort(numbers)
    # A gap at DC, where nothing was measured.
    gain_db = power_ratios_to_db(np.abs(snapshot.channels) ** 2, FLOOR_DB)
    gain_db = np.insert(gain_db, numbers.size - 1, np.nan, axis=1)[:, order]
    angles = np.unwrap(np.angle(_straightened(snapshot)), axis=1)
    # Unwrapped from the lowest subcarrier on; the whole turns that the middle has gathered are taken off.
    middle = np.median(angles, axis=1, keepdims=True)
    angles -= 2 * np.pi * np.round(middle / (2 * np.pi))
    angles = np.insert(angles, numbers.size - 1, np.nan, axis=1)[:, order]
    for row, (colour, style) in zip(range(len(snapshot.names)), _LINES, strict=False):
        label = f"{snapshot.names[row]}: {number(snapshot.gains_db[row])} dB, "
        label += f"{number(snapshot.delays_samples[row])} samples"
        if snapshot.cfo_hz.any():
            label += f", {number(snapshot.cfo_hz[row], 0)} Hz"
        magnitude.plot(numbers[order], gain_db[row], style, color=colour, linewidth=1.2, label=label)
        weakest = int(np.nanargmin(gain_db[row]))
        magnitude.plot(numbers[order][weakest], gain_db[row, weakest], "o", color=colour, markersize=4)
        phase.plot(numbers[order], angles[row], style, color=colour, linewidth=1.2)
    error_db = power_ratio_to_db(float(np.mean(snapshot.channel_var)), FLOOR_DB)
    label = f"error of the estimates: {number(error_db)} dB"
    low, high = _span_db(gain_db)
    if error_db < low:
        # Far below, it would press all that there is to see into a corner.
        label += ", below the picture"
    magnitude.plot([], [], color=BLACK, linewidth=0.9, linestyle=(0, (1, 3)), label=label)
    magnitude.axhline(error_db, color=BLACK, linewidth=0.9, linestyle=(0, (1, 3)))
    magnitude.set(ylabel="magnitude in dB", ylim=(low, high))
    magnitude.set_title("dots: the weakest subcarrier of each, which sets its power", fontsize="small")
    phase.set_title("without the slope of the mean delay", fontsize="small")
    phase.set(ylabel="phase in rad", xlabel="subcarrier")
    legend_below(figure, 2)
    return figure


def _span_db(gain_db: NDArray[np.float64]) -> tuple[float, float]:
    """What is shown of magnitudes: all of them, and at least 10 dB."""
    lowest, highest = float(np.nanmin(gain_db)), float(np.nanmax(gain_db))
    margin = max(0.08 * (highest - lowest), (_LEAST_SPAN_DB - (highest - lowest)) / 2)
    return lowest - margin, highest + margin


def _channel_maps(snapshot: Snapshot) -> Figure:
    transmitters = len(snapshot.names)
    figure, panels = empty_panels(10.0, float(np.clip(2.4 + 0.07 * transmitters, 4.0, 9.0)), columns=2, sharey=True)
    numbers = np.arange(snapshot.subcarriers[0], snapshot.subcarriers[-1] + 1)
    gain_db = power_ratios_to_db(np.abs(snapshot.channels) ** 2, FLOOR_DB)
    # A few deep notches would take most of the colours.
    lowest_db = float(np.quantile(gain_db, 0.01))
    phase = "phase in rad, without the slope of the mean delay"
    for panel, values, label, colours, low, high, extend in (
        (panels[0], gain_db, "magnitude in dB", "viridis", lowest_db, float(gain_db.max()), "min"),
        (panels[1], np.angle(_straightened(snapshot)), phase, "twilight", -math.pi, math.pi, "neither"),
    ):
        whole = np.full((transmitters, numbers.size), np.nan)
        whole[:, np.isin(numbers, snapshot.subcarriers)] = values
        panel.grid(visible=False)
        extent = (numbers[0] - 0.5, numbers[-1] + 0.5, transmitters - 0.5, -0.5)
        image = panel.imshow(whole, cmap=colours, aspect="auto", extent=extent, vmin=low, vmax=high)
        bar = figure.colorbar(image, ax=panel, location="top", label=label, shrink=0.9, aspect=30, extend=extend)
        bar.outline.set_visible(False)
        panel.set_xlabel("subcarrier")
    name_rows(panels[0], snapshot.names)
    return figure
