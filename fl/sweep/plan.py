"""What a sweep runs, and where: a grid of configs times trials, read from a TOML file, and the folder it fills.

    DIR/sweep.json               the plan: every point's config, resolved
    DIR/timing.json              wall and CPU time of each finished trial
    DIR/dask.log                 lost workers and other warnings of Dask's, if there were any
    DIR/<slug>/trial-01, ...     ordinary run folders (fl.run.folder), one per trial

Trial t of every point runs with the config's seed + t - 1: the same data split, channel and start model at every
point, so that the curves of two points are paired.
"""

import hashlib
import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from fl.errors import ConfigError, RunFolderError
from fl.run.config import RunConfig, load_config, parse_config, shipped_configs
from fl.run.folder import RunFolder
from hardware.foundation.documents import DocumentError, is_file, read_json, read_toml
from hardware.foundation.sections import Section, as_tuple, explain, nearest

PLAN_FILE, TIMING_FILE, LOG_FILE = "sweep.json", "timing.json", "dask.log"
_LONGEST_SLUG = 200
_MOST_TRIALS = 10_000
_TIMES, _LONGEST_S = ("wall_seconds", "cpu_seconds"), 1e12
_DAMAGED = "{} is damaged: restore it, or delete it to go on"
_TRIAL, _NUMBERED = "trial-{:02d}", re.compile("trial-[0-9]{2,5}")
_RESERVED = (PLAN_FILE, TIMING_FILE, LOG_FILE)
_SLUG = re.compile(r"[a-z0-9][a-z0-9.-]*(_[a-z0-9][a-z0-9.-]*)*")

_Claim = Annotated[tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0, lt=1)]], BeforeValidator(as_tuple)]
_Trials = Annotated[int, Field(ge=1, le=_MOST_TRIALS)]
_Text = Annotated[str, Field(min_length=1)]


class _PointTable(Section):
    """[[axis.point]]"""

    name: _Text
    set: dict[str, Any] = Field(default_factory=dict)
    claims: list[_Claim] | None = None


class _AxisTable(Section):
    """[[axis]]"""

    name: _Text
    point: Annotated[list[_PointTable], Field(min_length=1)]


class _SweepTable(Section):
    """A whole sweep file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    title: str = ""
    description: str = ""
    base: _Text
    """Shipped config, or path of a config relative to the sweep file."""
    trials: _Trials = 1
    claims: list[_Claim] = Field(default_factory=list)
    """(epsilon, delta) pairs that are published for these runs."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Keys over the base, dotted or as tables, for all points."""
    axis: list[_AxisTable] = Field(default_factory=list)


@dataclass(frozen=True)
class Point:
    """One config of the grid.

    slug: its folder. labels: (axis, name of the value) pairs, none where the sweep has no axis. claims: published
    (epsilon, delta) pairs. config: resolved, with the seed of trial 1.
    """

    slug: str
    labels: tuple[tuple[str, str], ...]
    claims: tuple[tuple[float, float], ...]
    config: RunConfig

    @property
    def name(self) -> str:
        """What people call it."""
        return ", ".join(value for _, value in self.labels) or self.config.name

    def trial_config(self, trial: int) -> RunConfig:
        """The config of trial 1, 2, ...: the next seed each."""
        return self.config.model_copy(update={"seed": self.config.seed + trial - 1})


