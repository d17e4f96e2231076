"""The configs of a study, with what matters first: where its curves differ, then where all leave airdp's defaults."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fl.experiment.config import RunConfig
from fl.experiment.report.sources import Curve, Study

_NOT_SETTINGS = ("name", "description")


@dataclass(frozen=True)
class Settings:
    """Dotted keys with TOML values. varying: keys whose values differ between curves; values: of each curve, in order.

    shared: keys that have one value at all curves, which is not the default; seed: of trial 1.
    """

    varying: tuple[str, ...]
    values: tuple[tuple[Curve, tuple[str, ...]], ...]
    shared: tuple[tuple[str, str], ...]


def settings_of(study: Study) -> Settings:
    """Compare the configs of all planned curves."""
    flat = [_flat(curve.config) for curve in study.curves]
    default = _flat(RunConfig())
    varying = tuple(key for key in flat[0] if any(config[key] != flat[0][key] for config in flat))
    return Settings(
        varying=varying,
        values=tuple(
            (curve, tuple(config[key] for key in varying)) for curve, config in zip(study.curves, flat, strict=True)
        ),
        shared=tuple(
            (key, value) for key, value in flat[0].items() if key not in varying and value != default.get(key)
        ),
    )


def _flat(config: RunConfig) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for key, value in config.model_dump(mode="json").items():
        if isinstance(value, Mapping):
            pairs.update({f"{key}.{name}": _toml(part) for name, part in value.items()})
        elif key not in _NOT_SETTINGS:
            pairs[key] = _toml(value)
    return pairs


def _toml(value: Any) -> str:
    """For numbers, strings, booleans and lists of them JSON's spelling is TOML's."""
    return json.dumps(value, ensure_ascii=False)
