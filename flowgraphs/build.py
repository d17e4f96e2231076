"""Flowgraphs compiled to Python by GNU Radio's `grcc`, once: the results are kept in the user's cache."""

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from flowgraphs.errors import FlowgraphError
from flowgraphs.source import NO_CHOICES, variant

INSTALL = "apt-get install --no-install-recommends gnuradio"
_TIMEOUT_S = 120.0
_ABANDONED_S = 3600.0


def cache_folder() -> Path:
    """Where compiled flowgraphs are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airdp" / "flowgraphs"


def build(name: str, choices: Mapping[str, str] = NO_CHOICES, transmitters: int | None = None) -> Path:
    """A Python program that is the flowgraph with these choices (`source.variant`), compiled where it is not yet.

    Beside it is the variant it was compiled from. Two callers at once do no harm: each compiles in a folder of its
    own, and the first to finish gives it its name.
    """
    text = variant(name, choices, transmitters)
    grcc = _tool("grcc")
    version = _run([_tool("gnuradio-config-info"), "--version"]).strip()
    digest = hashlib.sha256(f"{version}\n{text}".encode()).hexdigest()[:16]
    folder = cache_folder() / f"{name}-{digest}"
    program = folder / f"{name}.py"
    if _is_whole(program):
        return program
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _clean(folder)
        with tempfile.TemporaryDirectory(prefix=".compiling-", dir=folder.parent) as scratch:
            fresh = Path(scratch) / "graph"
            fresh.mkdir()
            drawn = fresh / f"{name}.grc"
            drawn.write_text(text, encoding="utf-8")
            said = _run([grcc, "--output", str(fresh), str(drawn)])
            if not (fresh / program.name).is_file():
                raise FlowgraphError(f"grcc made no program of {name}: {said.strip()[-500:]}")
            _seal(fresh / program.name)
            _give_name(fresh, folder)
    except OSError as error:
        raise FlowgraphError(
            f"{name} cannot be compiled into {folder.parent}: {error}; "
            "make that folder writable, or set XDG_CACHE_HOME to one that is"
        ) from error
    return program


def _is_whole(program: Path) -> bool:
    """Whether a cached program and its drawing are what was put there: a power cut can leave them empty."""
    try:
        return _seal_path(program).read_text(encoding="ascii") == _digest(program)
    except (OSError, ValueError):
        return False


def _digest(program: Path) -> str:
    return hashlib.sha256(program.read_bytes() + program.with_suffix(".grc").read_bytes()).hexdigest()


def _seal_path(program: Path) -> Path:
    return program.with_suffix(".sha256")


def _seal(program: Path) -> None:
    """Note what the program is, and have all of it on disk before it gets its name."""
    _seal_path(program).write_text(_digest(program), encoding="ascii")
    for path in (program, program.with_suffix(".grc"), _seal_path(program)):
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _clean(folder: Path) -> None:
    """Remove a cached program that is not whole, and what compilers left behind that were killed."""
    if folder.exists() and not _is_whole(folder / f"{folder.name.rpartition('-')[0]}.py"):
        shutil.rmtree(folder, ignore_errors=True)
    for left in folder.parent.glob(".compiling-*"):
        if time.time() - left.stat().st_mtime > _ABANDONED_S:
            shutil.rmtree(left, ignore_errors=True)


def _give_name(fresh: Path, folder: Path) -> None:
    try:
        fresh.rename(folder)
    except OSError:
        # Somebody else was first, or what is there is broken: then the reason is theirs to tell.
        if not _is_whole(folder / f"{folder.name.rpartition('-')[0]}.py"):
            raise


def _tool(name: str) -> str:
    # Beside PATH: a virtual environment or a service may have a PATH without it.
    path = shutil.which(name) or shutil.which(name, path="/usr/bin:/usr/local/bin")
    if path is None:
        raise FlowgraphError(f"GNU Radio is not installed ('{name}' was not found); as root: {INSTALL}")
    return path


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise FlowgraphError(f"{Path(command[0]).name} took longer than {_TIMEOUT_S:g} s; try again") from error
    if done.returncode:
        said = " ".join((done.stderr + done.stdout).split())
        raise FlowgraphError(f"{Path(command[0]).name} failed: {said[-500:]}")
    return done.stdout
