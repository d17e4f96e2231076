"""The configs of a study, with what matters first: where its curves differ, then where all leave airdp's defaults."""

import json
from dataclasses import dataclass
from typing import Any

from fl.report.sources import Curve, Study
from fl.run.config import RunConfig
from hardware.foundation.tables import flat

_NOT_SETTINGS = {"name", "description"}


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
    configs = [_settings(curve.config) for curve in study.curves]
    default = _settings(RunConfig())
    keys = list(dict.fromkeys(key for config in configs for key in config))
    varying = tuple(key for key in keys if len({config.get(key) for config in configs}) > 1)
    return Settings(
        varying=varying,
        values=tuple(
            (curve, tuple(config.get(key, "") for key in varying))
            for curve, config in zip(study.curves, configs, strict=True)
        ),
        shared=tuple(
            (key, value) for key, value in configs[0].items() if key not in varying and value != default.get(key)
        ),
    )


def _settings(config: RunConfig) -> dict[str, str]:
    tables = config.model_dump(mode="json", exclude=_NOT_SETTINGS)
    return {key: _toml(value) for key, value in flat(tables).items()}


def _toml(value: Any) -> str:
    """For numbers, strings, booleans and lists of them JSON's spelling is TOML's."""
    return json.dumps(value, ensure_ascii=False)