@dataclass(frozen=True)
class SweepPlan:
    """A grid of configs, each to be run `trials` times. axes: their names, outermost first."""

    name: str
    title: str
    description: str
    trials: int
    axes: tuple[str, ...]
    points: tuple[Point, ...]

    def digest(self) -> str:
        """sha256 of everything that the results depend on: not the number of trials, which may grow, nor any title."""
        configs = sorted((point.slug, point.config.digest()) for point in self.points)
        return hashlib.sha256(json.dumps(configs).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """What sweep.json holds."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "trials": self.trials,
            "axes": list(self.axes),
            "points": [
                {
                    "slug": point.slug,
                    "labels": [list(label) for label in point.labels],
                    "claims": [list(claim) for claim in point.claims],
                    "config": point.config.model_dump(mode="json"),
                }
                for point in self.points
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "SweepPlan":
        """The plan that `to_json` described; raises KeyError, TypeError, ValueError or ConfigError where it did not."""
        return cls(
            name=str(data["name"]),
            title=str(data["title"]),
            description=str(data["description"]),
            trials=_checked_trials(data["trials"]),
            axes=tuple(map(str, data["axes"])),
            points=tuple(
                Point(
                    slug=_checked_slug(point["slug"]),
                    labels=tuple((str(axis), str(value)) for axis, value in point["labels"]),
                    claims=tuple((float(epsilon), float(delta)) for epsilon, delta in point["claims"]),
                    config=parse_config(point["config"], origin=f"point '{point['slug']}'"),
                )
                for point in data["points"]
            ),
        )


@dataclass(frozen=True)
class SweepFolder:
    """Paths and files of one sweep."""

    path: Path

    @property
    def plan_path(self) -> Path:
        """The plan."""
        return self.path / PLAN_FILE

    def plan(self) -> SweepPlan:
        """The plan that the folder was started with."""
        try:
            return SweepPlan.from_json(read_json(self.plan_path))
        except (OSError, KeyError, TypeError, ValueError, OverflowError, ConfigError) as error:
            raise RunFolderError(f"{self.path} is not the folder of a sweep: {error}") from error

    def run_folder(self, point: Point, trial: int) -> RunFolder:
        """The folder of one trial, which need not exist yet."""
        return RunFolder(self.path / point.slug / _TRIAL.format(trial))

    def finished(self, point: Point) -> list[int]:
        """Trials that have a result. Folders of other names, such as a copy that somebody keeps there, are none."""
        names = {path.parent.name for path in (self.path / point.slug).glob("trial-*/result.json")}
        numbers = (int(name.removeprefix("trial-")) for name in names if _NUMBERED.fullmatch(name))
        return sorted(trial for trial in numbers if _TRIAL.format(trial) in names)

    def timing(self) -> dict[str, Any]:
        """Content of timing.json; empty before the first trial has finished."""
        if not (self.path / TIMING_FILE).exists():
            return {}
        timing: Any = RunFolder(self.path).read_json(TIMING_FILE)
        try:
            whole, trials = timing.get("wall_seconds", 0.0), timing.get("trials", ())
            good = _are_times([whole, *(trial[key] for trial in trials for key in _TIMES)])
        except (AttributeError, KeyError, TypeError):
            good = False
        if not good:
            raise RunFolderError(_DAMAGED.format(self.path / TIMING_FILE))
        return dict(timing)


def trial_timing(folder: RunFolder) -> dict[str, Any]:
    """The same of one trial: its times, and the uplinks that it had made by then."""
    timing = folder.read_json(TIMING_FILE)
    if not (isinstance(timing, dict) and _are_times([timing.get(key) for key in (*_TIMES, "uplinks")])):
        raise RunFolderError(_DAMAGED.format(folder.path / TIMING_FILE))
    return {key: timing[key] for key in (*_TIMES, "uplinks")}


def _are_times(values: Iterable[object]) -> bool:
    """Numbers from 0 on that can be added up; anybody may have written them."""
    return all(isinstance(value, int | float) and 0.0 <= value < _LONGEST_S for value in values)


def shipped_sweeps() -> dict[str, Path]:
    """Name and file of each sweep that ships with airdp."""
    folder = Path(str(resources.files("fl.configs.sweeps")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_plan(source: str, overrides: Iterable[str] = (), trials: int | None = None) -> SweepPlan:
    """The plan that `source` names: a shipped sweep, a sweep file, or any run config, which is a sweep of one point.

    overrides: `a.b=c`, applied last to every point. trials: instead of the file's number.
    """
    overrides = list(overrides)
    if trials is not None and not 1 <= trials <= _MOST_TRIALS:
        raise ConfigError(f"--trials is {trials}: expected 1 to {_MOST_TRIALS}")
    path = {**shipped_configs(), **shipped_sweeps()}.get(source, Path(source))
    data = _read(source, path)
    if not {"base", "axis"} & data.keys():
        config = load_config(str(path), overrides, origin=source)
        point = Point(_slug(config.name, source), (), (), config)
        return SweepPlan(config.name, config.name, config.description, trials or 1, (), (point,))
    try:
        table = _SweepTable.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{source}: {explain(error, _SweepTable, data)}") from error
    return SweepPlan(
        name=table.name,
        title=table.title or table.name,
        description=table.description,
        trials=trials or table.trials,
        axes=tuple(axis.name for axis in table.axis),
        points=tuple(_points(table, source, path.parent, overrides)),
    )


def _read(source: str, path: Path) -> dict[str, Any]:
    if not is_file(path):
        known = [*shipped_sweeps(), *shipped_configs()]
        raise ConfigError(
            f"no sweep or config '{source}': expected a TOML file or one of {', '.join(known)}{nearest(source, known)}"
        )
    try:
        return read_toml(path)
    except (DocumentError, OSError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _points(table: _SweepTable, source: str, home: Path, overrides: list[str]) -> Iterable[Point]:
    """The product of the axes, the last one fastest."""
    base = table.base if table.base in shipped_configs() else str(home / table.base)
    names = [axis.name for axis in table.axis]
    _refuse_equal(names, f"{source}: two axes are called")
    for axis in table.axis:
        slugs = [_slug(value.name, source) for value in axis.point]
        _refuse_equal(slugs, f"{source}: two points of the axis '{axis.name}' have the folder name")
    for values in itertools.product(*(axis.point for axis in table.axis)):
        name = ", ".join(value.name for value in values)
        origin = f"{source}, point '{name}'" if values else source
        config = load_config(base, overrides, [table.set, *(value.set for value in values)], origin)
        claims = next((value.claims for value in reversed(values) if value.claims is not None), table.claims)
        # A slug of one value has no underscore, so that no two combinations have the same.
        slug = "_".join(_slug(value.name, source) for value in values) or _slug(config.name, source)
        if len(slug) > _LONGEST_SLUG:
            raise ConfigError(f"{origin}: its folder name would have {len(slug)} characters; shorten the points' names")
        labels = tuple(zip(names, (value.name for value in values), strict=True))
        yield Point(slug, labels, tuple(claims), config)


def _slug(name: str, source: str) -> str:
    """Lower case letters, digits, dots and hyphens; the papers' symbols are spelt out, accents dropped."""
    spelt = re.sub("[α-ω]", lambda letter: unicodedata.name(letter[0]).split()[-1], name.lower())
    plain = re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFKD", spelt.lower()))
    slug = re.sub("[^a-z0-9.]+", "-", plain).strip("-.")
    if not slug or slug in _RESERVED:
        raise ConfigError(f"{source}: no folder can be named after '{name}'; use latin letters or digits")
    return slug


def _checked_slug(value: object) -> str:
    """Of a plan that was read: nothing but what `_slug` makes, so that no folder outside of the sweep's is named."""
    if not isinstance(value, str) or len(value) > _LONGEST_SLUG or not _SLUG.fullmatch(value) or value in _RESERVED:
        raise ValueError(f"the slug {str(value)[:60]!r} is not the name of a point's folder")
    return value


def _checked_trials(value: object) -> int:
    if type(value) is not int or not 1 <= value <= _MOST_TRIALS:
        raise ValueError(f"trials is {str(value)[:60]}: expected 1 to {_MOST_TRIALS}")
    return value


def _refuse_equal(names: list[str], message: str) -> None:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(f"{message} '{twice[0]}': names must differ")
