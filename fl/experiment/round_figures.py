"""The pictures of one radio uplink, drawn from the run's folder alone.

`draw_round` makes one PNG for each entry of `PICTURES` from what `fl.experiment.round_view` read. Powers are
relative to full scale (|x| = 1). Frequencies count from the carrier, times from the first sample of the silence in
which noise was measured.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from calibration.plots import save_figure
from fl.errors import RunFolderError
from fl.experiment.figures import BLUE, GREEN, ORANGE, RED
from fl.experiment.round_view import CAUSES, INTENDED, SMALLEST, Round, Snapshot, decibels
from phy.units import noise_var_complex_from_real, power_ratio_to_db

PURPLE, SKY, GREY, BLACK = "#CC79A7", "#56B4E9", "#7F7F7F", "black"
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


def draw_round(view: Round, folder: Path) -> dict[str, Path]:
    """Write every picture into `folder`, which is made where it is missing; returns their paths by name."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = {name: folder / f"{name}.png" for name in PICTURES}
        for name, draw in PICTURES.items():
            save_figure(draw(view), paths[name])
    except OSError as error:
        raise RunFolderError(f"cannot write to {folder}: {error.strerror}; choose a folder with --out") from error
    return paths


def _number(value: float, digits: int = 1) -> str:
    """Rounded, with a minus as long as a plus, and zero without one."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _figure(width: float, height: float, rows: int = 1, columns: int = 1, **shared: Any) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for panel in panels:
        panel.grid(alpha=0.3, linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _title(figure: Figure, view: Round, text: str) -> None:
    figure.suptitle(f"{view.name}, round {view.uplink}: {text}", fontsize="medium")


def _legend_below(figure: Figure, columns: int) -> None:
    figure.legend(frameon=False, fontsize="small", loc="outside lower center", ncols=columns)


def spectrum_figure(view: Round) -> Figure:
    """Density of the received payload, with the noise of the silence before it and the noise that privacy rests on."""
    snapshot = view.snapshot
    spacing_mhz = snapshot.sample_rate_hz / snapshot.fft_size / 1e6
    half = snapshot.fft_size // 2
    numbers = np.arange(snapshot.fft_size) - half
    used = snapshot.subcarriers
    figure, (panel,) = _figure(8.0, 4.4)
    density_db = decibels(np.fft.fftshift(snapshot.spectrum))
    noise_db = decibels(2.0 * snapshot.noise_var_real_per_bin / snapshot.sample_rate_hz)
    panel.plot(numbers * spacing_mhz, density_db, color=BLUE, linewidth=1.1, label="payload, as received")
    below = used < 0
    for part, label in ((below, "noise in the silence before"), (~below, None)):
        panel.plot(used[part] * spacing_mhz, noise_db[part], color=ORANGE, linewidth=1.1, label=label)
    counted = noise_var_complex_from_real((view.mechanism.sigma * view.mechanism.alpha_u) ** 2)
    counted_db = power_ratio_to_db(max(counted, SMALLEST) / snapshot.sample_rate_hz)
    edges = (float(used[0] - 0.5) * spacing_mhz, float(used[-1] + 0.5) * spacing_mhz)
    sources = "noise and jammer" if view.mechanism.alpha_cj > 0 else "noise"
    label = f"{sources} that the ledger counts on: {_number(counted_db)} dBFS/Hz"
    panel.plot(edges, [counted_db] * 2, color=BLACK, linewidth=1.0, linestyle="--", label=label)
    limits = (-(half + 0.5) * spacing_mhz, (snapshot.fft_size - half - 0.5) * spacing_mhz)
    shade: dict[str, Any] = {"color": GREY, "alpha": 0.15, "linewidth": 0}
    panel.axvspan(limits[0], edges[0], label="guards and DC: nobody sends", **shade)
    panel.axvspan(edges[1], limits[1], **shade)
    panel.axvspan(-spacing_mhz / 2, spacing_mhz / 2, **shade)
    # The window spreads a carrier over three bins. A DC offset is no part of the payload and would set the scale.
    at_dc = np.abs(numbers) <= 1
    seen = np.concatenate([density_db[~at_dc], noise_db, [counted_db]])
    low, high = float(seen.min()), float(seen.max())
    room = max(0.15 * (high - low), 1.0)
    panel.set_ylim(low - room, high + 2.0 * room)
    if density_db[at_dc].max() > high + room:
        dc_db = power_ratio_to_db(float(10.0 ** (density_db[at_dc] / 10.0) @ np.ones(3)) * spacing_mhz * 1e6)
        panel.annotate(
            f"DC offset: {_number(dc_db)} dBFS in all",
            (0.0, 1.0),
            xycoords=panel.get_xaxis_transform(),
            xytext=(8, -4),
            textcoords="offset points",
            va="top",
            fontsize="small",
        )
    panel.set(
        xlim=limits,
        xlabel=f"frequency from the carrier in MHz (subcarriers of {1e3 * spacing_mhz:.4g} kHz)",
        ylabel="power density in dBFS/Hz",
    )
    _title(figure, view, "spectrum")
    _legend_below(figure, 2)
    return figure


def constellation_figure(view: Round) -> Figure:
    """The aggregate's cells, which are analog: updates and noise together; beside them I and Q against the noise."""
    snapshot, sigma = view.snapshot, view.mechanism.sigma
    cells = snapshot.cells
    figure, (plane, counts) = _figure(8.6, 4.5, columns=2)
    alpha = min(0.8, max(0.15, 700.0 / cells.size))
    plane.scatter(cells.real, cells.imag, s=5, color=BLUE, alpha=alpha, linewidths=0)
    reach = 1.05 * float(max(np.abs(cells.real).max(), np.abs(cells.imag).max(), 3.0 * sigma, SMALLEST))
    turn = np.exp(2j * np.pi * np.linspace(0.0, 1.0, 200)) * sigma * math.sqrt(-2.0 * math.log(0.05))
    plane.plot(turn.real, turn.imag, color=RED, linewidth=1.3, label="holds 95 % of the noise alone")
    plane.axhline(0.0, color=BLACK, linewidth=0.5)
    plane.axvline(0.0, color=BLACK, linewidth=0.5)
    plane.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
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
    _title(figure, view, "aggregate")
    _legend_below(figure, 4)
    return figure


