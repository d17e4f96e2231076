"""Writes docs/reference/: pages about keys and commands, made of the docstrings and help texts in the code.

    python -m docs.make_reference

A test compares the pages with what the code says, so they cannot fall behind it.
"""

import argparse
import json
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from hardware.foundation.commented import attribute_docstrings, one_line

REFERENCE = Path(__file__).parent / "reference"
CONFIG_INTRODUCTION = """\
# Run configuration

<!-- Written by `make reference`: change the docstrings in fl/run/config, not this page. -->

A run is described by a TOML file with the sections below. Every key has a default, so a file holds only what differs.
Unknown keys, wrong types and impossible combinations are refused, with the key's name, before anything is done.

`airdp configs` lists the files that ship, `airdp configs quickstart` prints one with every key resolved, and
`airdp run quickstart --set local.epochs=5` overrides single keys.
"""
LAB_INTRODUCTION = """\
# Lab file

<!-- Written by `make reference`: change the docstrings in hardware/, not this page. -->

A lab file is TOML. `[lab]`, `[limits]` and the entries `[[radio]]` describe the lab. Each of the other sections is for
one backend and is ignored by the others, so that a lab file moves from one backend to another as it is; mistakes in
them are refused all the same. The files that ship are in `hardware/labs/`.
"""
COMMANDS_INTRODUCTION = """\
# Commands

<!-- Written by `make reference`: change the docstrings and help texts in fl/cli/, not this page. -->

Results go to standard output, progress and errors to standard error. With `--json` the result is one JSON object.

Exit codes: 0 done; 2 something given cannot be used, and one line on standard error says what; 130 interrupted;
143 terminated.
"""
_TYPE_NAMES = {float: "number", int: "integer", str: "text", bool: "`true` or `false`", dict: "table"}


def values_of(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """What a key takes, in words: type and range, or all choices."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *more = get_args(annotation)
        return values_of(inner, [*metadata, *more])
    if origin in (Union, types.UnionType):
        return " or ".join(values_of(part) for part in get_args(annotation) if part is not type(None))
    if origin is Literal:
        return ", ".join(f"`{_toml(value)}`" for value in get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return ", ".join(f"`{_toml(member.value)}`" for member in annotation)
    if origin in (list, tuple):
        fixed = origin is tuple and Ellipsis not in get_args(annotation)
        return f"list of {len(get_args(annotation))}" if fixed else "list"
    return f"{_TYPE_NAMES[origin or annotation]}{_range(metadata)}"


def _range(metadata: Sequence[Any]) -> str:
    bounds: list[str] = []
    for entry in metadata:
        for bound in entry.metadata if isinstance(entry, FieldInfo) else [entry]:
            for kind, sign, name in ((Gt, ">", "gt"), (Ge, "≥", "ge"), (Lt, "<", "lt"), (Le, "≤", "le")):
                if isinstance(bound, kind):
                    bounds.append(f"{sign}\u00a0{_number(getattr(bound, name))}")
    return f" {', '.join(bounds)}" if bounds else ""


def _number(value: float) -> str:
    if isinstance(value, int) and abs(value) < 10**7:
        return f"{value:,}"
    return f"{value:g}".replace("e+0", "e").replace("e-0", "e-")


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def default_of(model: type[BaseModel], key: str) -> str:
    """A key's default as it would stand in a file."""
    field = model.model_fields[key]
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "not set"
    return f"`{_toml(to_jsonable_python(value))}`"


def meaning_of(model: type[BaseModel], key: str) -> str:
    """The docstring of a key, or that of its choices where it has none of its own."""
    own = attribute_docstrings(model).get(key, "")
    if own:
        return own
    annotation = model.model_fields[key].annotation
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return one_line(annotation.__doc__ or "")
    return ""


def keys_table(model: type[BaseModel]) -> Iterator[str]:
    """A table of all keys of a section that are not sections themselves."""
    yield "| key | values | default | meaning |"
    yield "|---|---|---|---|"
    for key, field in model.model_fields.items():
        if _section_of(field) is None:
            values = values_of(field.annotation, field.metadata)
            yield _row(f"`{key}`", values, default_of(model, key), meaning_of(model, key))
    yield ""


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _section_of(field: FieldInfo) -> type[BaseModel] | None:
    kinds = (field.annotation, *get_args(field.annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def section_lines(name: str, model: type[BaseModel], *, repeated: bool) -> Iterator[str]:
    """Heading, docstring and table of one section. repeated: it may stand in the file more than once."""
    yield f"## {f'[[{name}]]' if repeated else f'[{name}]'} {{ #{name} }}"
    yield ""
    yield one_line((model.__doc__ or "").removeprefix(f"[{name}] "))
    yield ""
    yield from keys_table(model)


def sections_of(model: type[BaseModel]) -> Iterator[str]:
    """All sections of a file, in its own order."""
    for name, field in model.model_fields.items():
        section = _section_of(field)
        # Packages outside of airdp may bring sections of their own; they are documented there.
        if section is not None and section.__module__.partition(".")[0] in ("fl", "hardware"):
            yield from section_lines(name, section, repeated=get_origin(field.annotation) is list)


def config_page() -> str:
    """Every key of a run's configuration."""
    from fl.run.config import RunConfig

    return _page(CONFIG_INTRODUCTION, ["## Top level { #top }", "", *keys_table(RunConfig), *sections_of(RunConfig)])


def lab_page() -> str:
    """Every key of a lab file."""
    from hardware.lab.file import lab_file_model

    return _page(LAB_INTRODUCTION, sections_of(lab_file_model()))


def commands_page() -> str:
    """Every command with its arguments."""
    from fl.cli.main import build_parser

    lines: list[str] = []
    for name, command in _commands(build_parser()).items():
        lines += [f"## airdp {name} {{ #{name} }}", "", one_line(command.description or ""), ""]
        lines += _arguments_table(command)
    return _page(COMMANDS_INTRODUCTION, lines)


def _page(introduction: str, lines: Iterable[str]) -> str:
    return introduction + "\n" + "\n".join(lines)


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (choices,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(choices)


def _arguments_table(command: argparse.ArgumentParser) -> Iterator[str]:
    yield "| argument | meaning |"
    yield "|---|---|"
    for action in command._actions:
        if not isinstance(action, argparse._HelpAction):
            yield _row(_argument(action), one_line(action.help or ""))
    yield ""


def _argument(action: argparse.Action) -> str:
    choices = ", ".join(f"`{choice}`" for choice in action.choices or ())
    shown = action.metavar or action.dest.upper()
    value = "" if action.nargs == 0 or choices else f" {shown if isinstance(shown, str) else ' '.join(shown)}"
    names = f"`{', '.join(action.option_strings)}{value}`" if action.option_strings else f"`{action.metavar}`"
    required = action.required if action.option_strings else action.nargs not in ("?", "*")
    return names + (f": {choices}" if choices else "") + (" (required)" if required else "")


PAGES: dict[Path, Callable[[], str]] = {
    REFERENCE / "config.md": config_page,
    REFERENCE / "lab.md": lab_page,
    REFERENCE / "commands.md": commands_page,
}


def main() -> None:
    """Write all pages."""
    for path, page in PAGES.items():
        path.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
