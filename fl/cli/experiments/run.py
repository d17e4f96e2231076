"""Run an experiment. CONFIG is a shipped name (`airdp configs`) or a TOML file. Everything goes into one folder."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fl.experiment.commands.output import PROGRESS, RESULTS, print_baseline, print_json, print_privacy, shown

if TYPE_CHECKING:
    from fl.experiment.runner import RunResult, UplinkMetrics


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("config", metavar="CONFIG", help="shipped name or TOML file")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the run (default: runs/NAME-TIME)")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="override a key, may be repeated")
    parser.add_argument("--backend", metavar="NAME", help="run over radios, through this backend")
    parser.add_argument(
        "--resume", action="store_true", help="go on with the run in --out; starts it where there is none"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def call(options: argparse.Namespace) -> int:
    """Run with a progress bar, then print the outcome."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from fl.experiment.config import load_config

    overrides = list(options.set)
    if options.backend:
        overrides += ["uplink.kind='radio'", f"radio.backend='{options.backend}'"]
    config = load_config(options.config, overrides)
    from fl.experiment import run

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
    )
    started = time.perf_counter()
    with Progress(*columns, console=PROGRESS, disable=not PROGRESS.is_interactive) as progress:
        task = progress.add_task(config.name, total=config.last_uplink, state="loading data")

        def on_uplink(metrics: "UplinkMetrics") -> None:
            state = f"accuracy {100 * metrics.accuracy:5.1f} %  epsilon {shown(metrics.epsilon)} ({metrics.label})"
            progress.update(task, completed=metrics.uplink, state=state)

        result = run(config, options.out, resume=options.resume, on_uplink=on_uplink)
    seconds = time.perf_counter() - started
    if options.json:
        print_json({**result.to_json(), "seconds": seconds})
    else:
        _print_tables(result, seconds)
    return 0


def _print_tables(result: "RunResult", seconds: float) -> None:
    from rich.table import Table

    table = Table(show_header=False, title="result", title_justify="left")
    for name, value in (
        ("test accuracy", f"{100 * result.accuracy:.2f} %"),
        ("training loss", shown(result.loss)),
        (
            "uplinks",
            f"{result.uplinks} ({result.rounds} model steps, {result.transmissions_charged} transmissions charged)",
        ),
        ("status", result.status),
        ("time", f"{seconds:.1f} s"),
    ):
        table.add_row(name, value)
    RESULTS.print(table)
    print_privacy(result.privacy)
    if result.allocation is not None and result.published is not None:
        print_baseline(result.published, result.allocation.to_json())
    RESULTS.print(f"folder: {result.out} (figures/*.png)", soft_wrap=True)
