"""The configuration of a run: every key, its meaning, its default, and what values it takes.

A config is a TOML file with the sections of `RunConfig`. Unknown keys, wrong types and impossible combinations are
refused with the key's name before anything is done. A resolved config holds every key, so a run folder says all that
was chosen.
"""

from fl.run.config.air import Fading, JammerConfig, RadioConfig, Record, UplinkKind
from fl.run.config.claim import PrivacyConfig
from fl.run.config.learning import TORCHVISION, AlgorithmName, DataSet, PartitionKind
from fl.run.config.reading import apply_override, load_config, parse_config, resolve_config, shipped_configs
from fl.run.config.whole import RunConfig, digest_of

__all__ = [
    "TORCHVISION",
    "AlgorithmName",
    "DataSet",
    "Fading",
    "JammerConfig",
    "PartitionKind",
    "PrivacyConfig",
    "RadioConfig",
    "Record",
    "RunConfig",
    "UplinkKind",
    "apply_override",
    "digest_of",
    "load_config",
    "parse_config",
    "resolve_config",
    "shipped_configs",
]
