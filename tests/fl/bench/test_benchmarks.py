"""The command: which benchmarks it runs, and what it says where one cannot."""

import importlib.util
from collections.abc import Callable
from dataclasses import replace

import pytest

from fl.bench import benchmarks as bench
from fl.bench import virtual_radios
from fl.bench.benchmarks import BENCHMARKS, Benchmark
from fl.bench.measure import Measurement
from flowgraphs import runtime
from flowgraphs.runtime import gnuradio_python
from tests.conftest import Outcome

MADE = Measurement("work", "plain", 1.0, 2.0, 0.5, 0.4, 0.6, 7)


OTHERS = ("flower-round", "pfl-round", "record-step")
"""Whose reference is a package that the set-up does not install."""


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each benchmark as it is, but for what it measures."""
    table = {name: replace(benchmark, measure=lambda repeats: MADE) for name, benchmark in BENCHMARKS.items()}
    # As if the other frameworks were here.
    table |= {name: replace(table[name], missing=lambda: None) for name in OTHERS}
    monkeypatch.setattr(bench, "BENCHMARKS", table)


def test_the_command(command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    one = Benchmark(lambda repeats: asked.append(repeats) or MADE)  # type: ignore[func-returns-value]
    monkeypatch.setattr(bench, "BENCHMARKS", {"one": one, "two": Benchmark(lambda _: MADE)})
    outcome = command("bench", "one", "--repeats", 7, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.json == {"one": MADE.to_json()}
    assert asked == [7]
    assert set(command("bench", "--json").json) == {"one", "two"}
    text = command("bench", "two")
    assert (text.code, text.err) == (0, "")
    for part in ("two", "0.500", "0.400 - 0.600", "plain"):
        assert part in text.out


@pytest.mark.usefixtures("unmeasured")
def test_without_gnuradio_its_benchmarks_are_skipped_or_refused(
    command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    install = "apt-get install --no-install-recommends gnuradio"
    gnuradio_python.cache_clear()
    monkeypatch.setattr(runtime, "SYSTEM_PYTHON", "/nonexistent/python3")
    find = runtime.importlib.util.find_spec
    monkeypatch.setattr(
        runtime.importlib.util, "find_spec", lambda name, *rest: None if name == "gnuradio" else find(name, *rest)
    )
    monkeypatch.setattr(virtual_radios, "find_library", lambda name: "libiio.so.0")
    for name in ("modem", "sync", "zeromq"):
        refused = command("bench", name)
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.count("\n") == 1
        assert name in refused.err
        assert install in refused.err
    outcome = command("bench", "--json")
    assert outcome.code == 0
    assert set(outcome.json) == set(BENCHMARKS) - {"modem", "sync", "zeromq"}
    skipped = outcome.err.splitlines()
    assert [line.split()[0] for line in skipped] == ["modem", "sync", "zeromq"]
    assert all(install in line for line in skipped)


@pytest.mark.usefixtures("unmeasured")
def test_without_libiio_its_benchmark_is_skipped_or_refused(
    command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual_radios, "find_library", lambda name: None)
    refused = command("bench", "virtual-pluto")
    assert refused.code == 2
    assert "libiio is not installed: sudo apt-get install" in refused.err
    outcome = command("bench", "--json")
    assert "virtual-pluto" not in outcome.json
    assert "local-round" in outcome.json
    assert "virtual-pluto is skipped" in outcome.err


@pytest.mark.parametrize("name", OTHERS)
def test_without_a_framework_its_benchmark_says_how_to_install_it(
    name: str, command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    absent = ("opacus", "flwr", "ray")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in absent else find(name, *rest))
    refused = command("bench", name)
    assert (refused.code, refused.out) == (2, "")
    assert "pip install" in refused.err
