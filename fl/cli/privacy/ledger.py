"""Verify the chain of a run's privacy ledger and recompute epsilon from the file alone, under every label."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fl.cli.output import RESULTS, print_baseline, print_json, print_privacy
from fl.nodes.apart.comparison import Comparison, compare
from fl.privacy.accountant import Accountant
from fl.privacy.conditions import View
from fl.privacy.ledger import LedgerContents, read_ledger
from fl.privacy.liu_simeone import state_published
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import CLOSED_FORMS, state_privacy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of a run, or its ledger.jsonl")
    parser.add_argument("--delta", type=float, metavar="D", help="another delta than the run's")
    parser.add_argument("--neighbours", choices=[n.value for n in Neighbours], help="another relation than the run's")
    parser.add_argument(
        "--view",
        choices=[view.value for view in View],
        help="adversary to state epsilon for: samples or cells (default: the strongest that all uplinks hold for)",
    )
    parser.add_argument("--all", action="store_true", help="also liu-simeone, Google's rdp and pld, which take seconds")
    parser.add_argument(
        "--against",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="what a client has kept of this run (its --state): has everything that it sent been charged?",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def call(options: argparse.Namespace) -> int:
    """Verify, recompute, print."""
    from fl.run.folder import ALLOCATION, RunFolder

    path = options.folder / "ledger.jsonl" if options.folder.is_dir() else options.folder
    contents = read_ledger(path)
    header = contents.header
    delta = header.delta if options.delta is None else options.delta
    labels = [header.label, *(label for label in Label if label is not header.label)]
    statements = [
        state_privacy(
            contents.mechanisms,
            header.sizes_array,
            label=label,
            neighbours=Neighbours(options.neighbours) if options.neighbours else header.neighbours,
            delta=delta,
            accountants=tuple(Accountant) if options.all else CLOSED_FORMS,
            unaccounted=contents.unaccounted,
            view=View(options.view) if options.view else None,
            jammer=header.jammer,
        )
        for label in labels
    ]
    comparisons = compare(path, options.against) if options.against else []
    published = state_published(contents.mechanisms, header.sizes_array, delta=delta)
    planned = (path.parent / ALLOCATION).exists()
    allocation = RunFolder(path.parent).read_json(ALLOCATION) if planned else None
    if options.json:
        record = _header_json(contents) | {
            **{key: value for key, value in statements[0].to_json().items() if key != "uplinks"},
            "privacy": [statement.to_json() for statement in statements],
        }
        if comparisons:
            record["against"] = [_comparison_json(one) for one in comparisons]
        if allocation is not None:
            record |= {"allocation": allocation, "published": published.to_json()}
        print_json(record)
        return _code(comparisons)
    _print_state(path, contents)
    print_privacy(statements)
    if allocation is not None:
        print_baseline(published, allocation)
    for one in comparisons:
        RESULTS.print(
            f"client {one.client} ({one.folder}): {one.sent} transmissions of its own, {one.unknown} of them on rows "
            f"that are not here, {one.lowered} that count for less here than it was told; S {one.own_loss:.6g} there, "
            f"{one.server_loss:.6g} here",
            soft_wrap=True,
        )
    return _code(comparisons)


def _header_json(contents: LedgerContents) -> dict[str, Any]:
    """What the file says of itself."""
    header = contents.header
    return {
        "valid": True,
        "authorised": contents.authorised,
        "accounted": contents.accounted,
        "resumes": contents.resumes,
        "clients": len(header.sizes),
        "samples": sum(header.sizes),
        "head": contents.head,
        "header": {
            "view": header.view.value,
            "delta_bounds": header.delta_bounds,
            "confidence": header.confidence,
        },
    }


def _print_state(path: Path, contents: LedgerContents) -> None:
    """How many transmissions there are, and what is known of them."""
    RESULTS.print(
        f"{path}: chain intact, {contents.authorised} transmissions authorised, {contents.accounted} accounted for",
        soft_wrap=True,
    )
    if contents.unaccounted:
        RESULTS.print(
            f"{contents.unaccounted} without an account (a run was cut off or is going on): they count without the "
            "jammer, because nothing proves that its noise was on the air",
            soft_wrap=True,
        )
    confidence = contents.header.confidence
    if confidence is not None:
        RESULTS.print(f"confidence of each measured bound: 1 - {1 - confidence:.3g}")


def _comparison_json(one: Comparison) -> dict[str, Any]:
    return {**asdict(one), "folder": str(one.folder), "under_counted": one.under_counted}


def _code(comparisons: list[Comparison]) -> int:
    """3 where a client has sent what the server's ledger does not know, or counts for less."""
    return 3 if any(one.under_counted for one in comparisons) else 0
