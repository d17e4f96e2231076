"""Power density of an uplink over frequency."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fl.inspect.panels import BLACK, GREY, empty_panels, legend_below, number, set_title
from fl.inspect.view import FLOOR_DB, UplinkView
from fl.run.figures import BLUE, ORANGE
from phy.units import noise_var_complex_from_real, power_ratio_to_db, power_ratios_to_db


def spectrum_figure(view: UplinkView) -> Figure:
    """Density of the received payload, with the noise of the silence before it and the noise that privacy rests on."""
    snapshot = view.snapshot
    spacing_mhz = snapshot.sample_rate_hz / snapshot.fft_size / 1e6
    half = snapshot.fft_size // 2
    numbers = np.arange(snapshot.fft_size) - half
    used = snapshot.subcarriers
    figure, (panel,) = empty_panels(8.0, 4.4)
    density_db = power_ratios_to_db(np.fft.fftshift(snapshot.spectrum), FLOOR_DB)
    noise_db = power_ratios_to_db(2.0 * snapshot.noise_var_real_per_bin / snapshot.sample_rate_hz, FLOOR_DB)
    panel.plot(numbers * spacing_mhz, density_db, color=BLUE, linewidth=1.1, label="payload, as received")
    below = used < 0
    for part, label in ((below, "noise in the silence before"), (~below, None)):
        panel.plot(used[part] * spacing_mhz, noise_db[part], color=ORANGE, linewidth=1.1, label=label)
    counted = noise_var_complex_from_real((view.mechanism.sigma * view.mechanism.alpha_u) ** 2)
    counted_db = power_ratio_to_db(counted / snapshot.sample_rate_hz, FLOOR_DB)
    edges = (float(used[0] - 0.5) * spacing_mhz, float(used[-1] + 0.5) * spacing_mhz)
    sources = "noise and jammer" if view.mechanism.alpha_cj > 0 else "noise"
    label = f"{sources} that the ledger counts on: {number(counted_db)} dBFS/Hz"
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
            f"DC offset: {number(dc_db)} dBFS in all",
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
    set_title(figure, view, "spectrum")
    legend_below(figure, 2)
    return figure
