"""Checks of a source tree: how full its folders are, who imports whom, and whose name stands where. They read, no more.

A tree is a folder with packages in it. Imports count wherever they stand, also inside functions and for type checkers.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

Graph = Mapping[str, frozenset[str]]
"""Names, and the names that each of them needs."""


def crowded_folders(root: Path, tops: Iterable[str], most: int) -> dict[str, int]:
    """Folders with more than `most` modules, `__init__.py` not counted, and how many they have."""
    counts: dict[str, int] = {}
    for top in tops:
        for path in (root / top).rglob("*.py"):
            folder = path.parent.relative_to(root).as_posix()
            counts[folder] = counts.get(folder, 0) + (path.name != "__init__.py")
    return {folder: count for folder, count in sorted(counts.items()) if count > most}


def packages_without_docstring(root: Path, tops: Iterable[str]) -> list[str]:
    """Folders with modules whose `__init__.py` says nothing, or is missing."""
    folders = {path.parent for top in tops for path in (root / top).rglob("*.py")}
    return sorted(
        folder.relative_to(root).as_posix()
        for folder in folders
        if not (folder / "__init__.py").is_file() or ast.get_docstring(_tree(folder / "__init__.py")) is None
    )


def module_imports(root: Path, tops: Iterable[str]) -> Graph:
    """Each module, and the modules of the tree that it imports; a package is the module `__init__`.

    `from a.b import c` needs a.b.c where that is a module, else a.b. That Python also runs the packages above does not
    count.
    """
    modules = {_dotted(path, root): path for top in tops for path in (root / top).rglob("*.py")}
    return {
        name: frozenset(found for found in _imported(_tree(path), modules.keys()) if found != name)
        for name, path in modules.items()
    }


def _imported(tree: ast.Module, modules: Iterable[str]) -> Iterator[str]:
    known = set(modules)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            if node.level or node.module is None:
                raise ValueError(f"line {node.lineno}: a relative import, which this does not follow")
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from (name for name in (inner if inner in known else node.module,) if name in known)


def merged(graph: Graph, group: Callable[[str], str]) -> Graph:
    """The same between groups of names."""
    found: dict[str, set[str]] = {group(name): set() for name in graph}
    for name, needed in graph.items():
        found[group(name)] |= {group(other) for other in needed} - {group(name)}
    return {name: frozenset(needed) for name, needed in found.items()}


def cycles(graph: Graph) -> list[list[str]]:
    """Sets of names that need each other, each sorted (Tarjan's strongly connected components of two or more)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in graph.get(name, ()):
            if other not in order:
                visit(other)
            if other in stack:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == order[name]:
            place = stack.index(name)
            component = stack[place:]
            del stack[place:]
            if len(component) > 1:
                found.append(sorted(component))

    for name in graph:
        if name not in order:
            visit(name)
    return sorted(found)


@dataclass(frozen=True)
class Mention:
    """A name that stands where it should not. said: the identifier or string that it is in."""

    path: str
    line: int
    name: str
    said: str


def mentions(root: Path, tops: Iterable[str], names: Iterable[str]) -> list[Mention]:
    """Where `names` stand in code: words of strings, parts of identifiers and imports; docstrings do not count."""
    patterns = {name: re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE) for name in names}
    found: list[Mention] = []
    for path in sorted(path for top in tops for path in (root / top).rglob("*.py")):
        tree = _tree(path)
        for line, said, text in _sayings(tree):
            found += [
                Mention(path.relative_to(root).as_posix(), line, name, said)
                for name, pattern in patterns.items()
                if pattern.search(text)
            ]
    return found


def _sayings(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Line, what stands there, and the same with its words apart by hyphens or dots."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and id(node) not in docstrings:
                yield line, node.value, node.value
            continue
        for field in ("id", "attr", "name", "asname", "arg", "module"):
            said = getattr(node, field, None)
            if isinstance(said, str):
                yield line, said, _words(said)


def _words(identifier: str) -> str:
    """`PlutoRadio` and `pluto_radio` as pluto-radio."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_+", "-", identifier).lower()


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _dotted(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
