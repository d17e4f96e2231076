"""The page: numbers into words, words into the template. Everything that a file brought in is escaped."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby

import tomli_w
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fl.learning.theory.convergence import TERMS
from fl.report.curves import Picture
from fl.report.power import Quantiles
from fl.report.privacy import AS_SENT, AT_THE_BOUND, TOLERANCE, PrivacyRow, Span, meanings
from fl.report.provenance import commands_of, facts_of, versions_of
from fl.report.sources import Curve
from fl.report.statistics import Difference
from fl.report.summary import Summary
from fl.sweep.estimate import Estimate
from fl.uplink.jammer import JammerRole

_MINUS, _RANGE, _NONE = "\N{MINUS SIGN}", "\N{EN DASH}", "\N{EN DASH}"
_SPACE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Chapter:
    """One study of the page. key: unique on the page. links: (text, relative address) of a picture's files, by name."""

    key: str
    summary: Summary
    pictures: tuple[Picture, ...]
    links: Mapping[str, Sequence[tuple[str, str]]]

    @property
    def facts(self) -> list[str]:
        """What it is about, in short."""
        return facts_of(self.summary.study)

    @property
    def versions(self) -> list[str]:
        """On what its trials ran."""
        return versions_of(self.summary.study)

    @property
    def commands(self) -> list[str]:
        """How to do it again."""
        return commands_of(self.summary.study)


def render(chapters: Sequence[Chapter], version: str) -> str:
    """The whole page."""
    environment = Environment(
        loader=PackageLoader("fl.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number,
        plain=plain,
        tied=tied,
        by_curve=_by_curve,
        by_place=_by_place,
        percent=percent,
        estimate=estimate,
        span=span,
        deviation=deviation,
        quantiles=quantiles,
        seconds=seconds,
    )
    environment.globals.update(
        meanings=meanings,
        agreement=agreement,
        # The style sheet is the package's own, and has no place for anything from outside.
        style=Markup(resources.files("fl.report").joinpath("page.css").read_text("utf-8")),  # noqa: S704
        inline=Markup,
        toml=lambda config: tomli_w.dumps(config.model_dump(mode="json")),
        bound_terms=TERMS,
        AS_SENT=AS_SENT,
        AT_THE_BOUND=AT_THE_BOUND,
        tolerance=percent(TOLERANCE, 1),
        no_jammer=JammerRole.NONE,
    )
    title = chapters[0].summary.study.title if len(chapters) == 1 else f"{len(chapters)} experiments"
    return environment.get_template("page.html").render(chapters=chapters, title=title, version=version)


def number(value: float | None, digits: int = 4) -> str:
    """Significant digits; thousands apart from 10,000 on; words for what is not a number."""
    if value is None or math.isnan(value):
        return _NONE
    if math.isinf(value):
        return "infinite" if value > 0 else f"{_MINUS}infinite"
    if abs(value) >= 1e7 or 0 < abs(value) < 1e-3:
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        text = f"{mantissa}e{int(exponent)}"
    elif abs(value) >= 10**digits:
        text = f"{float(f'{value:.{digits}g}'):,.0f}"
    else:
        text = f"{value:#.{digits}g}".removesuffix(".") if value else "0"
    return text.replace("-", _MINUS)


def plain(value: float) -> str:
    """A number that somebody wrote, as short as they could have."""
    mantissa, _, exponent = f"{value:g}".partition("e")
    return (f"{mantissa}e{int(exponent)}" if exponent else mantissa).replace("-", _MINUS)


def tied(name: str) -> str:
    """A name whose `x = 1` is not torn apart at the end of a line."""
    return name.replace(" = ", f"{_SPACE}={_SPACE}")


def percent(value: float, digits: int = 1, *, sign: bool = False) -> str:
    """A share in percent; zero has no sign but a plus where signs are asked for."""
    if not math.isfinite(value):
        return number(value)
    text = f"{round(100 * value, digits) + 0.0:{'+' if sign else ''}.{digits}f}"
    return f"{text.replace('-', _MINUS)}{_SPACE}%"


def estimate(value: Estimate, scale: float = 1.0, digits: int = 2, *, sign: bool = False) -> str:
    """Mean and half the width of its interval, which one trial or two have not."""
    if not math.isfinite(value.mean):
        return number(value.mean)
    text = f"{round(scale * value.mean, digits) + 0.0:{'+' if sign else ''}.{digits}f}".replace("-", _MINUS)
    return text if value.half is None else f"{text}{_SPACE}±{_SPACE}{scale * value.half:.{digits}f}"


def span(value: Span, digits: int = 4) -> str:
    """One number where both ends read the same."""
    low, high = number(value.low, digits), number(value.high, digits)
    return low if low == high else f"{low}{_RANGE}{high}"


def deviation(value: Span) -> str:
    """Relative to the claim, both ends where they differ."""
    low, high = percent(value.low, 1, sign=True), percent(value.high, 1, sign=True)
    return low if low == high else f"{low} to {high}"


def quantiles(value: Quantiles | None, digits: int = 3) -> tuple[str, str]:
    """Median, and the range from 5 % to 95 %, empty where both read the same."""
    if value is None:
        return _NONE, ""
    low, middle, high = (number(part, digits) for part in value)
    return middle, "" if low == high else f"{low}{_RANGE}{high}"


def seconds(value: float | None) -> str:
    """A time as people say it."""
    if value is None or not math.isfinite(value):
        return _NONE
    if value < 1:
        return f"{number(1e3 * value, 3)}{_SPACE}ms"
    if value < 120:
        return f"{value:.1f}{_SPACE}s"
    if value < 7200:
        return f"{value / 60:.1f}{_SPACE}min"
    return f"{value / 3600:.1f}{_SPACE}h"


def agreement(rows: Sequence[PrivacyRow]) -> dict[str, int]:
    """How many claims are compared, and what came out.

    same: every trial gives the claim. below: the s-free bound does, and back-off took some trials below it. apart: the
    rest.
    """
    compared = [row for row in rows if row.agrees(row.paper) is not None]
    same = sum(bool(row.agrees(row.paper)) for row in compared)
    below = sum(bool(row.agrees(row.free)) and not row.agrees(row.paper) for row in compared)
    return {"compared": len(compared), "same": same, "below": below, "apart": len(compared) - same - below}


def _by_curve(rows: Sequence[PrivacyRow]) -> list[tuple[Curve, list[PrivacyRow]]]:
    return [(curve, list(group)) for curve, group in groupby(rows, key=lambda row: row.curve)]


def _by_place(rows: Sequence[Difference]) -> list[tuple[tuple[str, str], list[Difference]]]:
    return [(place, list(group)) for place, group in groupby(rows, key=lambda row: (row.axis, row.at))]
