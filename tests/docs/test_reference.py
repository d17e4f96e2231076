"""The pages of docs/reference are what the code says now, and every key and option of them is explained."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from docs.make_reference import PAGES, keys_table, section_lines
from hardware.foundation.sections import Section, choice


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_page_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path](), "run `make reference`"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_everything_has_a_meaning(path: Path) -> None:
    rows = [line for line in PAGES[path]().splitlines() if line.startswith("| `")]
    assert len(rows) > 10
    assert [row for row in rows if row.endswith("|  |")] == []


class Colour(StrEnum):
    """Of the paint."""

    RED = "red"
    BLUE = "blue"


class Base(Section):
    """What all have."""

    size: Annotated[float, Field(gt=0, le=1e9)] = 2.0
    """How large | it is,
    in metres."""


class Paint(Base):
    """[paint] On the wall."""

    colour: Annotated[Colour, choice(Colour)] = Colour.BLUE
    coats: Annotated[int, Field(ge=1)]
    """How many."""
    tin: float | None = None
    secret: bool = False


def test_a_section_becomes_a_table() -> None:
    assert list(section_lines("paint", Paint, repeated=True)) == [
        "## [[paint]] { #paint }",
        "",
        "On the wall.",
        "",
        "| key | values | default | meaning |",
        "|---|---|---|---|",
        "| `size` | number >\u00a00, ≤\u00a01e9 | `2.0` | How large \\| it is, in metres. |",
        '| `colour` | `"red"`, `"blue"` | `"blue"` | Of the paint. |',
        "| `coats` | integer ≥\u00a01 | required | How many. |",
        "| `tin` | number | not set |  |",
        "| `secret` | `true` or `false` | `false` |  |",
        "",
    ]


def test_sections_are_not_keys() -> None:
    class House(Section):
        """Of sections."""

        paint: Paint
        walls: list[Paint]
        doors: Annotated[int, Field(ge=1)] = 1

    assert [row.split("|")[1].strip() for row in list(keys_table(House))[2:-1]] == ["`doors`"]
