"""Measure each named thing and its reference side by side in one run, and print the ratio with its spread."""

import argparse
from typing import Any

from fl.cli.output import PROGRESS, RESULTS, print_json
from fl.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure (default: all that can run)")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="pairs of measurements (default 5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def call(options: argparse.Namespace) -> int:
    """Measure and print."""
    from fl.bench.benchmarks import BENCHMARKS
    from fl.bench.measure import Measurement

    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        raise ConfigError(f"no benchmark '{unknown[0]}': expected one of {', '.join(BENCHMARKS)}")
    if options.repeats < 1:
        raise ConfigError(f"--repeats is {options.repeats}: expected 1 or more")
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
        RESULTS.print("  " + ", ".join(f"{key} {value:g}" for key, value in facts.items()), soft_wrap=True)
    return 0
