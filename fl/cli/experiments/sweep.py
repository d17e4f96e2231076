"""Run a grid of configs, each several times. CONFIG is a shipped sweep or config (`airdp configs`) or a TOML file.

It runs on the cores of this machine, or on an existing Dask cluster whose machines have the same airdp, share the
folder and find the data under the same path: start `dask scheduler`, and on each machine `dask worker ADDRESS
--nworkers N --nthreads 1`, both with TLS (docs/security.md). Results do not depend on where or in how many processes it
runs.
"""

import argparse
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fl.cli.experiments.certificates import add_certificate_arguments, given_access
from fl.cli.output import LABEL_NOTES, PROGRESS, RESULTS, plain, print_json, shown

if TYPE_CHECKING:
    from rich.progress import TaskID

    from fl.cluster.access import Access
    from fl.sweep.plan import SweepFolder, SweepPlan
    from fl.sweep.session import SweepProgress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("config", metavar="CONFIG", help="shipped sweep, shipped config, or TOML file of either kind")
    parser.add_argument("--trials", type=int, metavar="N", help="trials of each point (default: the sweep's own, or 1)")
    parser.add_argument("--jobs", type=int, metavar="J", help="trials at the same time (default: one per core)")
    add_cluster_arguments(parser)
    parser.add_argument(
        "--resume", action="store_true", help="go on with the sweep in --out; starts it where there is none"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the sweep (default: runs/NAME-TIME)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", help="override a key at every point, may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where trials run if not here, and how that is reached."""
    parser.add_argument("--cluster", metavar="ADDRESS", help="run on the Dask cluster with this scheduler, tls://…")
    add_certificate_arguments(parser, "--cluster", "--cluster")


def cluster_access(options: argparse.Namespace) -> "Access | None":
    """How to reach what these options name; None: it runs here."""
    return given_access(options.cluster, options, "--cluster")


def call(options: argparse.Namespace) -> int:
    """Run with progress, then print the outcome."""
    from fl.errors import RunFolderError
    from fl.sweep.plan import load_plan

    plan = load_plan(options.config, options.set, options.trials)
    out = options.out
    if out is None:
        if options.resume:
            raise RunFolderError("--resume needs --out: the folder of the sweep that shall go on")
        out = Path("runs") / f"{plan.name}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
    folder = sweep_with_progress(
        plan,
        out,
        jobs=options.jobs,
        cluster=cluster_access(options),
        resume=options.resume,
        lines=not options.json,
    )
    _print(folder, plan, as_json=options.json)
    return 0


def sweep_with_progress(
    plan: "SweepPlan",
    out: Path,
    *,
    jobs: int | None = None,
    cluster: "Access | None" = None,
    resume: bool = False,
    lines: bool = True,
) -> "SweepFolder":
    """`run_sweep` with bars on stderr: the whole sweep with the time that remains, and each running trial.

    lines: without a terminal, one for each finished trial.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Column

    from fl.sweep.schedule import run_sweep

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("uplinks"),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, console=PROGRESS, disable=not PROGRESS.is_interactive) as bars:
        whole = bars.add_task(plan.name, total=None, state="loading data, starting workers")
        tasks: dict[tuple[str, int], TaskID] = {}

        finished = 0

        def on_progress(now: "SweepProgress") -> None:
            nonlocal finished
            if lines and not PROGRESS.is_interactive and now.trials > finished:
                plain(f"{plan.name}: {now.trials}/{now.trials_total} trials, {now.uplinks}/{now.uplinks_total} uplinks")
                finished = now.trials
            left = "" if now.remaining_seconds is None else f", {timedelta(seconds=round(now.remaining_seconds))} left"
            state = f"{now.trials} of {now.trials_total} trials{left}"
            if now.stopping:
                state = "stopping after the uplinks that are running"
            bars.update(whole, total=now.uplinks_total, completed=now.uplinks, state=state)
            running = {(trial.point.slug, trial.trial): trial for trial in now.running}
            for key in tasks.keys() - running.keys():
                bars.remove_task(tasks.pop(key))
            for key, trial in running.items():
                if key not in tasks:
                    name = f"  {trial.point.name}, trial {trial.trial}"
                    tasks[key] = bars.add_task(name, total=trial.uplinks_total, state="")
                bars.update(tasks[key], completed=trial.uplinks, state=trial.shown)

        return run_sweep(plan, out, jobs=jobs, cluster=cluster, resume=resume, on_progress=on_progress)


def _print(folder: "SweepFolder", plan: "SweepPlan", *, as_json: bool) -> None:
    from fl.privacy.sensitivity import Label
    from fl.sweep.summary import summarise_sweep

    summaries = summarise_sweep(folder)
    timing = folder.timing()
    seconds = timing.get("wall_seconds", 0.0)
    cpu_seconds = sum(trial["cpu_seconds"] for trial in timing.get("trials", []))
    if as_json:
        print_json(
            {
                "name": plan.name,
                "title": plan.title,
                "points": [summary.to_json() for summary in summaries],
                "seconds": seconds,
                "cpu_seconds": cpu_seconds,
                "out": str(folder.path),
            }
        )
        return
    from rich.table import Table

    from fl.sweep.estimate import LEAST_TRIALS
    from fl.sweep.score import score_of

    score = score_of(summary.score for summary in summaries)
    unit = " %" if score.unit else ""
    table = Table("point", title=plan.title, title_justify="left")
    for column in ("trials", f"test {score.name}", "epsilon", "delta"):
        table.add_column(column, justify="right")
    table.add_column("label, accountant, neighbours")
    for summary in summaries:
        accuracy = summary.accuracy
        spread = "" if accuracy.half is None else f" ± {score.number(accuracy.half)}"
        table.add_row(
            summary.point.name,
            str(len(summary.trials)),
            f"{score.number(accuracy.mean)}{spread}{unit}",
            shown(summary.epsilon[summary.accountant]),
            f"{summary.delta:g}",
            f"{summary.label}, {summary.accountant}, {summary.neighbours}",
        )
    RESULTS.print(table)
    RESULTS.print(
        f"{score.name}: mean, and from {LEAST_TRIALS} trials on the 95 % interval of the mean; "
        "epsilon: the largest of the trials",
        soft_wrap=True,
    )
    for label in dict.fromkeys(summary.label for summary in summaries):
        RESULTS.print(LABEL_NOTES[Label(label)], soft_wrap=True)
    RESULTS.print(f"time: {seconds:.1f} s, of the processors {cpu_seconds:.1f} s", soft_wrap=True)
    RESULTS.print(f"folder: {folder.path}", soft_wrap=True)
