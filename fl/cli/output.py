"""How commands print: one JSON object for machines, tables for people. Results go to stdout, progress to stderr."""

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from fl.cli.terminal_text import visible
from fl.errors import RunFolderError
from fl.privacy.accountant import Accountant
from fl.privacy.sensitivity import Label
from fl.privacy.statement import PrivacyStatement


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Text as `visible` has it; what rich itself tells the terminal stays."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))

    def on_broken_pipe(self) -> None:
        """The reader has gone: for `fl.cli.main` to see, which knows that this is no failure."""
        raise BrokenPipeError


RESULTS = _Console(highlight=False)
PROGRESS = _Console(stderr=True, highlight=False)
LABEL_NOTES = {
    Label.PAPER_CLAIM: "paper-claim: as published; not proven for several local SGD steps with update clipping",
    Label.RECORD: "record: holds for one record of one client; earned by local.mode = 'record' only",
    Label.CLIENT: "client: holds for all data of one client, always",
}


def print_json(data: Mapping[str, Any]) -> None:
    """One object on one line of stdout."""
    print(json.dumps(data, allow_nan=False))


def plain(line: str) -> None:
    """A line on stderr as it is, at once: for logs, and for what must not be lost behind a bar."""
    print(visible(line), file=sys.stderr, flush=True)


def shown(value: float) -> str:
    """Four significant digits; infinity as a word."""
    return f"{value:.4g}" if math.isfinite(value) else "infinite"


def print_privacy(statements: Sequence[PrivacyStatement]) -> None:
    """Epsilon by label and accountant, between a line and notes with all that must be read with it."""
    first = statements[0]
    RESULTS.print(f"epsilon for {first.conditions}", soft_wrap=True)
    # A column a label: however many accountants there are, it fits a terminal of 80 columns.
    table = Table("accountant", "back-off")
    for statement in statements:
        table.add_column(statement.label.value, justify="right", no_wrap=True)
    for accountant in first.epsilon:
        as_sent = (shown(statement.epsilon[accountant]) for statement in statements)
        without = (shown(statement.epsilon_without_backoff[accountant]) for statement in statements)
        table.add_row(accountant.value, "as sent", *as_sent)
        table.add_row("", "s = 1", *without, end_section=True)
    RESULTS.print(table)
    for note in (*(LABEL_NOTES[statement.label] for statement in statements), *first.notes):
        RESULTS.print(note, soft_wrap=True)


def print_baseline(published: PrivacyStatement, allocation: Mapping[str, Any]) -> None:
    """What a baseline planned (`Allocation.to_json`), and its authors' epsilon with all that must be read with it."""
    try:
        zeta, uplinks = float(allocation["zeta"]), int(allocation["uplinks"])
        limited, free = int(allocation["uplinks_limited_by_power"]), bool(allocation["privacy_free"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"allocation.json is not what a run wrote: {error}; restore it or remove it") from error
    epsilon = published.epsilon[Accountant.LIU_SIMEONE]
    RESULTS.print(
        f"as published by Liu and Simeone: epsilon {shown(epsilon)} "
        f"({published.label.value}, {published.conditions}, accountant liu-simeone)",
        soft_wrap=True,
    )
    budget = "privacy is free" if free else f"the budget binds (zeta {shown(zeta)})"
    RESULTS.print(
        f"its power control, given all gains in advance (its best case): {budget}, "
        f"the weakest channel limits {limited} of {uplinks} uplinks",
        soft_wrap=True,
    )
