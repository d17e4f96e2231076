"""Run an experiment. CONFIG is a shipped name (`airdp configs`) or a TOML file. Everything goes into one folder."""

import argparse
import json
import math
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fl.cli.experiments.certificates import add_certificate_arguments, given_access
from fl.cli.experiments.dry_run import dry_run
from fl.cli.output import PROGRESS, RESULTS, plain, print_baseline, print_json, print_privacy, shown
from fl.errors import ConfigError, LedgerError, RunFolderError
from phy.errors import AirdpError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import ProgressColumn

    from fl.nodes.apart.switchboard import NodeState
    from fl.run.apart.attendance import NodesElsewhere
    from fl.run.config import RunConfig
    from fl.run.course.metrics import UplinkMetrics
    from fl.run.course.result import RunResult
    from hardware.lab.model import Lab


_NAMED = 5
"""Nodes that are waited for, at most: of fifty the others are counted."""
_ROUNDING = 1e-6
"""Relative; noise sized for exactly the target may be off by rounding."""


@dataclass(frozen=True)
class Around:
    """What another command puts around a run. beside: entered for as long as that goes on. lab: with the addresses of
    its radios. again: the command that goes on with the run in a folder. look: called while nodes are waited for; it
    raises where that is in vain."""

    beside: AbstractContextManager[None]
    lab: "Lab"
    again: Callable[[Path], list[str]]
    look: Callable[[], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("config", metavar="CONFIG", help="shipped name or TOML file")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the run (default: runs/NAME-TIME)")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="override a key, may be repeated")
    parser.add_argument("--backend", metavar="NAME", help="run over radios, through this backend")
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE", help="record of the lab (airdp calibrate) that the run rests on"
    )
    parser.add_argument(
        "--record", action="store_true", help="keep what is received in every uplink (radio.record = 'all')"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with the run in --out; starts it where there is none"
    )
    parser.add_argument(
        "--live", action="store_true", help="serve a page about the run meanwhile, as `airdp live` does for any run"
    )
    parser.add_argument(
        "--live-at", metavar="HOST:PORT", help="where --live serves it (default: 127.0.0.1:8750, or any free port)"
    )
    parser.add_argument("--lab", metavar="LAB", help="run over the radios of this lab (radio.lab)")
    parser.add_argument(
        "--listen", metavar="tcp://ADDRESS:PORT", help="clients and jammer are `airdp node` elsewhere, and join here"
    )
    parser.add_argument(
        "--keys", type=Path, default=Path("keys"), metavar="DIR", help="with --listen: folder of keys (default: keys)"
    )
    parser.add_argument(
        "--wait", type=float, default=60.0, metavar="S", help="with --listen: seconds for nodes to join (default 60)"
    )
    add_certificate_arguments(parser, "local.workers = 'tls://…'", "local.workers")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say what would be sent, for how long, with which epsilon, and how long the run takes; send nothing",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def call(options: argparse.Namespace, around: Around | None = None) -> int:
    """Run with a progress bar, then print the outcome."""
    from rich.progress import Progress

    from fl.run.config import load_config

    if options.live_at and not options.live:
        raise ConfigError("--live-at says where --live serves its page: add --live")
    if options.resume and options.out is None:
        raise RunFolderError("--resume needs --out: the folder of the run that shall go on")
    overrides = list(options.set)
    if options.backend:
        overrides += ["uplink.kind='radio'", f"radio.backend={json.dumps(options.backend)}"]
    if options.lab:
        overrides += ["uplink.kind='radio'", f"radio.lab={json.dumps(options.lab)}"]
    if options.calibration:
        overrides.append(f"radio.calibration={json.dumps(str(options.calibration))}")
    if options.record:
        overrides.append("radio.record='all'")
    config = load_config(options.config, overrides)
    access = given_access(config.local.cluster, options, "local.workers")
    if options.dry_run:
        return dry_run(config, as_json=options.json)
    from fl.run import run
    from fl.run.runner import default_folder

    started = time.perf_counter()
    changes_db: list[float] = []
    out = options.out if options.out or options.resume else default_folder(config)
    with ExitStack() as stack:
        again = partial(_again, options) if around is None else around.again
        stack.enter_context(_resumable(out, options, again))
        if around is not None:
            stack.enter_context(around.beside)
        if options.live:
            from fl.dashboard.beside import page_beside

            url = stack.enter_context(page_beside(out, options.live_at))
            PROGRESS.print(f"live page: {url}", soft_wrap=True)
        progress = stack.enter_context(Progress(*_columns(), console=PROGRESS, disable=not PROGRESS.is_interactive))
        task = progress.add_task(config.name, total=config.last_uplink, state="loading data")

        def on_uplink(metrics: "UplinkMetrics") -> None:
            if metrics.diagnostics.get("noise_changed"):
                changes_db.append(metrics.diagnostics["noise_change_db"])
            state = f"{metrics.score} {metrics.shown}  epsilon {shown(metrics.epsilon)} ({metrics.label})"
            progress.update(task, completed=metrics.uplink, state=state)
            if not (PROGRESS.is_interactive or options.json):
                plain(f"uplink {metrics.uplink}/{config.last_uplink}: {state}")

        elsewhere = _elsewhere(options, around)
        result = run(config, out, resume=options.resume, on_uplink=on_uplink, elsewhere=elsewhere, access=access)
    seconds = time.perf_counter() - started
    if changes_db:
        PROGRESS.print(
            f"warning: in {len(changes_db)} uplinks the noise was not that of the calibration, by up to "
            f"{max(changes_db, key=abs):+.2f} dB: see noise_change_db in metrics.jsonl, and calibrate again",
            soft_wrap=True,
            highlight=False,
        )
    _warn_above_target(config, result)
    if options.json:
        print_json({**result.to_json(), "seconds": seconds})
    else:
        _print_tables(result, seconds)
    return 0


