"""Signals that end a program end it through its `finally` clauses, unless somebody decided otherwise."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fl.cli.experiments.configs
from hardware.radio.termination import orderly_termination, uninterrupted
from tests.conftest import REPOSITORY, Outcome

SIGNALS = [signal.SIGTERM, signal.SIGHUP]
PROGRAM = """
import signal, sys
from hardware.radio.termination import orderly_termination

try:
    with orderly_termination():
        print("ready", flush=True)
        sys.stdin.readline()
        print("went on", flush=True)
finally:
    print("cleaned up", flush=True)
"""


@pytest.fixture(autouse=True)
def at_default() -> Iterator[None]:
    """Whatever the tests were started with, nohup for instance."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def dispositions() -> list[Any]:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_becomes_an_exit_with_its_code(number: signal.Signals) -> None:
    with orderly_termination():
        # At its default it would end the tests.
        assert callable(signal.getsignal(number))
        with pytest.raises(SystemExit) as stop:
            signal.raise_signal(number)
    assert stop.value.code == 128 + number
    assert dispositions() == [signal.SIG_DFL, signal.SIG_DFL]


@pytest.mark.parametrize("number", SIGNALS)
def test_what_is_not_at_its_default_stays_as_it_is(number: signal.Signals) -> None:
    heard: list[int] = []

    def own(number: int, frame: object) -> None:
        heard.append(number)

    for handler in (signal.SIG_IGN, own):
        signal.signal(number, handler)
        with orderly_termination():
            assert [handler == signal.getsignal(each) for each in SIGNALS] == [each is number for each in SIGNALS]
            signal.raise_signal(number)
        assert signal.getsignal(number) == handler
    assert heard == [number]


def test_the_outermost_keeps_the_signals_until_it_ends() -> None:
    with orderly_termination():
        outer = dispositions()
        with orderly_termination():
            assert dispositions() == outer
        assert dispositions() == outer
        assert signal.SIG_DFL not in outer
    assert dispositions() == [signal.SIG_DFL, signal.SIG_DFL]


def test_another_thread_changes_nothing() -> None:
    seen: list[Any] = []

    def enter() -> None:
        with orderly_termination():
            seen.extend(dispositions())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL, signal.SIG_DFL]


@pytest.mark.parametrize(
    ("start", "number", "code", "rest"),
    [
        ((), signal.SIGTERM, 143, "cleaned up\n"),
        ((), signal.SIGHUP, 129, "cleaned up\n"),
        (("nohup",), signal.SIGTERM, 143, "cleaned up\n"),
        (("nohup",), signal.SIGHUP, 0, "went on\ncleaned up\n"),
    ],
)
def test_a_program_as_a_shell_starts_it(start: tuple[str, ...], number: signal.Signals, code: int, rest: str) -> None:
    with subprocess.Popen(
        [*start, sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(REPOSITORY)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        # Where the signal ended it, nobody reads the line.
        told, complaints = process.communicate("\n", timeout=240)
    assert (process.returncode, told, complaints) == (code, rest, "")


@pytest.mark.parametrize("ignored", SIGNALS)
def test_a_command_takes_both_but_what_was_ignored(
    ignored: signal.Signals, command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def call(options: object) -> int:
        seen.extend(dispositions())
        return 0

    monkeypatch.setattr(fl.cli.experiments.configs, "call", call)
    signal.signal(ignored, signal.SIG_IGN)
    assert command("configs").code == 0
    assert [handler == signal.SIG_IGN for handler in seen] == [number is ignored for number in SIGNALS]
    assert signal.SIG_DFL not in seen


@pytest.mark.parametrize("number", [signal.SIGINT, *SIGNALS])
def test_within_an_uninterrupted_block_signals_wait(number: signal.Signals) -> None:
    done: list[str] = []

    def work() -> None:
        with orderly_termination(), uninterrupted():
            signal.raise_signal(number)
            signal.raise_signal(signal.SIGTERM)
            done.append("all of it")

    with pytest.raises((SystemExit, KeyboardInterrupt)) as stop:
        work()
    assert done == ["all of it"]
    assert isinstance(stop.value, KeyboardInterrupt) == (number is signal.SIGINT)
    assert stop.value.args == (() if number is signal.SIGINT else (128 + number,))
    assert dispositions() == [signal.SIG_DFL, signal.SIG_DFL]


def test_what_is_ignored_stays_ignored_there() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with uninterrupted():
        signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
