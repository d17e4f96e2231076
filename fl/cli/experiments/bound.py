"""The paper's convergence bound (Theorem 5) for a run: what each term costs, which dominates, or why it is void.

Constants that are not given are estimated from the run's models and data, which must be there.
"""

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl.cli.output import PROGRESS, RESULTS, print_json, shown
from fl.learning.theory.convergence import TERMS

if TYPE_CHECKING:
    from fl.learning.theory.convergence import Bound, Form
    from fl.run.bound import EstimatedConstants
    from fl.run.folder import RunFolder

CONSTANTS = {
    "lipschitz": ("L", "Lipschitz constant of every client's gradient"),
    "dissimilarity": ("B", "B-dissimilarity of the clients, 1 where they are alike"),
    "strong_convexity": ("rho", "strong convexity of F_i + mu/2 ||w - w_global||^2"),
    "step_bound": ("q", "length of the longest model step that an uplink made"),
    "gradient_bound": ("G", "largest ||grad f||"),
    "heterogeneity": ("kappa", "largest ||grad F_i - grad f||, one for all clients"),
    "optimum": ("f(w*)", "smallest training loss there is, 0 unless given"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of a run")
    for name, (symbol, meaning) in CONSTANTS.items():
        metavar = "F" if name == "optimum" else symbol.upper()
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, metavar=metavar, help=meaning)
    parser.add_argument("--trust", action="store_true", help="import code that the folder's config names")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")


def call(options: argparse.Namespace) -> int:
    """Estimate what is not given, evaluate both forms of the bound, print."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from fl.learning.theory.convergence import Form
    from fl.run.bound import bound_of_run, estimate_constants
    from fl.run.folder import RunFolder

    folder = RunFolder(options.folder)
    given = {name: getattr(options, name) for name in CONSTANTS if getattr(options, name) is not None}
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=PROGRESS, disable=not PROGRESS.is_interactive) as progress:
        task = progress.add_task("gradients and Hessians", total=1.0)
        constants = estimate_constants(folder, given, lambda done: progress.update(task, completed=done))
    bounds = {form: bound_of_run(folder, constants, form) for form in Form}
    if options.json:
        print_json(summary(folder, constants, bounds))
    else:
        _print_tables(summary(folder, constants, bounds), constants, bounds)
    return 0


def summary(folder: "RunFolder", constants: "EstimatedConstants", bounds: "Mapping[Form, Bound]") -> dict[str, Any]:
    """All that the tables show, JSON-ready; null where there is no finite number."""
    from fl.run.bound import premises_not_met, record_of_run, what_holds

    config, record = folder.config(), record_of_run(folder)
    return {
        "folder": str(folder.path),
        "name": config.name,
        "algorithm": str(config.algorithm.name),
        "holds": what_holds(config),
        "uplinks": record.uplinks,
        "clients": len(record.weights),
        "dimension": record.dimension,
        "mu": record.proximal_mu,
        "constants": {
            "lipschitz": constants.lipschitz,
            "dissimilarity": _finite(constants.dissimilarity),
            "strong_convexity": constants.strong_convexity,
            "step_bound": constants.step_bound,
            "gradient_bound": constants.gradient_bound,
            "heterogeneity": constants.heterogeneity.tolist(),
            "start_gap": constants.start_gap,
        },
        "given": sorted(constants.given),
        "points": constants.points,
        "hessian_points": constants.hessian_points,
        "smallest_eigenvalue": _finite(constants.smallest_eigenvalue),
        "caveat": constants.caveat,
        "premises_not_met": list(premises_not_met(folder)),
        "squared_gradients": dict(constants.squared_gradients),
        "bounds": {form.value: _bound(bound) for form, bound in bounds.items()},
    }


def _bound(bound: "Bound") -> dict[str, Any]:
    return {
        "c1": _finite(bound.c1),
        "terms": {name: _finite(value) for name, value in bound.terms.items()},
        "shares": {name: _finite(value) for name, value in bound.shares.items()},
        "c4_backoff": _finite(float(bound.c4_backoff.mean())),
        "dominant": bound.dominant,
        "bound": _finite(bound.value),
        "vacuous": bound.vacuous,
        "void": bound.void,
        "mu_needed": _finite(bound.mu_needed),
        "by_uplink": {
            name: [_finite(value) for value in getattr(bound, name).tolist()] for name in TERMS if name != "start"
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _shown(value: float) -> str:
    return "-" if math.isnan(value) else shown(value)


def _print_tables(said: Mapping[str, Any], constants: "EstimatedConstants", bounds: "Mapping[Form, Bound]") -> None:
    from rich.table import Table

    RESULTS.print(
        f"{said['name']}: {said['algorithm']}, {said['uplinks']} uplinks, {said['clients']} clients, "
        f"d = {said['dimension']}, mu = {said['mu']:g}; bound: {said['holds']}",
        soft_wrap=True,
    )
    table = Table("", "value", "", "what it is", title="constants", title_justify="left")
    for name, value in (
        ("lipschitz", shown(constants.lipschitz)),
        ("dissimilarity", shown(constants.dissimilarity)),
        ("strong_convexity", shown(constants.strong_convexity)),
        ("step_bound", shown(constants.step_bound)),
        ("gradient_bound", shown(constants.gradient_bound)),
        ("heterogeneity", f"{shown(constants.heterogeneity.min())} to {shown(constants.heterogeneity.max())}"),
    ):
        symbol, meaning = CONSTANTS[name]
        origin = "given" if name in constants.given else "of the run" if name == "step_bound" else "estimated"
        table.add_row(symbol, value, origin, meaning)
    RESULTS.print(table)
    RESULTS.print(constants.caveat, soft_wrap=True)

    table = Table("", "what it stands for", title="terms, means over the uplinks", title_justify="left")
    for form in bounds:
        table.add_column(form.value, justify="right")
        table.add_column("share", justify="right")
    first = [part for bound in bounds.values() for part in (_shown(bound.c1), "")]
    table.add_row("C1", "what descends; all below are divided by it", *first, end_section=True)
    for name, meaning in TERMS.items():
        cells = [
            part
            for bound in bounds.values()
            for part in (_shown(bound.terms[name]), _percent(bound.shares[name], leads=bound.dominant == name))
        ]
        table.add_row(_symbol(name), meaning, *cells, end_section=name == "c6")
        if name == "c4":
            parts = [part for bound in bounds.values() for part in (_shown(float(bound.c4_backoff.mean())), "")]
            table.add_row("", "of it: weights that do not arrive as they are", *parts)
    table.add_row("bound", "", *(part for b in bounds.values() for part in ("void" if b.void else shown(b.value), "")))
    RESULTS.print(table)
    RESULTS.print(
        "paper: as printed. mended: with the squares, the factor and the first step that its proof's own steps give "
        "(fl/learning/theory/convergence.py)",
        soft_wrap=True,
    )
    for form, bound in bounds.items():
        RESULTS.print(f"{form.value}: {_verdict(bound)}", soft_wrap=True)
    measured = said["squared_gradients"]
    RESULTS.print(
        f"reached: ||grad f||^2 = {shown(measured['start'])} at the start, {shown(measured['checkpoint'])} at the "
        f"checkpoint; smallest {shown(min(measured.values()))}",
        soft_wrap=True,
    )
    for premise in said["premises_not_met"]:
        RESULTS.print(f"not as the theorem has it: {premise}", soft_wrap=True)
    RESULTS.print(
        "computed from all clients' data in the clear: the run's epsilon does not cover these numbers", soft_wrap=True
    )


def _percent(share: float, *, leads: bool) -> str:
    text = "-" if math.isnan(share) else f"{100 * share:.1f} %"
    return f"[bold]{text}[/]" if leads else text


def _symbol(term: str) -> str:
    return term if term == "start" else term.upper()


def _verdict(bound: "Bound") -> str:
    largest = f"largest term: {_symbol(bound.dominant)}, {TERMS[bound.dominant]}"
    if bound.void:
        return f"void: {bound.void}; {largest}"
    text = f"min E||grad f||^2 <= {shown(bound.value)}; {largest}"
    if bound.vacuous:
        text += f"; that is no less than G^2 = {shown(bound.gradient_bound**2)}, which is assumed anyway"
    return text
