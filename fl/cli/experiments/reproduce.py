"""Reproduce the paper's numerical section: run the sweep of an experiment, or of all, and write one report.

With --quick it runs on scikit-learn's digits and on synthetic data, without any download, and shows the same orderings.
"""

import argparse
from pathlib import Path

from fl.cli.experiments.sweep import add_cluster_arguments
from fl.cli.output import PROGRESS, RESULTS, print_json

EXPERIMENTS = ("no-jammer", "jammer", "iid")
"""In the paper's order; each is a shipped sweep, and with `-quick` a small one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    names = ", ".join(EXPERIMENTS)
    parser.add_argument("experiment", nargs="?", default="all", metavar="EXPERIMENT", help=f"{names} or all (default)")
    parser.add_argument("--quick", action="store_true", help="small versions, below 10 minutes on 2 cores")
    parser.add_argument("--trials", type=int, metavar="N", help="trials of each curve (default: the experiment's own)")
    parser.add_argument("--jobs", type=int, metavar="J", help="trials at the same time (default: one per core)")
    add_cluster_arguments(parser)
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of sweeps and report (default: runs/reproduce, or …-quick)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", help="override a key in all of it, may be repeated"
    )
    parser.add_argument("--resume", action="store_true", help="go on in the folder where an earlier call stopped")
    parser.add_argument("--json", action="store_true", help="print one JSON object: where report and sweeps are")


def call(options: argparse.Namespace) -> int:
    """Sweep each experiment, then one report over all of them."""
    from fl.cli.experiments.sweep import cluster_access, sweep_with_progress
    from fl.errors import ConfigError
    from fl.import_path import trusted_code
    from fl.report import write_report
    from fl.run.assemble import assemble
    from fl.sweep.plan import load_plan
    from fl.sweep.schedule import check_folder
    from hardware.foundation.sections import nearest

    if options.experiment not in ("all", *EXPERIMENTS):
        raise ConfigError(
            f"no experiment '{options.experiment}': expected all or one of {', '.join(EXPERIMENTS)}"
            f"{nearest(options.experiment, EXPERIMENTS)}"
        )
    names = EXPERIMENTS if options.experiment == "all" else (options.experiment,)
    suffix = "-quick" if options.quick else ""
    out = options.out or Path("runs") / f"reproduce{suffix}"
    plans = {out / name: load_plan(name + suffix, options.set, options.trials) for name in names}
    # The last one must not fail for what could be known before the first one began.
    for folder, plan in plans.items():
        check_folder(folder, plan, resume=options.resume)
        assemble(plan.points[0].config)
    cluster = cluster_access(options)
    sweeps = [
        sweep_with_progress(plan, folder, jobs=options.jobs, cluster=cluster, resume=options.resume).path
        for folder, plan in plans.items()
    ]
    # They were run by this command, so their code has been trusted with more than that.
    with PROGRESS.status("writing the report"), trusted_code():
        report = write_report(sweeps, out / "report.html", speed=True)
    if options.json:
        print_json({"report": str(report), "sweeps": [str(sweep) for sweep in sweeps]})
    else:
        RESULTS.print(f"report: {report}", soft_wrap=True)
    return 0
