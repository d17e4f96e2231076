"""Received power of an uplink over time."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl.inspect.panels import GREY, empty_panels, legend_below, number, set_title, spread
from fl.inspect.view import FLOOR_DB, Snapshot, UplinkView
from fl.run.figures import BLUE, ORANGE
from phy.units import noise_var_complex_from_real, power_ratio_to_db, power_ratios_to_db


def timeline_figure(view: UplinkView) -> Figure:
    """Received power over time: silence and soundings above, the payload that all send at once below."""
    snapshot = view.snapshot
    transmitters, payload_start = len(snapshot.names), snapshot.payload_start
    figure, (sounding, payload) = empty_panels(9.0 if transmitters <= 16 else 12.0, 6.0, rows=2)
    noise = noise_var_complex_from_real(float(np.mean(snapshot.noise_var_real_per_bin)))
    quiet = snapshot.sounding_power[: max(1, snapshot.quiet_samples // snapshot.block_samples)]
    quiet_db = power_ratio_to_db(float(np.nanmean(quiet)), FLOOR_DB)
    noise_db = power_ratio_to_db(noise, FLOOR_DB)
    silence = f"silence: {number(quiet_db)} dBFS"
    silence += f", of which noise {number(noise_db)} dBFS, the rest DC and spurs" if quiet_db > noise_db + 0.5 else ""
    for panel, power, start, label in (
        (sounding, snapshot.sounding_power, 0, silence),
        (payload, snapshot.payload_power, payload_start, None),
    ):
        times = start + (np.arange(power.size) + 0.5) * snapshot.block_samples
        power_db = power_ratios_to_db(power, FLOOR_DB)
        panel.plot(snapshot.milliseconds(times), power_db, color=BLUE, linewidth=0.8)
        panel.axhline(quiet_db, color=ORANGE, linewidth=1.0, linestyle="--", label=label)
        low, high = min(float(np.nanmin(power_db)), quiet_db), float(np.nanmax(power_db))
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
    lengths = [number(snapshot.milliseconds(samples)) for samples in (end, middle)]
    set_title(figure, view, f"burst of {lengths[0]} ms, of which {lengths[1]} ms carry the updates")
    legend_below(figure, 1)
    return figure


def _spans(panel: Axes, snapshot: Snapshot, spans: Sequence[tuple[int, int, str]]) -> None:
    """Shade every second span and name them, upright where they are narrow, some where they are many."""
    whole = spans[-1][0] + spans[-1][1] - spans[0][0]
    named = spread(len(spans))
    for place, (start, length, name) in enumerate(spans):
        left, width = snapshot.milliseconds(start), snapshot.milliseconds(length)
        if place % 2:
            panel.axvspan(left, left + width, color=GREY, alpha=0.12, linewidth=0)
        narrow = length < 0.0095 * whole * len(name)
        if place in named:
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
