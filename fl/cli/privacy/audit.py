"""Lower bounds of epsilon from the canaries of a run (`audit.canaries` in its config), beside what is claimed.

Exit code 3: a lower bound is above the claim.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl.cli.output import RESULTS, print_json, shown
from fl.errors import ConfigError
from fl.privacy.accountant import Accountant
from fl.privacy.ledger import read_ledger
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import state_privacy

if TYPE_CHECKING:
    from fl.audit.runs.bounds import AuditBounds

REFUTED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of a run with audit.canaries")
    parser.add_argument("--delta", type=float, metavar="D", help="another delta than the run's")
    parser.add_argument("--alpha", type=float, default=0.05, metavar="A", help="error of each bound (default 0.05)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def call(options: argparse.Namespace) -> int:
    """Read, bound, compare."""
    from fl.audit.runs.evidence import Evidence
    from fl.run.assemble import make_canaries
    from fl.run.folder import RunFolder

    if not 0.0 < options.alpha < 0.5:
        raise ConfigError(f"--alpha is {options.alpha}: expected above 0 and below 0.5")
    folder = RunFolder(options.folder)
    config, contents, checkpoint = folder.config(), read_ledger(folder.ledger_path), folder.load_checkpoint()
    if not config.audit.canaries or checkpoint is None:
        raise ConfigError(
            f"{folder.path} has no canaries, or made no uplink: run with --set audit.canaries=M --set local.mode=record"
        )
    delta = contents.header.delta if options.delta is None else options.delta
    canaries = make_canaries(config, contents.header.sizes_array, coordinates=checkpoint.model.size)
    if canaries is None:
        raise ConfigError(f"{folder.path} has no canaries")
    evidence = Evidence.of(folder.evidence(checkpoint.uplink), canaries.present)
    bounds = evidence.bounds(delta, options.alpha)
    # A canary is there or not: what it audits is zero-out.
    claim = state_privacy(
        contents.mechanisms,
        contents.header.sizes_array,
        label=Label.RECORD,
        neighbours=Neighbours.ZERO_OUT,
        delta=delta,
        jammer=contents.header.jammer,
    )
    claimed = claim.epsilon[Accountant.EXACT]
    holds = bounds.headline <= claimed
    result = {
        "verdict": "holds" if holds else "refuted",
        "lower_bound": bounds.headline,
        "claimed_epsilon": claimed,
        "claimed_mu": claim.mu,
        "mu_lower_bound": bounds.mu,
        "bounds": _named(bounds),
        "delta": delta,
        "confidence": 1.0 - options.alpha,
        "label": Label.RECORD.value,
        "neighbours": Neighbours.ZERO_OUT.value,
        "view": "cells",
        **evidence.to_json(),
    }
    if options.json:
        print_json(result)
    else:
        _print(result)
    return 0 if holds else REFUTED


def _named(bounds: "AuditBounds") -> dict[str, float]:
    return {
        "clopper-pearson-gdp": bounds.headline,
        "mean": bounds.mean,
        "clopper-pearson": bounds.guesses,
        "one-run": bounds.one_run,
        "one-run-gdp": bounds.one_run_gdp,
    }


_ASSUMES = {
    "clopper-pearson-gdp": "the mechanism is Gaussian",
    "mean": "the statistics are Gaussian",
    "clopper-pearson": "nothing",
    "one-run": "nothing but independent canaries",
    "one-run-gdp": "the mechanism is Gaussian, canaries independent",
}


def _print(result: dict[str, Any]) -> None:
    from rich.table import Table

    title = (
        f"epsilon >= … for one record, zero-out, delta {result['delta']:g}, from {result['canaries']} canaries in "
        f"{result['uplinks']} uplinks, {100 * result['confidence']:g} % each"
    )
    table = Table("bound", "assumes", title=title, title_justify="left")
    table.add_column("epsilon", justify="right")
    for name, value in result["bounds"].items():
        table.add_row(name, _ASSUMES[name], shown(value))
    RESULTS.print(table)
    word = "not above" if result["verdict"] == "holds" else "ABOVE"
    RESULTS.print(
        f"audited: epsilon >= {shown(result['lower_bound'])}, {word} the exact claim of "
        f"{shown(result['claimed_epsilon'])} (record, zero-out)",
        soft_wrap=True,
    )
    if result["claimed_mu"] > _LARGE_MU:
        RESULTS.print(
            f"mu is {result['claimed_mu']:.3g}: what {result['canaries']} canaries can show is limited by their number",
            soft_wrap=True,
        )


_LARGE_MU = 6.0
"""Above it hardly a guess is wrong, and a bound says how many canaries there were."""
