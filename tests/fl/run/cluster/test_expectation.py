"""What the machines of a sweep must have in common: each difference that results depend on is seen and named."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fl.run.cluster.expectation import Expected, expect, find_fault, software, sources_sha256
from fl.run.config import RunConfig, parse_config

pytestmark = pytest.mark.usefixtures("no_figures", "no_waiting")


@pytest.fixture
def config(tiny: Callable[..., dict[str, Any]]) -> RunConfig:
    return parse_config(tiny(local={"workers": 1}))


@pytest.fixture
def expected(config: RunConfig) -> Expected:
    return expect("a point", config)


def test_a_worker_like_the_others_has_no_fault(expected: Expected, tmp_path: Path) -> None:
    assert find_fault([expected, expected], tmp_path) is None
    assert dict(software())["torch"] != "missing"


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (
            {"software": tuple((name, "0.0" if name == "numpy" else version) for name, version in software())},
            ("has other software (numpy ", ", not 0.0)"),
        ),
        ({"code_sha256": "0" * 64}, ("another state of airdp's sources",)),
        ({"parts_sha256": "0" * 64}, ("finds other data, another lab or another input file for point 'a point'",)),
        ({"update_sha256": "0" * 64}, ("rounds otherwise at point 'a point'",)),
    ],
    ids=["software", "sources", "data", "processor"],
)
def test_a_worker_unlike_the_others(
    expected: Expected, tmp_path: Path, change: dict[str, Any], parts: tuple[str, ...]
) -> None:
    said = find_fault([expected, replace(expected, **change)], tmp_path)
    assert said is not None
    for part in parts:
        assert part in said


def test_a_worker_that_does_not_see_the_folder_or_the_data(
    expected: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = find_fault([expected], tmp_path / "missing")
    assert said is not None
    assert f"does not see {tmp_path}" in said
    monkeypatch.delenv("AIRDP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    blind = replace(expected, config=parse_config({"data": {"set": "emnist"}}))
    said = find_fault([blind], tmp_path)
    assert said is not None
    assert said.startswith("cannot run point 'a point': no EMNIST data")
    assert f"as seen from {Path.cwd()}" in said


def test_expectations_differ_with_what_results_depend_on(config: RunConfig, expected: Expected) -> None:
    for change in ({"seed": 2}, {"model": config.model.model_copy(update={"hidden": 17})}):
        other = expect("a point", config.model_copy(update=change))
        assert other.parts_sha256 != expected.parts_sha256
        assert other.update_sha256 != expected.update_sha256
    assert expect("a point", config) == expected


def test_a_last_digit_is_seen(config: RunConfig, expected: Expected) -> None:
    # A learning rate with another last digit stands for a processor that rounds otherwise.
    local = config.local.model_copy(update={"lr": config.local.lr * (1 + 1e-6)})
    other = expect("a point", config.model_copy(update={"local": local}))
    assert other.parts_sha256 == expected.parts_sha256
    assert other.update_sha256 != expected.update_sha256


def test_the_digest_of_the_sources(tmp_path: Path) -> None:
    def place(name: str, content: str = "x = 1\n", file: str = "fl/uplink/a.py") -> Path:
        home = tmp_path / name
        for path in ("phy/__init__.py", "hardware/__init__.py", "calibration/__init__.py", "fl/__init__.py", file):
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(content if path == file else "")
        return home

    one = sources_sha256(place("one"))
    assert sources_sha256(place("two")) == one
    others = [place("three", "x = 2\n"), place("four", file="fl/uplink/b.py"), place("five", file="phy/a.py")]
    assert len({one, *map(sources_sha256, others)}) == 4
    (tmp_path / "one" / "fl" / "notes.txt").write_text("no source")
    (tmp_path / "one" / "tests").mkdir()
    (tmp_path / "one" / "tests" / "test_x.py").touch()
    assert sources_sha256(tmp_path / "one") == one
