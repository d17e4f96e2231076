"""Sections of a TOML file with what their keys mean: as comments, and as JSON Schema for editors.

The meaning of a key is the string below it in its class. It is read from the source when it is asked for, because
pydantic would read it at every start.
"""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

_WIDTH = 110
_HEADER = re.compile(r"\[\[?\s*([\w-]+)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"([A-Za-z_]\w*)\s*=")


def attribute_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The string below each attribute of a class and of the classes that it inherits from, as one line."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if not issubclass(kind, BaseModel) or kind is BaseModel:
            continue
        try:
            source = inspect.getsource(kind)
        except OSError:
            # Made at run time, of classes that have a source.
            continue
        (definition,) = ast.parse(textwrap.dedent(source)).body
        body = definition.body if isinstance(definition, ast.ClassDef) else []
        for statement, following in pairwise(body):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                text = _string(following)
                if text:
                    found[statement.target.id] = one_line(text)
    return found


def _string(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return statement.value.value if isinstance(statement.value.value, str) else ""
    return ""


def one_line(text: str) -> str:
    """`text` without line breaks and double spaces."""
    return " ".join(text.split())


def meanings_of(model: type[BaseModel]) -> dict[str, str]:
    """Of every key: its own docstring, or where it has none, that of the choice that it is."""
    found = {}
    for key, field in model.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, StrEnum):
                found[key] = one_line(kind.__doc__ or "")
    return {**found, **attribute_docstrings(model)}


def commented_toml(section: BaseModel, name: str = "") -> Iterator[str]:
    """Lines of TOML with every key of `section`, its meaning above it; sections within it follow under their names."""
    if name:
        yield from _comment(type(section).__doc__ or "")
        yield f"[{name}]"
    meanings, inner = meanings_of(type(section)), {}
    for key in type(section).model_fields:
        value = getattr(section, key)
        if isinstance(value, BaseModel):
            inner[key] = value
            continue
        yield from _comment(meanings.get(key, ""))
        yield from _assignment(key, section.model_dump(mode="json", include={key})[key])
    for key, value in inner.items():
        yield ""
        yield from commented_toml(value, f"{name}.{key}" if name else key)


def _comment(text: str) -> list[str]:
    return textwrap.wrap(one_line(text), _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _assignment(key: str, value: Any) -> list[str]:
    if isinstance(value, Mapping):
        pairs = ", ".join(tomli_w.dumps({name: part}).strip() for name, part in value.items())
        return [f"{key} = {{ {pairs} }}" if pairs else f"{key} = {{}}"]
    if value is None:
        return [f"# {key} is not set"]
    return tomli_w.dumps({key: value}).rstrip().splitlines()


def annotated_toml(text: str, model: type[BaseModel]) -> list[str]:
    """Lines of a file that `model` reads, with the meaning of every section and key; keys that it lacks as comments.

    A section is explained where it comes first. `text` stays what it was for whoever reads TOML.
    """
    kinds, explained = _by_section(model), set[str]()
    found: list[str] = []
    for name, header, lines in _parts(text):
        kind = kinds.get(name)
        if kind is None or name in explained:
            found += [*header, *lines]
            continue
        explained.add(name)
        found += [*_comment(kind.__doc__ or ""), *header, *_annotated(lines, kind), ""]
    return found


def _by_section(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    found = {}
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found[name] = kind
    return found


def _parts(text: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Name, header and lines of each section, in the file's order; what comes before the first has neither name nor
    header."""
    name, header, lines = "", list[str](), list[str]()
    for line in text.splitlines():
        match = _HEADER.match(line)
        if match is None:
            lines.append(line)
            continue
        yield name, header, lines
        name, header, lines = match[1], [line], []
    yield name, header, lines


def _annotated(lines: list[str], kind: type[BaseModel]) -> Iterator[str]:
    meanings, given = meanings_of(kind), set[str]()
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    for line in lines:
        match = _KEY.match(line)
        if match is not None and match[1] in kind.model_fields:
            given.add(match[1])
            yield from _comment(meanings.get(match[1], ""))
        yield line
    for key, field in kind.model_fields.items():
        if key in given or field.is_required():
            continue
        yield from _comment(meanings.get(key, ""))
        value = to_jsonable_python(field.get_default(call_default_factory=True))
        if isinstance(value, list):
            # As JSON writes it: on one line.
            yield f"# {key} = {json.dumps(value)}"
        elif value is None or isinstance(value, Mapping):
            yield f"# {key} is not set"
        else:
            yield from (f"# {line}" for line in _assignment(key, value))


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema of a file that `model` reads, with the meaning of each key as its description."""
    schema = model.model_json_schema()
    known = {kind.__name__: kind for kind in _sections(model)}
    for name, part in (("", schema), *schema.get("$defs", {}).items()):
        kind = known.get(name) if name else model
        if kind is None or "properties" not in part:
            continue
        for key, meaning in attribute_docstrings(kind).items():
            if key in part["properties"]:
                part["properties"][key]["description"] = meaning
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _sections(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _sections(kind)
