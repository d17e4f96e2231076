"""All backends that there are: those of this package's rooms, and those of packages elsewhere.

A room `hardware.….<room>` enters itself with a module `backend` that has a `BACKEND`. Another package does so with an
entry point of the group "airdp.backends", which has the backend's name and leads to its `Backend`:

    [project.entry-points."airdp.backends"]
    my-radios = "my_package.backend:BACKEND"

One that cannot be used stands in nobody's way: it is left out, and named where somebody asks for what is not there.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points

import hardware
from hardware.foundation.sections import nearest
from hardware.lab.model import Backend
from hardware.lab.section import BackendSection
from hardware.radio.errors import HardwareError

GROUP = "airdp.backends"
"""Of entry points."""
RESERVED = ("lab", "limits", "radio")
"""Sections of a lab file that belong to no backend."""


@dataclass(frozen=True)
class Registry:
    """backends: by name. problems: a sentence for each that cannot be used."""

    backends: Mapping[str, Backend]
    problems: tuple[str, ...]

    @property
    def sections(self) -> Mapping[str, type[BackendSection]]:
        """Sections of a lab file that belong to backends, by name."""
        return {name: kind for backend in self.backends.values() for name, kind in backend.sections.items()}


@dataclass(frozen=True)
class _Entry:
    """origin: what messages call it. name: that the backend must have, of an entry point; None in a room."""

    origin: str
    load: Callable[[], object]
    name: str | None = None


@dataclass(frozen=True)
class _Loaded:
    entry: _Entry
    backend: Backend


@cache
def registry() -> Registry:
    """The backends as they are found at the first call."""
    loaded, problems = _load([*_rooms(), *_plugins()])
    backends: dict[str, Backend] = {}
    for one in loaded:
        reason = _same_name(one, loaded) or _other_section(one.backend, backends.values())
        if reason is None:
            backends[one.backend.name] = one.backend
        else:
            problems.append(f"{one.entry.origin} cannot be used: {reason}")
    return Registry(dict(sorted(backends.items())), tuple(problems))


def find_backend(name: str) -> Backend:
    """The backend of that name, or `HardwareError` with those that there are."""
    known = registry()
    if name in known.backends:
        return known.backends[name]
    meant = " or ".join(hint for backend in known.backends.values() if (hint := backend.hints.get(name)))
    listed = f"{', '.join(known.backends)}{f'; write {meant}' if meant else nearest(name, known.backends)}"
    raise HardwareError("; ".join([f"backend '{name}' is not one of {listed}", *known.problems]))


def _rooms() -> Iterator[_Entry]:
    for module in pkgutil.walk_packages(hardware.__path__, "hardware."):
        if not module.ispkg and module.name.endswith(".backend"):
            yield _Entry(f"the module {module.name}", partial(_of_room, module.name))


def _of_room(module: str) -> object:
    return importlib.import_module(module).BACKEND


def _plugins() -> Iterator[_Entry]:
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        yield _Entry(f"the backend '{point.name}' of {_package(point)}", point.load, point.name)


def _package(point: EntryPoint) -> str:
    return point.value if point.dist is None else f"the package {point.dist.name} {point.dist.version}"


def _load(entries: Iterable[_Entry]) -> tuple[list[_Loaded], list[str]]:
    """What can be used by itself, and why the rest cannot."""
    loaded, problems = [], []
    for entry in entries:
        try:
            found = entry.load()
        except Exception as error:  # whatever a package does when it is imported, others go on
            problems.append(f"{entry.origin} cannot be used: {type(error).__name__}: {error}")
            continue
        if not isinstance(found, Backend):
            problems.append(f"{entry.origin} cannot be used: it is {found!r} and no Backend")
        elif (mistake := _mistake(found, entry.name)) is not None:
            problems.append(f"{entry.origin} cannot be used: {mistake}")
        else:
            loaded.append(_Loaded(entry, found))
    return loaded, problems


def _mistake(backend: Backend, name: str | None) -> str | None:
    """What is wrong with a backend, whatever others there are."""
    if not backend.name or (name is not None and backend.name != name):
        return f"its Backend has the name '{backend.name}'"
    for section, kind in backend.sections.items():
        if section in RESERVED or not section.isidentifier():
            return f"a section cannot have the name '{section}'"
        if not _is_section(kind):
            return f"its section [{section}] is {kind!r}: expected a BackendSection"
        required = [key for key, value in kind.model_fields.items() if value.is_required()]
        if required:
            return f"'{required[0]}' of its section [{section}] has no default: a lab file need not have the section"
    return None


def _is_section(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BackendSection)


def _same_name(one: _Loaded, loaded: Iterable[_Loaded]) -> str | None:
    """Which other backend has the name of this one. Of two packages neither has it, a room always does."""
    for other in loaded:
        if other is not one and other.backend.name == one.backend.name and (one.entry.name or not other.entry.name):
            return f"{other.entry.origin} has the name '{one.backend.name}' too"
    return None


def _other_section(backend: Backend, others: Iterable[Backend]) -> str | None:
    """Which of its sections belongs to a backend that was there before, with other keys."""
    for other in others:
        for section, kind in backend.sections.items():
            if other.sections.get(section, kind) is not kind:
                return f"its section [{section}] is not that of the backend '{other.name}'"
    return None
