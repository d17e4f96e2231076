"""Measure each named thing and its reference side by side in one run, and print the ratio with its spread.

`airdp bench growth` has no reference: it shows how time and memory of an uplink grow with clients and coordinates.
"""

import argparse
from pathlib import Path
from typing import Any

from fl.cli.output import PROGRESS, RESULTS, print_json
from fl.errors import ConfigError

_GROWTH = "growth"
_PICTURES = (".png", ".svg", ".pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure (default: all that can run)")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="pairs of measurements (default 5)")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="with growth: draw it, as PNG, SVG or PDF")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def call(options: argparse.Namespace) -> int:
    """Measure and print."""
    from fl.bench.benchmarks import BENCHMARKS
    from fl.bench.measure import Measurement

    if options.repeats < 1:
        raise ConfigError(f"--repeats is {options.repeats}: expected 1 or more")
    if _GROWTH in options.names:
        return _growth(options)
    if options.picture is not None:
        raise ConfigError(f"--picture is for `airdp bench {_GROWTH}`")
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        raise ConfigError(f"no benchmark '{unknown[0]}': expected one of {', '.join(BENCHMARKS)}, {_GROWTH}")
    absent = {name: reason for name in options.names or BENCHMARKS if (reason := BENCHMARKS[name].missing())}
    for name, reason in absent.items():
        if options.names:
            raise ConfigError(f"benchmark '{name}' cannot run: {reason}")
        PROGRESS.print(f"{name} is skipped: {reason}", soft_wrap=True)
    results: dict[str, dict[str, Any]] = {}
    for name in [name for name in options.names or BENCHMARKS if name not in absent]:
        with PROGRESS.status(f"measuring {name}, {options.repeats} times"):
            results[name] = BENCHMARKS[name].measure(options.repeats).to_json()
    if options.json:
        print_json(results)
        return 0
    from rich.table import Table

    table = Table("benchmark", "ours", "reference", "ratio", "spread")
    for name, row in results.items():
        low, high = row["ratio_min"], row["ratio_max"]
        table.add_row(
            name,
            f"{row['ours_s']:.3g} s",
            f"{row['reference_s']:.3g} s",
            f"{row['ratio']:.3f}",
            f"{low:.3f} - {high:.3f}",
        )
    RESULTS.print(table)
    for name, row in results.items():
        RESULTS.print(
            f"{name}: {row['workload']}; reference: {row['reference']}; {row['repeats']} pairs", soft_wrap=True
        )
        facts = {key: value for key, value in row.items() if key not in Measurement.__dataclass_fields__}
        RESULTS.print("  " + ", ".join(f"{key} {_said(value)}" for key, value in facts.items()), soft_wrap=True)
    return 0


def _growth(options: argparse.Namespace) -> int:
    """Measured alone: it starts processes with up to 10,000 clients, and takes minutes."""
    from fl.bench.growth.series import draw_growth, measure_growth

    if len(options.names) > 1:
        raise ConfigError(f"{_GROWTH} is measured alone: name nothing beside it")
    if options.picture is not None and options.picture.suffix not in _PICTURES:
        raise ConfigError(f"--picture is {options.picture}: expected a name that ends in {', '.join(_PICTURES)}")
    with PROGRESS.status("measuring") as status:
        series = measure_growth(options.repeats, on_point=lambda words: status.update(f"measuring {words}"))
    if options.picture is not None:
        draw_growth(series, options.picture)
    if options.json:
        print_json({"series": [one.to_json() for one in series]})
        return 0
    from rich.table import Table

    for one in series:
        table = Table(one.over, title=f"{one.fidelity}, by {one.over}", title_justify="left")
        for column in ("plan, s", "exchange, s", "peak, MiB"):
            table.add_column(column, justify="right")
        for size, point in zip(one.sizes, one.points, strict=True):
            table.add_row(f"{size:,}", f"{point.plan_s:.3g}", f"{point.exchange_s:.3g}", f"{point.peak_mib:.0f}")
        RESULTS.print(table)
        RESULTS.print(
            f"time grows with the power {one.time_exponent:.2f} in the last step; memory by "
            f"{100 * one.memory_growth:.0f} % from first to last, {one.bytes_each:,.0f} bytes for each",
            soft_wrap=True,
        )
    return 0


def _said(fact: float | str) -> str:
    return fact if isinstance(fact, str) else f"{fact:g}"