def channel_figure(view: Round) -> Figure:
    """Magnitude and phase of each estimated channel; the phase without the slope that the mean delay makes.

    Lines with the numbers of each link for a few transmitters, maps for many.
    """
    few = len(view.snapshot.names) <= len(_LINES)
    figure = _channel_lines(view.snapshot) if few else _channel_maps(view.snapshot)
    _title(figure, view, f"channels of {len(view.snapshot.names)} transmitters")
    return figure


def _straightened(snapshot: Snapshot) -> NDArray[np.complex128]:
    turns = np.outer(snapshot.delays_samples, snapshot.subcarriers) / snapshot.fft_size
    return np.asarray(snapshot.channels * np.exp(2j * np.pi * turns))


def _channel_lines(snapshot: Snapshot) -> Figure:
    figure, (magnitude, phase) = _figure(8.0, 6.4, rows=2, sharex=True)
    numbers = np.append(snapshot.subcarriers, 0)
    order = np.argsort(numbers)
    # A gap at DC, where nothing was measured.
    gain_db = np.insert(decibels(np.abs(snapshot.channels) ** 2), numbers.size - 1, np.nan, axis=1)[:, order]
    angles = np.unwrap(np.angle(_straightened(snapshot)), axis=1)
    # Unwrapped from the lowest subcarrier on; the whole turns that the middle has gathered are taken off.
    middle = np.median(angles, axis=1, keepdims=True)
    angles -= 2 * np.pi * np.round(middle / (2 * np.pi))
    angles = np.insert(angles, numbers.size - 1, np.nan, axis=1)[:, order]
    for row, (colour, style) in zip(range(len(snapshot.names)), _LINES, strict=False):
        label = f"{snapshot.names[row]}: {_number(snapshot.gains_db[row])} dB, "
        label += f"{_number(snapshot.delays_samples[row])} samples"
        if snapshot.cfo_hz.any():
            label += f", {_number(snapshot.cfo_hz[row], 0)} Hz"
        magnitude.plot(numbers[order], gain_db[row], style, color=colour, linewidth=1.2, label=label)
        weakest = int(np.nanargmin(gain_db[row]))
        magnitude.plot(numbers[order][weakest], gain_db[row, weakest], "o", color=colour, markersize=4)
        phase.plot(numbers[order], angles[row], style, color=colour, linewidth=1.2)
    error_db = float(decibels(np.array(np.mean(snapshot.channel_var))))
    label = f"error of the estimate: {_number(error_db)} dB"
    magnitude.axhline(error_db, color=BLACK, linewidth=0.9, linestyle=(0, (1, 3)), label=label)
    magnitude.set_ylabel("magnitude in dB")
    magnitude.set_title("dots: the weakest subcarrier of each, which sets its power", fontsize="small")
    phase.set_title("without the slope of the mean delay", fontsize="small")
    phase.set(ylabel="phase in rad", xlabel="subcarrier")
    _legend_below(figure, 2)
    return figure


