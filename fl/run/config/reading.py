"""Configs from files, overrides and mappings; every problem is said in one line."""

from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from fl.errors import ConfigError
from fl.run.config.whole import RunConfig
from hardware.foundation.documents import DocumentError, is_file, parse_toml, read_toml
from hardware.foundation.sections import explain, nearest


def shipped_configs() -> dict[str, Path]:
    """Name and file of each config that ships with airdp."""
    folder = Path(str(resources.files("fl.configs")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_config(
    source: str, overrides: Iterable[str] = (), tables: Iterable[Mapping[str, Any]] = (), origin: str = ""
) -> RunConfig:
    """The config that `source` names (shipped name or path of a TOML file), with `a.b=c` overrides applied last.

    tables: laid over the file's, one after the other; their keys may be dotted. origin: what an error is put down to.
    """
    data = _read(source)
    for table in tables:
        _lay_over(data, table, origin or source)
    for override in overrides:
        apply_override(data, override)
    return parse_config(data, origin=origin or source)


def resolve_config(
    config: "RunConfig | Mapping[str, Any] | str | Path", overrides: Mapping[str, Any] | None = None
) -> RunConfig:
    """What a Python caller gave: a `RunConfig`, a mapping with its sections, or a shipped name or path.

    overrides: keys by dotted name (`{"local.epochs": 5}`) or by section, laid over it.
    """
    if not isinstance(config, str | Path | RunConfig | Mapping):
        raise ConfigError(
            f"the config is a {type(config).__name__}: expected a shipped name, the path of a TOML file, or a mapping"
        )
    if not isinstance(overrides or {}, Mapping):
        raise ConfigError(
            f"overrides are a {type(overrides).__name__}: expected a mapping such as {{'local.epochs': 5}}"
        )
    if isinstance(config, str | Path):
        return load_config(str(config), tables=[overrides or {}], origin=str(config))
    if isinstance(config, RunConfig):
        if not overrides:
            return config
        config = config.model_dump(mode="json")
    data: dict[str, Any] = {}
    for table in (config, overrides or {}):
        _lay_over(data, table, "config")
    return parse_config(data)


def _read(source: str) -> dict[str, Any]:
    shipped = shipped_configs()
    path = shipped.get(source, Path(source))
    if not is_file(path):
        hint = nearest(source, shipped)
        raise ConfigError(f"no config '{source}': expected a TOML file or one of {', '.join(shipped)}{hint}")
    try:
        return read_toml(path)
    except (DocumentError, OSError) as error:
        raise ConfigError(f"config {path} cannot be read: {error}") from error


def _lay_over(data: dict[str, Any], table: Mapping[str, Any], origin: str) -> None:
    for key, value in table.items():
        *sections, last = str(key).split(".")
        place = data
        for name in sections if not isinstance(value, Mapping) else [*sections, last]:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{origin}: '{name}' of '{key}' is a value, not a section")
        if isinstance(value, Mapping):
            _lay_over(place, value, origin)
        else:
            place[last] = _as_in_toml(value)


def _as_in_toml(value: Any) -> Any:
    """Paths and numpy's numbers, which Python callers have, as what TOML has for them."""
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, Path) else value


def apply_override(data: dict[str, Any], override: str) -> None:
    """Set one key of tables by `a.b=value`, value as in TOML, or a string where it is none."""
    key, separator, text = override.partition("=")
    names = [name.strip() for name in key.split(".")]
    if not separator or not all(names):
        raise ConfigError(f"--set {override}: expected a.b=value, for example --set local.epochs=5")
    try:
        value = parse_toml(f"value = {text}")["value"]
    except DocumentError:
        value = text.strip()
    place = data
    for name in names[:-1]:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise ConfigError(f"--set {override}: '{name}' is a value, not a section")
    place[names[-1]] = value


def parse_config(data: Mapping[str, Any], origin: str = "config") -> RunConfig:
    """Validate `data`; raises `ConfigError` with every problem in one line."""
    try:
        return RunConfig.model_validate(dict(data))
    except ValidationError as error:
        raise ConfigError(f"{origin}: {explain(error, RunConfig, data)}{_of_labs(data)}") from error


def _of_labs(data: Mapping[str, Any]) -> str:
    """A word on sections that belong into another file."""
    from hardware.lab.file import lab_file_model

    strange = sorted(data.keys() & lab_file_model().model_fields.keys() - RunConfig.model_fields.keys())
    if not strange:
        return ""
    return f"; [{strange[0]}] is for lab files: `airdp init lab mylab.toml` writes one, and --lab mylab.toml takes it"
