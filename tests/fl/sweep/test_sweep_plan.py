"""Sweep files: the grid they stand for, what they refuse, and the folder that holds one."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fl.errors import ConfigError, RunFolderError
from fl.run.config import AlgorithmName, load_config, shipped_configs
from fl.run.folder import RunFolder
from fl.sweep.plan import SweepFolder, SweepPlan, load_plan, shipped_sweeps
from tests.conftest import Outcome

GRID = """
name = "grid"
title = "A grid"
description = "two algorithms at two epsilons"
base = "tiny.toml"
trials = 3
claims = [[6.52, 1e-5], [4.4, 0.01]]

[set]
"uplink.uplinks" = 5
local.epochs = 7

[[axis]]
name = "algorithm"
[[axis.point]]
name = "Upcycled-FL"
set = { "algorithm.name" = "upcycled" }
[[axis.point]]
name = "FedProx"
set = { "algorithm.name" = "fedprox", "local.epochs" = 9 }

[[axis]]
name = "epsilon"
[[axis.point]]
name = "ε = 1"
set = { privacy = { epsilon = 1.0 } }
claims = [[1, 1e-5]]
[[axis.point]]
name = "ε = 0.5"
set = { "privacy.epsilon" = 0.5 }
"""


@pytest.fixture
def write(tmp_path: Path, tiny_file: Path) -> Callable[[str], str]:
    """Put a sweep file beside the small config; the path of it."""

    def call(text: str) -> str:
        (tmp_path / "sweep.toml").write_text(text)
        return str(tmp_path / "sweep.toml")

    return call


@pytest.fixture
def plan(write: Callable[[str], str]) -> SweepPlan:
    return load_plan(write(GRID))


def test_a_grid_is_the_product_of_its_axes(plan: SweepPlan) -> None:
    assert (plan.name, plan.title, plan.description) == ("grid", "A grid", "two algorithms at two epsilons")
    assert (plan.trials, plan.axes) == (3, ("algorithm", "epsilon"))
    assert [point.slug for point in plan.points] == [
        "upcycled-fl_epsilon-1",
        "upcycled-fl_epsilon-0.5",
        "fedprox_epsilon-1",
        "fedprox_epsilon-0.5",
    ]
    assert plan.points[2].labels == (("algorithm", "FedProx"), ("epsilon", "ε = 1"))
    assert plan.points[2].name == "FedProx, ε = 1"


def test_a_point_is_the_base_then_the_sweep_then_its_values(plan: SweepPlan) -> None:
    first, last = plan.points[0].config, plan.points[3].config
    # Of the base: clients; of [set]: uplinks, and epochs where no value says otherwise.
    assert (first.partition.clients, first.uplink.uplinks, first.local.epochs) == (3, 5, 7)
    assert (last.partition.clients, last.uplink.uplinks, last.local.epochs) == (3, 5, 9)
    assert (first.algorithm.name, last.algorithm.name) == (AlgorithmName.UPCYCLED, AlgorithmName.FEDPROX)
    assert (first.privacy.epsilon, last.privacy.epsilon) == (1.0, 0.5)
    # A table over a section leaves its other keys.
    assert first.privacy.delta == load_config("quickstart").privacy.delta


def test_claims_of_a_value_replace_the_sweeps(plan: SweepPlan) -> None:
    assert plan.points[0].claims == plan.points[2].claims == ((1.0, 1e-5),)
    assert plan.points[1].claims == plan.points[3].claims == ((6.52, 1e-5), (4.4, 0.01))


def test_overrides_come_last_and_trials_may_be_given(write: Callable[[str], str]) -> None:
    plan = load_plan(write(GRID), ["local.epochs=1", "seed=40"], trials=8)
    assert plan.trials == 8
    assert {(point.config.local.epochs, point.config.seed) for point in plan.points} == {(1, 40)}


def test_trials_take_the_next_seeds_at_every_point(write: Callable[[str], str]) -> None:
    plan = load_plan(write(GRID), ["seed=40"])
    for point in plan.points:
        assert [point.trial_config(trial).seed for trial in (1, 2, 3)] == [40, 41, 42]
        assert point.trial_config(1) == point.config
        assert point.trial_config(2).model_copy(update={"seed": 40}) == point.config


def test_any_config_is_a_sweep_of_one_point(tiny_file: Path) -> None:
    for source, name in (("quickstart", "quickstart"), (str(tiny_file), "tiny")):
        plan = load_plan(source, ["seed=3"], trials=2)
        (point,) = plan.points
        assert (plan.name, plan.trials, plan.axes) == (name, 2, ())
        assert (point.slug, point.name, point.labels, point.claims) == (name, name, (), ())
        assert point.config == load_config(source, ["seed=3"])
    assert load_plan("quickstart").trials == 1


def test_a_sweep_without_axes_has_one_point(write: Callable[[str], str]) -> None:
    (point,) = load_plan(write('name = "one"\nbase = "quickstart"\n[set]\nseed = 9\n')).points
    assert (point.slug, point.labels, point.config.seed) == ("quickstart", (), 9)


def test_a_plan_reads_back_from_json(plan: SweepPlan) -> None:
    assert SweepPlan.from_json(json.loads(json.dumps(plan.to_json(), allow_nan=False))) == plan


def test_what_the_digest_depends_on(write: Callable[[str], str], plan: SweepPlan) -> None:
    def digest(text: str = GRID, overrides: tuple[str, ...] = (), trials: int | None = None) -> str:
        return load_plan(write(text), overrides, trials).digest()

    assert digest() == plan.digest()
    assert digest(trials=50) == plan.digest()
    assert digest(overrides=("local.workers=3",)) == plan.digest()
    assert digest(GRID.replace('title = "A grid"', 'title = "Another"')) == plan.digest()
    assert digest(GRID.replace("[[6.52, 1e-5], [4.4, 0.01]]", "[]")) == plan.digest()
    others = [
        digest(overrides=("seed=2",)),
        digest(overrides=("local.lr=0.06",)),
        digest(GRID.replace("epsilon = 1.0", "epsilon = 1.1")),
        digest(GRID.replace("FedProx", "Prox")),
        digest(GRID[: GRID.rindex("[[axis.point]]")]),
    ]
    assert len({plan.digest(), *others}) == 1 + len(others)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Upcycled-FL", "upcycled-fl"),
        ("ε = 0.1", "epsilon-0.1"),
        ("Liu–Simeone, as published", "liu-simeone-as-published"),
        ("σ_c = 2", "sigma-c-2"),
        ("Étoile", "etoile"),
        ("../../etc", "etc"),
        (".hidden.", "hidden"),
    ],
)
def test_slugs_are_plain_folder_names(write: Callable[[str], str], name: str, slug: str) -> None:
    (point,) = load_plan(
        write(f'name = "s"\nbase = "quickstart"\n[[axis]]\nname = "a"\npoint = [{{name = "{name}"}}]')
    ).points
    assert point.slug == slug
    assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", slug)


HEAD = 'name = "s"\nbase = "quickstart"\n'
AXIS = HEAD + '[[axis]]\nname = "a"\npoint = {}\n'


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('name = "s"\n[[axis]]\nname = "a"\npoint = [{name = "x"}]', ("key 'base' is missing",)),
        ('base = "quickstart"', ("key 'name' is missing",)),
        ('name = "a b"\nbase = "quickstart"', ("name",)),
        (HEAD + "trails = 3", ("unknown key 'trails'", "did you mean 'trials'?")),
        (HEAD + "trials = 0", ("trials",)),
        (HEAD + 'trials = "3"', ("trials",)),
        (HEAD + "claims = [[6.52]]", ("claims",)),
        (HEAD + "claims = [[6.52, 1.0]]", ("claims",)),
        (HEAD + "claims = [[-1, 1e-5]]", ("claims",)),
        (HEAD + '[set]\n"local.epoch" = 3', ("unknown key 'local.epoch'", "did you mean 'epochs'?")),
        (HEAD + '[set]\n"name.x" = 3', ("'name' of 'name.x' is a value, not a section",)),
        (HEAD + '[set]\n"uplink.uplinks" = "many"', ("uplink.uplinks",)),
        (HEAD.replace("quickstart", "quikstart"), ("quikstart",)),
        (HEAD + '[[axis]]\nname = "a"', ("point", "missing")),
        (AXIS.format("[]"), ("axis.a.point",)),
        (AXIS.format('[{name = "x", sets = {}}]'), ("unknown key", "did you mean 'set'?")),
        (AXIS.format('[{name = "x"}, {name = "X"}]'), ("two points of the axis 'a'", "'x'")),
        (AXIS.format('[{name = "–"}]'), ("no folder can be named after '–'",)),
        (AXIS.format('[{name = "Timing.json"}]'), ("no folder can be named after",)),
        (AXIS.format('[{name = "' + "x" * 201 + '"}]'), ("201 characters",)),
        (AXIS.format('[{name = "x", set = {"local.lr" = -1}}]'), ("point 'x'", "local.lr")),
        (AXIS.format('[{name = "x"}]') + '[[axis]]\nname = "a"\npoint = [{name = "y"}]', ("two axes", "'a'")),
        ("name = ", ("cannot be read",)),
    ],
)
def test_what_a_sweep_file_may_not_say(write: Callable[[str], str], text: str, parts: tuple[str, ...]) -> None:
    source = write(text)
    with pytest.raises(ConfigError) as caught:
        load_plan(source)
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value).strip()


def test_sources_and_numbers_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'quickstart'"):
        load_plan("quikstart")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_plan(str(tmp_path / "binary.toml"))
    for trials in (0, -1, 10_001):
        with pytest.raises(ConfigError, match="expected 1 to 10000"):
            load_plan("quickstart", trials=trials)


@pytest.mark.parametrize("name", list(shipped_sweeps()))
def test_shipped_sweeps_are_whole(name: str) -> None:
    plan = load_plan(name)
    assert plan.name == name
    assert plan.description
    assert len({point.slug for point in plan.points}) == len(plan.points)
    assert SweepPlan.from_json(plan.to_json()) == plan


def test_no_sweep_has_the_name_of_a_config() -> None:
    assert not shipped_sweeps().keys() & shipped_configs().keys()


def test_a_sweep_folder(tmp_path: Path, plan: SweepPlan) -> None:
    folder = SweepFolder(tmp_path / "sweep")
    first, second = plan.points[:2]
    assert folder.run_folder(first, 2).path == tmp_path / "sweep" / "upcycled-fl_epsilon-1" / "trial-02"
    assert folder.run_folder(first, 123).path.name == "trial-123"
    assert folder.finished(first) == []
    assert folder.timing() == {}
    for trial in (2, 10, 1, 123):
        run_folder = folder.run_folder(first, trial)
        run_folder.path.mkdir(parents=True)
        if trial != 10:
            run_folder.write_json("result.json", {})
    # What somebody keeps beside them, under whatever name, is no trial.
    for name in ("trial-old", "trial-", "trial-007", "trial-3", "trial-٣٣", "trial-" + "9" * 200):
        (folder.path / first.slug / name).mkdir()
        RunFolder(folder.path / first.slug / name).write_json("result.json", {})
    assert folder.finished(first) == [1, 2, 123]
    assert folder.finished(second) == []
    RunFolder(folder.path).write_json("sweep.json", plan.to_json())
    assert folder.plan() == plan


@pytest.mark.parametrize("content", [None, b"{", b"[]", b"{}", b"\xff", b'{"name": "x"}', b'"x"'])
def test_what_is_no_sweep_folder(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "sweep.json").write_bytes(content)
    with pytest.raises(RunFolderError, match="is not the folder of a sweep"):
        SweepFolder(tmp_path).plan()


def test_a_plan_with_a_config_that_is_none(tmp_path: Path, plan: SweepPlan) -> None:
    data: dict[str, Any] = plan.to_json()
    data["points"][0]["config"]["local"]["epochs"] = "many"
    RunFolder(tmp_path).write_json("sweep.json", data)
    with pytest.raises(
        RunFolderError, match=r"is not the folder of a sweep: point 'upcycled-fl_epsilon-1': local\.epochs"
    ):
        SweepFolder(tmp_path).plan()


def test_timing_that_is_damaged(tmp_path: Path) -> None:
    for content in (
        *(b"{", b"[]", b"7", b'{"trials": 1}', b'{"trials": [1]}', b'{"trials": [{}]}', b'{"wall_seconds": "x"}'),
        *(b'{"wall_seconds": NaN}', b'{"wall_seconds": -1}', b'{"wall_seconds": Infinity}', b'{"wall_seconds": null}'),
    ):
        (tmp_path / "timing.json").write_bytes(content)
        with pytest.raises(RunFolderError, match=r"timing\.json"):
            SweepFolder(tmp_path).timing()


def test_configs_lists_sweeps_and_prints_them(command: Callable[..., Outcome]) -> None:
    listed = command("configs", "--json").json
    assert set(listed) == {*shipped_configs(), *shipped_sweeps()}
    text = command("configs").out
    for name in shipped_sweeps():
        assert name in text
        assert command("configs", name).out == shipped_sweeps()[name].read_text()
        assert SweepPlan.from_json(command("configs", name, "--json").json) == load_plan(name)


@pytest.mark.parametrize(
    "slug",
    ["../other", "/etc", "..", ".hidden", "a/b", "", "A", "a\n", "sweep.json", "x" * 201, 3, None, ["a"], "a__b"],
)
def test_a_plan_that_names_folders_elsewhere_is_refused(tmp_path: Path, slug: object) -> None:
    """A folder of a sweep may come from anybody, and its slugs become paths."""
    plan = load_plan("quickstart").to_json()
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    assert SweepFolder(tmp_path).plan().points[0].slug == "quickstart"
    plan["points"][0]["slug"] = slug
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    with pytest.raises(RunFolderError, match="slug"):
        SweepFolder(tmp_path).plan()
