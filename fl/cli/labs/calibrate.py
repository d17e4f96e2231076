"""Measure a lab: the receiver's noise in silence, then each transmitter alone. LAB is a shipped name or a lab file.

The record and its pictures are written only when everything was measured.
"""

import argparse
import math
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fl.cli.output import PROGRESS, RESULTS, print_json
from fl.errors import ConfigError
from hardware.foundation.scratch import make_locked

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from calibration.procedure import Calibration, OnStep
    from calibration.record import CalibrationRecord
    from hardware.lab.model import Lab
    from phy.numerology import Numerology

DEFAULT_HOURS = 12.0
_LONGEST_HOURS = 24.0 * 365.0
_SIGNIFICANT = 0.01
_DB_PER_NEPER = 20.0 / math.log(10.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("lab", metavar="LAB", help="shipped name or lab file")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="record to write (default: calibration-LAB-TIME.json); pictures beside"
    )
    parser.add_argument("--backend", metavar="NAME", help="reach the lab's radios through this backend")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the simulated air (default 1)")
    parser.add_argument("--samples", type=int, metavar="N", help="of silence (default 262144)")
    parser.add_argument("--hours", type=float, metavar="H", help=f"lifetime of the record (default {DEFAULT_HOURS:g})")
    parser.add_argument(
        "--numerology",
        type=int,
        nargs=3,
        metavar=("FFT", "PREFIX", "USED"),
        help="FFT size, prefix and used subcarriers, as the runs have them (default 256 64 192)",
    )
    parser.add_argument(
        "--check", type=Path, metavar="FILE", help="measure nothing: does this record fit the radios as they are now?"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")


def call(options: argparse.Namespace) -> int:
    """Measure and write, or check."""
    from hardware.lab.file import find_lab

    lab = find_lab(options.lab, options.backend)
    if options.check is not None:
        return _check(lab, options)
    return _measure(lab, options)


def _check(lab: "Lab", options: argparse.Namespace) -> int:
    from calibration.procedure import check_lab
    from calibration.record import load_record
    from hardware.lab.opened import open_lab

    for name in ("out", "samples", "hours"):
        if getattr(options, name) is not None:
            raise ConfigError(f"--{name} and --check exclude each other: --check measures and writes nothing")
    record = load_record(options.check)
    now = datetime.now(UTC)
    with open_lab(lab, options.seed) as opened:
        check_lab(record, opened, now, _numerology(options))
    if options.json:
        print_json({"fits": True, "path": str(options.check), "checked": now.isoformat(), **record.summary_json()})
        return 0
    hours_left = (record.expires - now) / timedelta(hours=1)
    RESULTS.print(f"{options.check} fits {lab.name}, for {hours_left:.1f} hours more", soft_wrap=True, markup=False)
    return 0


def _measure(lab: "Lab", options: argparse.Namespace) -> int:
    from calibration.procedure import Plan, calibrate
    from calibration.schema import to_json
    from hardware.lab.opened import open_lab

    hours = DEFAULT_HOURS if options.hours is None else options.hours
    if not 0.0 < hours <= _LONGEST_HOURS:
        raise ConfigError(f"--hours is {hours:g}: expected above 0 and at most {_LONGEST_HOURS:g}, a year")
    plan = Plan(numerology=_numerology(options))
    if options.samples is not None:
        plan = replace(plan, silence_samples=options.samples)
    created = datetime.now(UTC)
    out = options.out or Path(f"calibration-{_file_name(lab.name)}-{created:%Y%m%dT%H%M%SZ}.json")
    with _staging(out) as staging:
        with _progress() as on_step:
            with open_lab(lab, options.seed) as opened:
                calibration = calibrate(opened, created, plan, timedelta(hours=hours), on_step)
            on_step(0, 0, "pictures")
            names = _draw(calibration, staging)
        _publish(calibration.record, staging, out)
    figures = _figures(out)
    if options.json:
        record = calibration.record
        print_json(
            {
                **record.summary_json(),
                "linearity": {key: to_json(linearity) for key, linearity in record.linearity.items()},
                "unmeasured": calibration.unmeasured,
                "timing": {name: to_json(timing) for name, timing in record.timing.items()},
                "path": str(out),
                "figures": [str(figures / name) for name in names],
            }
        )
        return 0
    _print_tables(calibration, lab)
    RESULTS.print(f"record: {out}, for {hours:g} hours", soft_wrap=True, markup=False)
    RESULTS.print(f"pictures: {figures}{os.sep}*.png", soft_wrap=True, markup=False)
    return 0


def _numerology(options: argparse.Namespace) -> "Numerology":
    from phy.numerology import Numerology

    return Numerology() if options.numerology is None else Numerology(*options.numerology)


def _file_name(name: str) -> str:
    """A lab's name, which may be any text, as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)


def _figures(out: Path) -> Path:
    return out.with_suffix("")


def _refuse_existing(out: Path) -> None:
    for path in (out, _figures(out)):
        if path.exists() or path.is_symlink():
            raise ConfigError(f"{path} exists already: a calibration is never overwritten; choose another --out")


@contextmanager
def _staging(out: Path) -> Iterator[Path]:
    """A folder beside `out` that is gone afterwards. It is made first: a disk that cannot be written to shows early."""
    if out.suffix != ".json":
        raise ConfigError(f"--out is {out}: expected a file whose name ends in .json")
    if not out.parent.is_dir():
        raise ConfigError(f"--out is {out}: the folder {out.parent} does not exist; make it first")
    _refuse_existing(out)
    staging, lock = make_locked(out.parent, f".{out.stem}.")
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        os.close(lock)


def _publish(record: "CalibrationRecord", staging: Path, out: Path) -> None:
    """Pictures first and by a rename, the record last: where there is a record, everything is there."""
    from calibration.record import save_record

    _refuse_existing(out)
    figures = _figures(out)
    staging.rename(figures)
    try:
        save_record(record, out)
    except BaseException:
        shutil.rmtree(figures, ignore_errors=True)
        raise


@contextmanager
def _progress() -> "Iterator[OnStep]":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=PROGRESS, disable=not PROGRESS.is_interactive, transient=True) as progress:
        yield _reporter(progress)


def _reporter(progress: "Progress") -> "OnStep":
    task = progress.add_task("opening the lab", total=None)

    def on_step(done: int, total: int, what: str) -> None:
        """A step of unknown place (total 0) only changes the text."""
        if total:
            progress.update(task, completed=done, total=total, description=what)
        else:
            progress.update(task, description=what)

    return on_step


def _draw(calibration: "Calibration", folder: Path) -> list[str]:
    """Write all pictures; returns their names."""
    from calibration.plots import constellation_figure, draw_noise, residual_phase_figure, save_figure
    from calibration.procedure import SENT_POINTS

    record, views = calibration.record, calibration.views
    paths = draw_noise(folder, calibration.silence, record.noise, record.diagnostics)
    figures = {
        f"sounding_{name}": constellation_figure(
            view.points, SENT_POINTS, view.point_std_real, f"sounding of {name}, {record.links[name].snr_db:.1f} dB SNR"
        )
        for name, view in views.items()
    }
    figures["residual_phase"] = residual_phase_figure(
        {name: view.phases_rad for name, view in views.items()},
        {name: view.phase_std_rad for name, view in views.items()},
    )
    for name, figure in figures.items():
        save_figure(figure, folder / f"{name}.png")
    return [path.name for path in paths] + [f"{name}.png" for name in figures]


def _print_tables(calibration: "Calibration", lab: "Lab") -> None:
    from hardware.lab.clock import ClockMode

    record = calibration.record
    RESULTS.print(_noise_table(record, lab))
    RESULTS.print(_diagnostics_table(record))
    RESULTS.print(f"{record.diagnostics.verdict}{_consequence(record)}", soft_wrap=True, markup=False)
    RESULTS.print(_links_table(record, lab))
    RESULTS.print(_linearity_table(calibration))
    if lab.clock_mode is ClockMode.FREE_RUNNING:
        drifts = [f"{name} {timing.clock_offset_ppm:+.3f} ppm" for name, timing in record.timing.items()]
        RESULTS.print(f"delays are those of the last sounding, clocks run freely: {', '.join(drifts)}", soft_wrap=True)
    for key, reason in calibration.unmeasured.items():
        RESULTS.print(f"{key} was not measured: {reason}", soft_wrap=True, markup=False)


def _consequence(record: "CalibrationRecord") -> str:
    if record.diagnostics.passed:
        return ""
    if record.diagnostics.bound_holds:
        return "; the accounted value allows for that"
    return "; no accounting may rest on it"


def _noise_table(record: "CalibrationRecord", lab: "Lab") -> "Table":
    from rich.markup import escape
    from rich.table import Table

    from calibration.noise import sigma_lower_bound

    noise, bound = record.noise, sigma_lower_bound(record.noise)
    title = escape(f"{lab.name}: noise of {lab.ps.name} in silence")
    table = Table(show_header=False, title=title, title_justify="left")
    table.add_row("sigma_c^2", f"{noise.noise_var_real:.5g}, variance of one real coordinate, full scale 1")
    table.add_row(f"{100 * noise.confidence:g} % interval", f"{noise.ci[0]:.5g} to {noise.ci[1]:.5g}")
    table.add_row("accounted", f"{bound.noise_var_real:.5g} at least: {bound.reason}")
    table.add_row("measured on", f"{noise.blocks} blocks, {len(noise.bins) - len(noise.excluded_bins)} subcarriers")
    could_be_noise = f"; may be noise, p = {noise.dc.p_value:.2g}" if noise.dc.p_value > _SIGNIFICANT else ""
    table.add_row("DC", f"{noise.dc.level_dbfs:.1f} dBFS, left out{could_be_noise}")
    spurs = [f"{spur.name}: {spur.level_dbfs:.1f} dBFS, {spur.excess_db:+.1f} dB, left out" for spur in noise.spurs]
    table.add_row("spurs", "\n".join(spurs) or "none found")
    return table


def _diagnostics_table(record: "CalibrationRecord") -> "Table":
    from rich.table import Table

    diagnostics = record.diagnostics
    title = (
        f"tests of the noise: passed above {diagnostics.level:g}, corrected for {len(diagnostics.tests)} tests (Holm)"
    )
    table = Table("test", "corrected p-value", "verdict", title=title, title_justify="left")
    for test in diagnostics.tests:
        verdict = "[green]passed[/]" if test.passed else f"[red]failed[/]: {test.meaning}"
        table.add_row(test.name.replace("_", " "), f"{diagnostics.corrected[test.name]:.3g}", verdict)
    return table


def _links_table(record: "CalibrationRecord", lab: "Lab") -> "Table":
    from rich.table import Table

    from phy.units import amplitude_ratio_to_db

    title = f"links to {lab.ps.name}, with standard uncertainties"
    table = Table("from", title=title, title_justify="left")
    for column in ("gain dB", "delay samples", "CFO Hz", "SNR dB"):
        table.add_column(column, justify="right")
    for name, link in record.links.items():
        amplitude = abs(link.gain)
        table.add_row(
            name,
            _uncertain(amplitude_ratio_to_db(amplitude), _DB_PER_NEPER * link.gain_std / amplitude, 4),
            _uncertain(link.delay_samples, link.delay_samples_std, 5),
            _uncertain(link.cfo_hz, link.cfo_hz_std, 2),
            f"{link.snr_db:.1f}",
        )
    return table


def _linearity_table(calibration: "Calibration") -> "Table":
    from rich.table import Table

    from calibration.procedure import ATTENUATOR, SCALE, linearity_key
    from calibration.spurs import LOWEST_LEVEL_DB
    from phy.units import amplitude_ratio_to_db

    record = calibration.record
    tolerances = {linearity.tolerance_db for linearity in record.linearity.values()}
    allowed = f", tolerance {max(tolerances):g} dB" if tolerances else ""
    title = f"band, timing, largest deviation from linear{allowed}"
    table = Table("from", title=title, title_justify="left")
    for column in ("gain range dB", "jitter samples", "digital scale", "gain steps"):
        table.add_column(column, justify="right")
    for name, link in record.links.items():
        levels_db = [amplitude_ratio_to_db(abs(gain), LOWEST_LEVEL_DB) for gain in link.gain_per_subcarrier]
        cells = []
        for kind in (SCALE, ATTENUATOR):
            linearity = record.linearity.get(linearity_key(name, kind))
            cells.append(
                "not measured"
                if linearity is None
                else f"{linearity.largest_deviation_db:.3f} {linearity.verdict.name.lower()}"
            )
        table.add_row(
            name,
            f"{min(levels_db):.1f} to {max(levels_db):.1f}",
            f"{record.timing[name].jitter_samples:.2g}",
            *cells,
        )
    return table


def _uncertain(value: float, std: float, most_digits: int) -> str:
    """Value and standard uncertainty, both to two digits of the latter, with `most_digits` after the point at most."""
    digits = most_digits if std <= 0.0 else min(max(1 - math.floor(math.log10(std)), 0), most_digits)
    return f"{value:.{digits}f} \N{PLUS-MINUS SIGN} {std:.{digits}f}"
