"""Fixtures that several parts of the tests share: a run that takes a fraction of a second, and the command line."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# A shell's background jobs ignore SIGINT, and what they start inherits that: Ctrl-C would then do nothing in any test.
signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).resolve().parents[1]
START = "import sys; from fl.cli.main import main; sys.exit(main(sys.argv[1:]))"
TINY: dict[str, Any] = {
    "name": "tiny",
    "data": {"train_samples": 300},
    "partition": {"clients": 3},
    "model": {"hidden": 16},
    "local": {"epochs": 2},
    "uplink": {"uplinks": 4},
}

COUNTED = "passes of "
"""Of other people's tests: with `record_property`, under what begins so, a test says how many it stands for."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Passes that are counted, each kind on a line, where everybody who runs the tests sees them."""
    passes: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", ()):
        for name, number in getattr(report, "user_properties", ()):
            if name.startswith(COUNTED):
                passes[name] += number
    for name, number in sorted(passes.items()):
        terminalreporter.write_line(f"{name}: {number}")


@pytest.fixture
def tiny() -> Callable[..., dict[str, Any]]:
    """`tiny(uplink={"kind": "ideal"})`: sections of the small config, with keys added or replaced."""

    def make(**sections: Any) -> dict[str, Any]:
        made: dict[str, Any] = {key: dict(value) if isinstance(value, dict) else value for key, value in TINY.items()}
        for key, value in sections.items():
            made[key] = {**made.get(key, {}), **value} if isinstance(value, Mapping) else value
        return made

    return make


@pytest.fixture
def tiny_file(tmp_path: Path, tiny: Callable[..., dict[str, Any]]) -> Path:
    """The small config as a TOML file."""
    import tomli_w

    path = tmp_path / "tiny.toml"
    path.write_text(tomli_w.dumps(tiny()))
    return path


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch on one thread: on products as small as the tests' more threads only wait for each other."""
    from fl.learning.workforce import single_threaded_torch

    with single_threaded_torch():
        yield


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs without their pictures, which take longer than all else in a small run."""
    import fl.run.figures

    monkeypatch.setattr(fl.run.figures, "draw_run", lambda folder: None)


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the disk, for tests of which no crash takes more than the process; and no look at versions."""
    import fl.run.charging

    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(fl.run.charging, "versions", lambda: {"python": "x", "packages": {}})


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object that is all of stdout."""
        assert self.out.count("\n") == 1
        assert self.out.endswith("\n")
        return json.loads(self.out)


@pytest.fixture
def airdp(tmp_path: Path) -> Callable[..., Outcome]:
    """The command as a user starts it: a process of its own, in a folder that is not the repository."""

    def call(*arguments: object, path: str = "", timeout: float = 60, **variables: str) -> Outcome:
        environment = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{REPOSITORY}" if path else str(REPOSITORY)}
        environment.pop("AIRDP_DATA", None)
        done = subprocess.run(
            [sys.executable, "-c", START, *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**environment, **variables},
            timeout=timeout,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """The command in this process: fast, for what does not depend on start-up."""
    from fl.cli.main import main

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def snapshot() -> Callable[[Path], dict[str, str]]:
    """Every file and folder below a path, with its digest: two equal snapshots mean that nothing was touched."""

    def take(folder: Path) -> dict[str, str]:
        return {
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
            for path in sorted(folder.rglob("*"))
        }

    return take
