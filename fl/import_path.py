"""Users' own code by import path, `package.module:name`: the one place where a string of a config becomes code.

The current folder is searched too, after everything that is installed, so that a file beside the config is found and no
file of that folder can stand in for a library. Whoever starts a config that names code runs that code. Whoever reads
the folder of a run has not said so: what is read within `code_of` imports nothing, unless `trusted_code` says so.
"""

import importlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import AfterValidator, BeforeValidator

from fl.errors import ModelError, UntrustedCodeError
from phy.errors import AirdpError

PATTERN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass
class _Gate:
    """For all threads: what one of them reads, another may train with. origin: None where the user wrote the config."""

    origin: Path | None = None
    trusted: bool = False


_GATE = _Gate()


@contextmanager
def code_of(folder: Path) -> Iterator[None]:
    """Within it configs come from the folder of a run, which may be a stranger's: none of its code is imported."""
    before, _GATE.origin = _GATE.origin, folder
    try:
        yield
    finally:
        _GATE.origin = before


@contextmanager
def trusted_code(trusted: bool = True) -> Iterator[None]:
    """Within it code that the folders of runs name is imported, because the user has said so."""
    before, _GATE.trusted = _GATE.trusted, trusted
    try:
        yield
    finally:
        _GATE.trusted = before


def check_import_path(value: str) -> str:
    """`value`, which has the form `package.module:name`; raises ValueError otherwise. Nothing is imported."""
    if not PATTERN.fullmatch(value):
        raise ValueError(f"'{value}' is not an import path such as 'my_package.my_module:name'")
    return value


ImportPath = Annotated[str, AfterValidator(check_import_path)]
"""A key of a config that names code."""


def named_by_path(paths: Mapping[str, str], note: str) -> BeforeValidator:
    """Refuse a name by which others call what has none here, and say the path.

    paths: by name in small letters, without hyphens and underscores.
    """

    def check(value: Any) -> Any:
        path = paths.get(re.sub("[-_]", "", value.lower())) if isinstance(value, str) else None
        if path is not None:
            raise ValueError(f"'{value}' goes by its import path: '{path}', {note}")
        return value

    return BeforeValidator(check)


def portable(value: dict[str, Any]) -> dict[str, Any]:
    """Arguments for it that read back the same from a resolved config and from JSON; raises ValueError otherwise."""
    try:
        json.dumps(value, allow_nan=False)
        tomli_w.dumps(value)
    except (TypeError, ValueError) as error:
        raise ValueError("only finite numbers, strings, booleans, lists and tables can be kept in a config") from error
    return value


def require_trust(key: str, named: str) -> None:
    """Raise `UntrustedCodeError` where what is being read comes from a folder that nobody has said to trust.

    key, named: what of its config would run code, or a loader of another package that may unpack some.
    """
    origin = _GATE.origin
    if origin is not None and not _GATE.trusted:
        raise UntrustedCodeError(
            f"{origin} names code that would run with your rights: {key} = '{named}'; "
            "look at it, and add --trust where you know it"
        )


def import_object(key: str, path: str) -> Any:
    """What `path` names. key: that holds it, for errors. Raises `ModelError` that says what failed."""
    # Whoever asks for trust in what a config names looks for this form: nothing else is ever imported.
    if not PATTERN.fullmatch(path):
        raise ModelError(f"{key} is '{path}': expected an import path such as 'my_package.my_module:name'")
    require_trust(key, path)
    package, _, name = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    # Modules that were written since the folder was last read, in a notebook say.
    importlib.invalidate_caches()
    try:
        return getattr(importlib.import_module(package), name)
    except Exception as error:  # user code may raise anything
        raise ModelError(
            f"{key} '{path}' cannot be imported: {_reason(error)}; is its file in the current folder ({here}) or on "
            "PYTHONPATH?"
        ) from error


def _reason(error: Exception) -> str:
    """Its text, with its kind where that is needed to understand it: a KeyError's text is the key alone."""
    if isinstance(error, AirdpError | ImportError | AttributeError | SyntaxError | TypeError | ValueError):
        return str(error) or type(error).__name__
    return f"{type(error).__name__}: {error}"


def build(key: str, path: str, arguments: Mapping[str, Any], kind: type | None = None) -> Any:
    """What `path` makes when it is called with `arguments`; raises `ModelError` that says what failed.

    kind: a class that it must derive from, which is seen to before it is called.
    """
    factory = import_object(key, path)
    if kind is not None and not (isinstance(factory, type) and issubclass(factory, kind)):
        raise ModelError(
            f"{key} '{path}' is a {type(factory).__name__}: expected a class that derives from "
            f"{kind.__module__}.{kind.__name__}; it was not called"
        )
    try:
        return factory(**arguments)
    except Exception as error:  # user code may raise anything
        raise ModelError(f"{key} '{path}' cannot be built with {dict(arguments)}: {_reason(error)}") from error
