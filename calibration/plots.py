"""Pictures of a calibration, as an engineer wants to see them: spectrum, histogram, constellation, residual phase.

Every function returns a `Figure` of its own; nothing here touches matplotlib's global state.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from calibration.diagnostics import NoiseDiagnostics, whitened_samples
from calibration.errors import MeasurementError
from calibration.noise import NoiseMeasurement, sigma_lower_bound
from calibration.silence import Silence
from calibration.spurs import LOWEST_LEVEL_DB, signed_bin
from hardware.foundation.durable import replacing
from phy.units import noise_var_complex_from_real, power_ratio_to_db, power_ratios_to_db

# Okabe and Ito's colours, told apart by colour-blind readers; markers and line styles tell them apart in grey print.
BLUE, ORANGE, GREEN, RED, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
GREY = "#7F7F7F"
_STYLES = ((BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), (RED, ":"), (PURPLE, "-"), (GREY, "--"))
_RING: dict[str, Any] = {
    "linestyle": "none",
    "marker": "o",
    "markerfacecolor": "none",
    "markeredgewidth": 1.6,
    "color": RED,
}
_MOST_POINTS = 4000
_MOST_LABELS = 6


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG so that `path` never holds half of one."""
    with replacing(path) as scratch:
        figure.savefig(scratch, format="png", dpi=150)


