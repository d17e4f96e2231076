"""Write one HTML page about sweeps and runs: curves with their uncertainty, privacy, power, jammer, settings.

Everything is recomputed from the folders. The page needs no other file; its figures lie beside it as PNG and PDF.
"""

import argparse
from pathlib import Path

from fl.cli.output import PROGRESS, RESULTS, print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folder of a sweep or of a run")
    parser.add_argument("--out", type=Path, metavar="FILE.html", help="the page (default for one DIR: DIR/report.html)")
    parser.add_argument(
        "--no-bound", action="store_true", help="without the convergence bound, which needs the data and takes longest"
    )
    parser.add_argument(
        "--speed", action="store_true", help="measure this machine, and say how far the trials were from its sgemm"
    )
    parser.add_argument("--trust", action="store_true", help="import code that the folder's config names")
    parser.add_argument("--json", action="store_true", help="print one JSON object with every number of the page")


def call(options: argparse.Namespace) -> int:
    """Read, evaluate, draw, write."""
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn

    from fl.errors import ConfigError
    from fl.report import build_report
    from fl.report.summary import as_json

    if options.out is None and len(options.folders) > 1:
        raise ConfigError("a report about several folders needs --out: the file that the page is written to")
    out: Path = options.out or options.folders[0] / "report.html"
    columns = (TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=PROGRESS, disable=not PROGRESS.is_interactive, transient=True) as progress:
        task = progress.add_task("report", total=1.0)

        def on_progress(curve: str, done: float) -> None:
            progress.update(task, description=f"convergence bound: {escape(curve)}", completed=done)

        report = build_report(
            options.folders, out, bound=not options.no_bound, speed=options.speed, on_progress=on_progress
        )
    page, *files = report.write(out)
    if options.json:
        studies = [as_json(summary) for summary in report.summaries]
        print_json({"report": str(page), "files": [str(path) for path in files], "studies": studies})
        return 0
    for summary in report.summaries:
        trials = sum(len(curve.trials) for curve in summary.study.curves)
        missing = f"; {len(summary.study.missing)} missing" if summary.study.missing else ""
        RESULTS.print(f"{summary.study.title}: {trials} finished trials{missing}", soft_wrap=True, markup=False)
    RESULTS.print(f"report: {page}", soft_wrap=True, markup=False)
    if files:
        RESULTS.print(f"figures: {files[0].parent} ({len(files)} files)", soft_wrap=True, markup=False)
    return 0