def _columns() -> "tuple[ProgressColumn, ...]":
    """Of the progress bar: in a window of 80 columns the bar shrinks, and no number is cut."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    return (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
    )


def _elsewhere(options: argparse.Namespace, around: Around | None) -> "NodesElsewhere | None":
    """Where nodes are processes of their own: how they are reached. Says where it listens, and who is missing."""
    if not options.listen:
        return None
    from fl.run.apart.attendance import NodesElsewhere

    missing: list[str] = []

    def said(nodes: "Sequence[NodeState]") -> None:
        if around is not None:
            around.look()
        now = [node.name for node in nodes if not node.session]
        if now != missing:
            missing[:] = now
            more = f" and {len(now) - _NAMED} more" if len(now) > _NAMED else ""
            missed = f"waiting for {', '.join(now[:_NAMED])}{more}"
            PROGRESS.print(missed if now else "all nodes are there", highlight=False)

    return NodesElsewhere(
        options.listen,
        options.keys,
        options.wait,
        said=said,
        listening=lambda endpoint: PROGRESS.print(f"listening at {endpoint}", highlight=False),
        lab=None if around is None else around.lab,
    )


@contextmanager
def _resumable(out: Path | None, options: argparse.Namespace, again: Callable[[Path], list[str]]) -> Iterator[None]:
    """Whoever ends the run, and whoever sees it fail on the way, is told where it is and how it goes on."""
    ours = out is not None and (options.resume or not _begun(out))
    try:
        yield
    except (KeyboardInterrupt, SystemExit, AirdpError, OSError) as end:
        # A run that failed before its first uplink was done is mended and started, not resumed; one whose folder was
        # refused did not go on.
        failed = isinstance(end, Exception) and out is not None and not (out / "checkpoint.npz").exists()
        refused = isinstance(end, RunFolderError | LedgerError)
        if out is not None and ours and _begun(out) and not failed and not refused:
            plain(f"airdp: the run so far is in {out}; to go on: {shlex.join(again(out))}")
        raise


def _begun(out: Path) -> bool:
    return (out / "config.toml").exists()


def _again(options: argparse.Namespace, out: Path) -> list[str]:
    """The command that resumes."""
    again = ["airdp", "run", options.config]
    for override in options.set:
        again += ["--set", override]
    for name in ("backend", "calibration", "lab", "listen", "live_at"):
        if getattr(options, name):
            again += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    if options.listen:
        again += ["--keys", str(options.keys), "--wait", f"{options.wait:g}"]
    again += [f"--{name}" for name in ("record", "live") if getattr(options, name)]
    return [*again, "--out", str(out), "--resume"]


def _warn_above_target(config: "RunConfig", result: "RunResult") -> None:
    """Loudly, where more was spent than was asked for: an uplink was repeated or cut off, or noise was too little."""
    claimed = result.privacy[0]
    spent, wanted = claimed.epsilon[config.privacy.accountant], config.privacy.epsilon
    if config.uplink.kind == "ideal" or spent <= wanted * (1 + _ROUNDING):
        return
    repeated = result.transmissions_charged - result.uplinks
    why = f"; {repeated} transmissions were charged besides the {result.uplinks} uplinks" if repeated else ""
    plain(
        f"WARNING: the run has spent epsilon {shown(spent)} ({claimed.label}, accountant {config.privacy.accountant}), "
        f"above privacy.epsilon = {wanted:g}{why}; privacy.budget_epsilon would have stopped it"
    )


def _print_tables(result: "RunResult", seconds: float) -> None:
    from rich.table import Table

    charged = f"{result.transmissions_charged} transmissions charged"
    if result.transmissions_unaccounted:
        charged += f", {result.transmissions_unaccounted} of them cut off"
    table = Table(show_header=False, title="result", title_justify="left")
    for name, value in (
        (
            f"test {result.score}",
            f"{100 * result.accuracy:.2f} %" if result.score == "accuracy" else shown(result.accuracy),
        ),
        ("training loss", "known to the clients alone" if math.isnan(result.loss) else shown(result.loss)),
        ("uplinks", f"{result.uplinks} ({result.rounds} model steps, {charged})"),
        ("status", result.status),
        ("time", f"{seconds:.1f} s"),
    ):
        table.add_row(name, value)
    RESULTS.print(table)
    print_privacy(result.privacy)
    if result.allocation is not None and result.published is not None:
        print_baseline(result.published, result.allocation.to_json())
    pictures = " (figures/*.png)" if result.uplinks else ""
    RESULTS.print(f"folder: {result.out}{pictures}", soft_wrap=True)