def draw_noise(folder: Path, silence: Silence, noise: NoiseMeasurement, diagnostics: NoiseDiagnostics) -> list[Path]:
    """Write noise_psd.png, noise_histogram.png and noise_constellation.png into `folder`; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = ~np.isin(silence.bins, noise.excluded_bins)
    cells = silence.cells[:, kept]
    values = whitened_samples(cells)
    failed = [test.name for test in diagnostics.tests if not test.passed]
    verdict = f"failed: {', '.join(failed)}" if failed else f"all {len(diagnostics.tests)} tests passed"
    figures = {
        "noise_psd": psd_figure(silence, noise),
        "noise_histogram": histogram_figure(
            values, noise.noise_var_real, title=f"noise in the used band, spurs left out\n{verdict}"
        ),
        "noise_constellation": constellation_figure(
            cells, noise_std_real=noise.noise_std_real, title="cells of silence, spurs left out"
        ),
    }
    paths = [folder / f"{name}.png" for name in figures]
    for path, figure in zip(paths, figures.values(), strict=True):
        save_figure(figure, path)
    return paths


def _figure(width: float = 6.4, height: float = 4.0, rows: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    panels: list[Axes] = []
    for number in range(rows):
        panels.append(figure.add_subplot(rows, 1, number + 1, sharex=panels[0] if panels else None))
    for panel in panels:
        panel.grid(alpha=0.3)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _signed(value: float, digits: int) -> str:
    """A number with its sign, the minus as long as the plus."""
    return f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")


def psd_figure(silence: Silence, noise: NoiseMeasurement) -> Figure:
    """Power per FFT bin. Above: as received, with DC and spurs. Below: the noise of the used subcarriers without them.

    The band below is where 95 % of the subcarriers lie if all have the pooled variance: noise that leaves it is not
    white, and the dashed line, which the accountant uses, drops to the quietest subcarrier.
    """
    figure, (whole, used) = _figure(8.0, 6.2, rows=2)
    _draw_received(whole, silence, noise)
    _draw_used(used, silence, noise)
    size = silence.numerology.fft_size
    edge_mhz = silence.numerology.sample_rate_hz / 2e6
    whole.set(title=f"silence: {noise.blocks} blocks of {size} samples", xlim=(-edge_mhz, edge_mhz))
    used.set_xlabel("frequency from the centre in MHz")
    figure.supylabel(
        f"power per bin of {silence.numerology.subcarrier_spacing_hz / 1e3:.4g} kHz in dBFS", fontsize="medium"
    )
    return figure


def _draw_received(panel: Axes, silence: Silence, noise: NoiseMeasurement) -> None:
    numerology = silence.numerology
    center = numerology.fft_size // 2
    numbers = np.arange(numerology.fft_size) - center
    spacing_mhz = numerology.subcarrier_spacing_hz / 1e6
    power_db = power_ratios_to_db(np.fft.fftshift(silence.raw_bin_power), LOWEST_LEVEL_DB)
    inside = np.isin(numbers, numerology.used_subcarriers)
    panel.plot(numbers * spacing_mhz, power_db, color=GREY, linewidth=0.9, label="not used")
    panel.plot(numbers * spacing_mhz, np.where(inside, power_db, np.nan), color=BLUE, linewidth=1.1, label="used")
    panel.plot(
        0.0,
        power_db[center],
        marker="v",
        linestyle="none",
        color=ORANGE,
        label=f"DC offset, {_signed(noise.dc.level_dbfs, 1)} dBFS",
    )
    excluded = np.array([signed_bin(number, numerology) for number in noise.excluded_bins], dtype=np.int64)
    if excluded.size:
        panel.plot(excluded * spacing_mhz, power_db[excluded + center], **_RING, label="left out of the pooled value")
    for spur in sorted(noise.spurs, key=lambda spur: -spur.excess_db)[:_MOST_LABELS]:
        number = signed_bin(spur.bin, numerology)
        panel.annotate(
            f"{_signed(spur.offset_hz / 1e3, 1)} kHz\n{_signed(spur.excess_db, 1)} dB",
            (number * spacing_mhz, power_db[number + center]),
            xytext=(7, -1),
            textcoords="offset points",
            fontsize="x-small",
            color=RED,
        )
    low, high = float(power_db.min()), float(power_db.max())
    panel.set_ylim(low - 0.08 * (high - low), high + 0.4 * (high - low))
    panel.legend(frameon=False, fontsize="small", ncols=4, loc="upper center")


def _draw_used(panel: Axes, silence: Silence, noise: NoiseMeasurement) -> None:
    numerology = silence.numerology
    spacing_mhz = numerology.subcarrier_spacing_hz / 1e6
    numbers = numerology.used_subcarriers
    power_db = power_ratios_to_db(silence.bin_power, LOWEST_LEVEL_DB)
    pooled_db = _complex_db(noise.noise_var_real)
    # The scatter of one subcarrier's estimate about the truth is the inverse of its interval.
    low, high = noise.ci_per_bin[0][0], noise.ci_per_bin[0][1]
    scatter_db = power_ratios_to_db(noise.noise_var_real_per_bin[0] / np.array([high, low]), LOWEST_LEVEL_DB)
    ends = np.array([numbers[0] - 0.5, numbers[-1] + 0.5]) * spacing_mhz
    label = "95 % of the bins if white"
    panel.fill_between(ends, *(pooled_db + scatter_db), color=GREY, alpha=0.25, linewidth=0, label=label)
    kept = ~np.isin(noise.bins, noise.excluded_bins)
    panel.plot(numbers[kept] * spacing_mhz, power_db[kept], linestyle="none", marker=".", markersize=4, color=BLUE)
    if not np.all(kept):
        panel.plot(numbers[~kept] * spacing_mhz, power_db[~kept], **_RING)
    panel.plot(
        ends,
        [pooled_db] * 2,
        color="black",
        linewidth=1.1,
        label=rf"pooled $2\sigma_c^2$: {_signed(pooled_db, 2)} dBFS",
    )
    bound = sigma_lower_bound(noise)
    bound_db = _complex_db(bound.noise_var_real)
    rests = f"bin {_signed(signed_bin(bound.bin, numerology), 0)}"
    label = f"accounted ({rests}): {_signed(bound_db, 2)} dBFS"
    panel.plot(ends, [bound_db] * 2, color="black", linewidth=1.1, linestyle="--", label=label)
    bottom, top = min(float(power_db.min()), bound_db), float(power_db[kept].max())
    panel.set_ylim(bottom - 0.08 * (top - bottom), top + 0.3 * (top - bottom))
    panel.legend(frameon=False, fontsize="small", ncols=3, loc="upper center")


def _complex_db(noise_var_real: float) -> float:
    return power_ratio_to_db(noise_var_complex_from_real(noise_var_real), LOWEST_LEVEL_DB)


def histogram_figure(
    values: NDArray[np.complex64], noise_var_real: float, log: bool = True, title: str = "noise"
) -> Figure:
    """I and Q of complex values, in units of sigma, against the Gaussian of variance `noise_var_real`.

    The band is where 95 % of the counts of Gaussian values lie, bin by bin; with `log` the tails show.
    """
    if not (noise_var_real > 0 and values.size):
        raise MeasurementError(
            f"a histogram of {values.size} values with noise_var_real = {noise_var_real}: expected >0"
        )
    scaled = values.reshape(-1) / math.sqrt(noise_var_real)
    reach = max(4.5, min(8.0, 1.1 * float(np.max(np.abs(scaled.view(scaled.real.dtype))))))
    edges = np.linspace(-reach, reach, 90)
    centers, width = (edges[1:] + edges[:-1]) / 2.0, edges[1] - edges[0]
    figure, (panel,) = _figure()
    expected = scaled.size * width * np.exp(-(centers**2) / 2.0) / math.sqrt(2.0 * math.pi)
    spread = 1.96 * np.sqrt(expected)
    panel.fill_between(
        centers,
        np.maximum(expected - spread, 0.05),
        expected + spread,
        color=GREY,
        alpha=0.3,
        linewidth=0,
        label="95 % of such counts",
    )
    panel.plot(
        centers, expected, color="black", linewidth=1.0, label=rf"Gaussian, $\sigma_c$ = {noise_var_real**0.5:.4g}"
    )
    for part, colour, marker, name in ((scaled.real, BLUE, "o", "I"), (scaled.imag, ORANGE, "x", "Q")):
        counts, _ = np.histogram(part, bins=edges)
        seen = np.where(counts > 0, counts, np.nan)
        panel.plot(centers, seen, linestyle="none", marker=marker, markersize=3.2, color=colour, label=name)
    panel.set(xlabel=r"amplitude in $\sigma_c$", ylabel=f"count, of {scaled.size:,} values each")
    panel.set_title(title, fontsize="medium")
    if log:
        panel.set_yscale("log")
        panel.set_ylim(0.5, 4.0 * float(expected.max()))
    panel.legend(frameon=False, fontsize="small", loc="upper right")
    return figure


def constellation_figure(
    cells: NDArray[np.complex64],
    reference: NDArray[np.complex64] | None = None,
    noise_std_real: float | None = None,
    title: str = "constellation",
) -> Figure:
    """Cells in the complex plane, 4,000 at most, spread evenly over what is given; reference points as crosses.

    With `noise_std_real`, a circle that holds 95 % of circular Gaussian noise around the origin, or around each of up
    to 64 reference points.
    """
    points = cells.reshape(-1)
    if not points.size:
        raise MeasurementError("a constellation of no cells: expected at least one")
    points = points[:: max(1, math.ceil(points.size / _MOST_POINTS))]
    figure, (panel,) = _figure(4.8, 5.1)
    alpha = min(0.8, max(0.15, 600.0 / points.size))
    panel.scatter(points.real, points.imag, s=4, color=BLUE, alpha=alpha, linewidths=0)
    centers = np.zeros(1, dtype=np.complex64) if reference is None else np.unique(reference)
    if noise_std_real is not None and centers.size <= 64:
        turn = np.exp(2j * np.pi * np.linspace(0.0, 1.0, 200))
        radius = noise_std_real * math.sqrt(-2.0 * math.log(0.05))
        for number, center in enumerate(centers):
            ring = center + radius * turn
            label = "95 % of circular noise" if number == 0 else None
            panel.plot(ring.real, ring.imag, color=RED, linewidth=1.2, label=label)
    if reference is not None:
        panel.plot(centers.real, centers.imag, linestyle="none", marker="+", color="black", label="sent")
    reach = 1.3 * float(max(np.abs(points.real).max(), np.abs(points.imag).max()))
    panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    panel.set(xlabel=f"I ({points.size:,} cells)", ylabel="Q", title=title)
    panel.axhline(0.0, color="black", linewidth=0.5)
    panel.axvline(0.0, color="black", linewidth=0.5)
    if panel.get_legend_handles_labels()[0]:
        figure.legend(frameon=False, fontsize="small", loc="outside lower center", ncols=2)
    return figure


def residual_phase_figure(
    phases_rad: Mapping[str, NDArray[np.float64]],
    stds_rad: Mapping[str, float] | None = None,
    title: str = "phase left after gain and frequency offset",
) -> Figure:
    """Residual common phase per symbol in degrees, one line for each transmitter: phases (S,) by name.

    stds_rad: what noise alone would scatter each by; drawn as a band of two standard deviations where the transmitter
    is the only one, and written into the legend. Of more than six transmitters the six worst are named.
    """
    if not phases_rad:
        raise MeasurementError("residual phases of no transmitter: expected at least one")
    figure, (panel,) = _figure()
    worst = sorted(phases_rad, key=lambda name: -float(np.mean(phases_rad[name] ** 2)))
    labelled = [name for name in phases_rad if name in worst[: len(_STYLES)]]
    for name in worst[len(_STYLES) :]:
        panel.plot(_symbols(phases_rad[name]), np.degrees(phases_rad[name]), color=GREY, alpha=0.4, linewidth=0.7)
    for (colour, style), name in zip(_STYLES, labelled, strict=False):
        phase = phases_rad[name]
        label = f"{name}: {math.degrees(float(np.sqrt(np.mean(phase**2)))):.2f}° rms"
        std = None if stds_rad is None else stds_rad.get(name)
        if std is not None:
            label += f", noise alone {math.degrees(std):.2f}°"
            if len(phases_rad) == 1:
                panel.axhspan(-2 * math.degrees(std), 2 * math.degrees(std), color=GREY, alpha=0.2, linewidth=0)
        panel.plot(_symbols(phase), np.degrees(phase), style, color=colour, marker=".", markersize=4, label=label)
    panel.axhline(0.0, color="black", linewidth=0.5)
    others = len(phases_rad) - len(labelled)
    panel.set(xlabel="symbol of the sounding", ylabel="residual phase in degrees")
    panel.set_title(f"{title}, grey: {others} others" if others else title, fontsize="medium")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(frameon=False, fontsize="small", loc="outside lower center", ncols=2)
    return figure


def _symbols(phase: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.arange(1, phase.size + 1)
