"""What `airdp validate` prints: claimed and measured, client by client, and the verdict in words."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl.cli.output import RESULTS

if TYPE_CHECKING:
    from fl.audit.composed import Composed
    from fl.audit.parts import PartFinding
    from fl.audit.verdict import ClientValidation, Finding, Validation


def print_validation(validation: "Validation", facts: dict[str, Any], page: Path | None) -> None:
    """A line for each client, all attacks and parts of the worst, and what follows."""
    _print_clients(validation, facts["lab"])
    worst = validation.clients[0]
    _print_attacks(worst)
    _print_parts(worst)
    RESULTS.print(
        f"these trials refute a claim whose sigma is over-stated by {100 * validation.resolution:.2g} % or more",
        soft_wrap=True,
    )
    by = "; ".join(_named(found) for found in validation.refuted_by)
    shown = ", and every worst direction is shown to lie below it" if validation.below else ""
    RESULTS.print(f"the claim holds{shown}" if validation.holds else f"the claim is refuted: {by}", soft_wrap=True)
    if page is not None:
        RESULTS.print(f"page: {page}", soft_wrap=True, markup=False)


def _named(found: "Finding | PartFinding") -> str:
    data = found.to_json()
    if "part" in data:
        return (
            f"{data['client']}'s {data['part']} ({data['scope']}): claimed {data['claimed']:.4g}, "
            f"measured {data['measured']:.4g}"
        )
    return f"{data['client']} ({data['view']}, {data['direction']})"


def _print_clients(validation: "Validation", lab: str) -> None:
    from rich.table import Table

    title = f"{lab}: mu that is claimed and measured, one client with nearly all of the weight"
    table = Table("client", title=title, title_justify="left")
    for column in ("claimed", "worst direction", "95 % interval", "by algebra", "noise over claim", "gain over claim"):
        table.add_column(column, justify="right")
    for client in validation.clients:
        low, high = client.fitted.interval()
        table.add_row(
            client.client,
            f"{client.claimed_mu:.2f}",
            f"{client.fitted.mu:.2f}",
            f"{low:.2f} to {high:.2f}",
            f"{client.predicted_mu:.2f}",
            *(f"{found.measured / found.claimed:.3f}" for found in client.tightest),
        )
    RESULTS.print(table)


def _print_attacks(client: "ClientValidation") -> None:
    from rich.table import Table

    table = Table("view", "direction", title=f"attacks on {client.client}", title_justify="left")
    for column in ("claimed mu", "measured", "95 % interval", "trials"):
        table.add_column(column, justify="right")
    for found in client.findings:
        low, high = found.estimate.interval()
        table.add_row(
            found.view.value,
            found.direction.value,
            f"{found.claimed_mu:.2f}",
            f"{found.estimate.mu:.2f}",
            f"{low:.2f} to {high:.2f}",
            str(found.estimate.trials),
        )
    RESULTS.print(table)


def _print_parts(client: "ClientValidation") -> None:
    from rich.table import Table

    table = Table("part", "subcarriers", title=f"parts of the claim about {client.client}", title_justify="left")
    for column in ("claimed", "measured", "95 % interval", "must be"):
        table.add_column(column, justify="right")
    for found in client.parts:
        low, high = found.interval()
        table.add_row(
            found.part.value,
            found.where,
            f"{found.claimed:.4g}",
            f"{found.measured:.4g}",
            f"{low:.4g} to {high:.4g}",
            "more" if found.is_noise else "less",
        )
    RESULTS.print(table)


def print_observer(against: dict[str, Any]) -> None:
    """What holds against an observer, where there is one."""
    if not against:
        return
    observer = against["observer"]
    RESULTS.print(
        f"against '{observer['name']}' every mu counts {observer['factor']:.3g} times (worst client, upper bound): "
        + "; ".join(f"epsilon {row['claimed']:.3g} becomes {row['holds']:.3g}" for row in observer["epsilon"])
        + f", at delta {observer['delta']:g}",
        soft_wrap=True,
    )


def print_composed(composed: "Composed", lab: str) -> None:
    """All blocks together, the worst client first."""
    from rich.table import Table

    found = composed.to_json()
    title = f"{lab}: {found['blocks']} uplinks in fading of their own, worst direction in each, '{found['label']}'"
    table = Table("client", title=title, title_justify="left")
    for column in ("claimed mu", "attacked", "claimed epsilon", "attacked", "worst block"):
        table.add_column(column, justify="right")
    for row in found["clients"]:
        table.add_row(
            row["client"],
            f"{row['claimed']['mu']:.3f}",
            f"{row['attacked']['mu']:.3f}",
            f"{row['claimed']['epsilon']:.3f}",
            f"{row['attacked']['epsilon']:.3f}",
            f"{row['largest_ratio']:.3f}",
        )
    RESULTS.print(table)
    verdict = "the claim holds" if composed.holds else f"the claim is refuted: {found['composed']['client']}"
    if composed.above:
        blocks = ", ".join(map(str, composed.above))
        RESULTS.print(f"more than the uplink alone claims was found in block {blocks}", soft_wrap=True)
    RESULTS.print(f"exact epsilon at delta {found['delta']:g}; {verdict}", soft_wrap=True)