def _channel_maps(snapshot: Snapshot) -> Figure:
    transmitters = len(snapshot.names)
    figure, panels = _figure(10.0, float(np.clip(2.4 + 0.07 * transmitters, 4.0, 9.0)), columns=2, sharey=True)
    numbers = np.arange(snapshot.subcarriers[0], snapshot.subcarriers[-1] + 1)
    gain_db = decibels(np.abs(snapshot.channels) ** 2)
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
    _name_rows(panels[0], snapshot.names)
    return figure


def _spread(count: int, most: int = 26) -> list[int]:
    """At most `most` of `count` places, evenly spread from the first on, and the last."""
    step, last = -(-count // most), count - 1
    return [place for place in range(0, last, step) if last - place >= step] + [last]


def _name_rows(panel: Axes, names: NDArray[np.str_]) -> None:
    rows = _spread(len(names))
    panel.set_yticks(rows, [str(names[row]) for row in rows], fontsize="small")


def timeline_figure(view: Round) -> Figure:
    """Received power over time: silence and soundings above, the payload that all send at once below."""
    snapshot = view.snapshot
    transmitters, payload_start = len(snapshot.names), snapshot.payload_start
    figure, (sounding, payload) = _figure(9.0 if transmitters <= 16 else 12.0, 6.0, rows=2)
    noise = noise_var_complex_from_real(float(np.mean(snapshot.noise_var_real_per_bin)))
    quiet = snapshot.sounding_power[: max(1, snapshot.quiet_samples // snapshot.block_samples)]
    quiet_db = float(decibels(np.array(np.nanmean(quiet))))
    noise_db = power_ratio_to_db(max(noise, SMALLEST))
    silence = f"silence: {_number(quiet_db)} dBFS"
    silence += f", of which noise {_number(noise_db)} dBFS, the rest DC and spurs" if quiet_db > noise_db + 0.5 else ""
    for panel, power, start, label in (
        (sounding, snapshot.sounding_power, 0, silence),
        (payload, snapshot.payload_power, payload_start, None),
    ):
        times = start + (np.arange(power.size) + 0.5) * snapshot.block_samples
        panel.plot(snapshot.milliseconds(times), decibels(power), color=BLUE, linewidth=0.8)
        panel.axhline(quiet_db, color=ORANGE, linewidth=1.0, linestyle="--", label=label)
        low, high = min(float(np.nanmin(decibels(power))), quiet_db), float(np.nanmax(decibels(power)))
        panel.set_ylim(low - 0.06 * (high - low), high + 0.3 * (high - low) + 1.0)
        panel.set_ylabel("power in dBFS")
    slots = [
        (int(start), snapshot.slot_samples - snapshot.gap_samples, str(name))
        for start, name in zip(snapshot.slot_starts, snapshot.names, strict=True)
    ]
    _spans(sounding, snapshot, [(0, snapshot.quiet_samples, "quiet"), *slots])
    guard = snapshot.guard_samples
    middle = snapshot.payload_samples - 2 * guard
    spans = [(0, guard, "guard"), (guard, middle, "payload"), (guard + middle, guard, "guard")]
    _spans(payload, snapshot, [(payload_start + start, length, name) for start, length, name in spans])
    end = payload_start + snapshot.payload_samples
    sounding.set_xlim(0.0, snapshot.milliseconds(payload_start - snapshot.turnaround_samples))
    payload.set_xlim(snapshot.milliseconds(payload_start), snapshot.milliseconds(end))
    payload.set_xlabel(f"time in ms (means over {1e3 * snapshot.milliseconds(snapshot.block_samples):.3g} µs)")
    sounding.set_title(f"sounding, {transmitters} transmitters one after the other", fontsize="small")
    payload.set_title("payload, all at once", fontsize="small")
    lengths = [_number(snapshot.milliseconds(samples)) for samples in (end, middle)]
    _title(figure, view, f"burst of {lengths[0]} ms, of which {lengths[1]} ms carry the updates")
    _legend_below(figure, 1)
    return figure


def _spans(panel: Axes, snapshot: Snapshot, spans: Sequence[tuple[int, int, str]]) -> None:
    """Shade every second span and name them, upright where they are narrow, some where they are many."""
    whole = spans[-1][0] + spans[-1][1] - spans[0][0]
    named = _spread(len(spans))
    for number, (start, length, name) in enumerate(spans):
        left, width = snapshot.milliseconds(start), snapshot.milliseconds(length)
        if number % 2:
            panel.axvspan(left, left + width, color=GREY, alpha=0.12, linewidth=0)
        narrow = length < 0.0095 * whole * len(name)
        if number in named:
            panel.text(
                left + width / 2,
                0.97,
                name,
                transform=panel.get_xaxis_transform(),
                ha="center",
                va="top",
                rotation=90 if narrow else 0,
                fontsize="x-small" if narrow else "small",
            )


def budget_figure(view: Round) -> Figure:
    """Error energy by cause: blue is the noise that privacy needs, orange what the radios add to it."""
    parts = view.parts
    causes = sorted((cause for cause in CAUSES if cause != "other"), key=lambda cause: -parts[cause])
    causes.append("other")
    figure, (panel,) = _figure(8.0, 4.2)
    values_db = {cause: power_ratio_to_db(abs(parts[cause])) for cause in causes}
    top = max(view.nmse_db, view.thermal_db, *values_db.values())
    # Parts below a millionth of the largest are written, not drawn: nobody needs them to scale.
    floor = max(top - 60.0, min(value for value in values_db.values() if value > top - 60.0) - 5.0)
    names = dict(CAUSES)
    for row, cause in enumerate(causes):
        value, negative = values_db[cause], parts[cause] < 0
        colour = BLUE if cause in INTENDED else GREY if cause == "other" else ORANGE
        filled: dict[str, Any] = (
            {"color": "none", "edgecolor": colour, "hatch": "///"} if negative else {"color": colour}
        )
        panel.barh(row, max(value - floor, 0.0), left=floor, height=0.6, **filled)
        text = f"{_number(value)} dB" if value > floor else "negligible" if parts[cause] else "none"
        panel.text(1.01, row, text, transform=panel.get_yaxis_transform(), va="center", fontsize="small")
        if negative:
            names[cause] = "explained too much"
    label = f"measured NMSE: {_number(view.nmse_db, 2)} dB"
    panel.axvline(view.nmse_db, color=RED, linewidth=3.0, alpha=0.6, label=label)
    label = f"thermal floor: {_number(view.thermal_db, 2)} dB"
    panel.axvline(view.thermal_db, color=BLACK, linewidth=1.2, linestyle=":", label=label)
    if parts["jammer"] > 0:
        label = f"with the jammer: {_number(view.noise_db, 2)} dB"
        panel.axvline(view.noise_db, color=BLACK, linewidth=1.2, linestyle="--", label=label)
    panel.set_yticks(range(len(causes)), [names[cause] for cause in causes])
    panel.invert_yaxis()
    panel.grid(visible=False, axis="y")
    panel.set(xlim=(floor, top + 0.06 * (top - floor)), xlabel="error energy relative to the exact weighted sum in dB")
    _title(figure, view, "where the aggregate's error comes from")
    _legend_below(figure, 3)
    return figure


def phase_figure(view: Round) -> Figure:
    """Predicted phase error of each client at the payload's end, and the gate that it had to pass."""
    snapshot = view.snapshot
    clients = snapshot.phase_error_rad.size
    figure, (panel,) = _figure(8.0, float(np.clip(2.0 + 0.2 * clients, 2.8, 7.5)))
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
    _name_rows(panel, snapshot.names[:clients])
    panel.grid(visible=False, axis="y")
    _title(figure, view, "phase error of each client")
    _legend_below(figure, 4)
    return figure


PICTURES: dict[str, Callable[[Round], Figure]] = {
    "spectrum": spectrum_figure,
    "constellation": constellation_figure,
    "channel": channel_figure,
    "timeline": timeline_figure,
    "error_budget": budget_figure,
    "phase_error": phase_figure,
}
