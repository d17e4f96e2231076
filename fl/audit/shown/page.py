"""A validation as one HTML file that needs nothing else."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fl.audit.parts import PartFinding
from fl.audit.verdict import ClientValidation, Finding, Validation

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "h1{margin-bottom:.2rem}.holds{color:#1b6e3c}.refuted{color:#b00020}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .8rem;border-bottom:1px solid #ddd;"
    "text-align:right;font-variant-numeric:tabular-nums}th{font-weight:600;border-bottom:2px solid #999}"
    "td:first-child,th:first-child,.names td:nth-child(2),.names th:nth-child(2){text-align:left}"
    "tr.refuted td{font-weight:600}img{max-width:100%;display:block}dl{display:grid;grid-template-columns:"
    "max-content 1fr;gap:.1rem 1rem;font-size:.9rem;color:#555}dd{margin:0}summary{cursor:pointer}"
)


def write_page(folder: Path, validation: Validation, facts: Mapping[str, Any], pictures: Mapping[str, Path]) -> Path:
    """index.html, with its pictures inside. pictures: by client."""
    verdict = "holds" if validation.holds else "refuted"
    sections = "".join(_section(validation, client, pictures[client.client]) for client in validation.clients)
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>airdp validate: {verdict}</title>"
        f"<style>{_STYLE}</style><h1 class={verdict}>The claim {'holds' if validation.holds else 'is refuted'}</h1>"
        f"<p>{_meaning(validation)}</p>{_clients(validation)}{sections}<h2>Conditions</h2><dl>{_listed(facts)}</dl></html>"
    )
    path = folder / "index.html"
    path.write_text(page, encoding="utf-8")
    return path


def _meaning(validation: Validation) -> str:
    could = f"A σ over-stated by {100 * validation.resolution:.2g} % or more would have been refuted."
    if not validation.holds:
        return "Refuted by " + "; ".join(escape(_name(found)) for found in validation.refuted_by) + "."
    if validation.below:
        return f"μ of every client's worst direction is shown to be below what is claimed. {could}"
    return f"No attack has reached more than is claimed; not every interval lies below it. {could}"


def _name(found: Finding | PartFinding) -> str:
    if isinstance(found, PartFinding):
        return f"the {found.part.value} of {found.client} ({found.where})"
    return f"{found.view.value} of {found.client} ({found.direction.value})"


def _table(head: Sequence[str], rows: Sequence[tuple[bool, Sequence[str]]], kind: str = "") -> str:
    """rows: whether it refutes, and its cells."""
    body = "".join(
        f"<tr{' class=refuted' if refuted else ''}>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
        for refuted, cells in rows
    )
    return f"<table class='{kind}'><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{body}</table>"


def _clients(validation: Validation) -> str:
    rows = []
    for client in validation.clients:
        refuted = any(found.refutes(validation.level) for found in client.everything)
        noise, gain = client.tightest
        cells = (
            client.client,
            f"{client.claimed_mu:.2f}",
            f"{client.fitted.mu:.2f}",
            _interval(client.fitted.interval(), ".2f"),
            f"{client.predicted_mu:.2f}",
            f"{noise.measured / noise.claimed:.3f}",
            f"{gain.measured / gain.claimed:.3f}",
        )
        rows.append((refuted, cells))
    head = ("client", "claimed μ", "worst direction", "95 %", "by algebra", "noise over claim", "gain over claim")
    return _table(head, rows)


def _section(validation: Validation, client: ClientValidation, picture: Path) -> str:
    level = validation.level
    attacks = [
        (
            found.refutes(level),
            (
                found.view.value,
                found.direction.value,
                f"{found.claimed_mu:.3f}",
                f"{found.estimate.mu:.3f}",
                _interval(found.estimate.interval(), ".3f"),
                str(found.estimate.trials),
            ),
        )
        for found in client.findings
    ]
    parts = [
        (
            found.refutes(level),
            (
                found.part.value,
                found.where,
                f"{found.claimed:.4g}",
                f"{found.measured:.4g}",
                _interval(found.interval(), ".4g"),
                "more" if found.is_noise else "less",
            ),
        )
        for found in client.parts
    ]
    attacked = _table(("view", "direction", "claimed μ", "measured", "95 %", "trials"), attacks, "names")
    measured = _table(("part", "subcarriers", "claimed", "measured", "95 %", "must be"), parts, "names")
    image = b64encode(picture.read_bytes()).decode()
    name = escape(client.client)
    return (
        f'<h2>{name}</h2><img alt="{name}" src="data:image/png;base64,{image}">'
        f"<details><summary>all attacks on {name} and parts of its claim</summary>{attacked}{measured}</details>"
    )


def _interval(ends: tuple[float, float], form: str) -> str:
    return f"{ends[0]:{form}} to {ends[1]:{form}}"


def _listed(facts: Mapping[str, Any]) -> str:
    return "".join(
        f"<dt>{escape(name.replace('_', ' '))}</dt>"
        f"<dd>{escape(f'{value:.4g}' if isinstance(value, float) else str(value))}</dd>"
        for name, value in facts.items()
    )
