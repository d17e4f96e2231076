"""A whole config: all sections, what combinations are refused, and what a result depends on."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Self

import tomli_w
from pydantic import Field, model_validator

from fl.learning.settings import InputShape, LocalMode, LocalSettings, OptimiserName
from fl.privacy.accountant import Accountant
from fl.privacy.sensitivity import Label
from fl.run.config.air import (
    ChannelConfig,
    Fading,
    JammerConfig,
    PowerConfig,
    RadioConfig,
    Record,
    UplinkConfig,
    UplinkKind,
)
from fl.run.config.claim import AuditConfig, PrivacyConfig, TrackingConfig
from fl.run.config.learning import (
    AlgorithmConfig,
    AlgorithmName,
    DataConfig,
    DataSet,
    ModelConfig,
    PartitionConfig,
    PartitionKind,
)
from fl.uplink.jammer import JammerRole
from fl.uplink.modes import PowerControl
from hardware.foundation.sections import Section
from hardware.foundation.tables import differing_keys

NOT_COUNTED = frozenset(
    {"description", "local.workers", "radio.calibration", "radio.record", "radio.record_sent", "tracking"}
)
"""Keys that no result depends on. Of a calibration the content counts (`fl.run.inputs`), wherever its file lies."""

_WITHOUT_ARGUMENTS = (DataSet.DIGITS, DataSet.EMNIST, DataSet.SYNTHETIC, DataSet.NPZ)


class RunConfig(Section):
    """A whole run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "run"
    """Of the run, and of its folder where none is given."""
    description: str = ""
    """One line for `airdp configs`."""
    seed: Annotated[int, Field(ge=0)] = 1
    """Of everything random in a simulation; whoever knows it knows the noise."""
    data: DataConfig = DataConfig()
    partition: PartitionConfig = PartitionConfig()
    model: ModelConfig = ModelConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    local: LocalSettings = LocalSettings()
    uplink: UplinkConfig = UplinkConfig()
    radio: RadioConfig = RadioConfig()
    channel: ChannelConfig = ChannelConfig()
    power: PowerConfig = PowerConfig()
    jammer: JammerConfig = JammerConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    audit: AuditConfig = AuditConfig()
    tracking: TrackingConfig = TrackingConfig()

    @property
    def label(self) -> Label:
        """The label that is claimed."""
        if self.privacy.label != "auto":
            return self.privacy.label
        return Label.RECORD if self.local.mode is LocalMode.RECORD else Label.PAPER_CLAIM

    @property
    def last_uplink(self) -> int:
        """Number of uplinks that the run makes when nothing stops it."""
        return self.uplink.stop_after or self.uplink.uplinks

    def digest(self) -> str:
        """sha256 of everything that the result depends on: see `digest_of`."""
        return digest_of(self.model_dump(mode="json"))

    def differing_keys(self, other: "RunConfig") -> list[str]:
        """Dotted keys that count and have another value in `other`."""
        return differing_keys(*(_counted(config.model_dump(mode="json")) for config in (self, other)))

    def to_toml(self) -> str:
        """Every key, as TOML that `load_config` reads back to an equal config."""
        return tomli_w.dumps(self.model_dump(mode="json"))

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        """Refuse what single keys cannot show."""
        natural = self.partition.kind is PartitionKind.NATURAL
        problems = {
            "privacy.label = 'record' needs local.mode = 'record': SGD steps do not bound what a record changes": (
                self.label is Label.RECORD and self.local.mode is not LocalMode.RECORD
            ),
            f"partition.kind = 'natural' needs data with clients, which data.set = '{self.data.set}' has not": (
                natural and self.data.set in (DataSet.DIGITS, DataSet.EMNIST)
            ),
            f"data.set = '{self.data.set}' needs data.path": (
                self.data.set in (DataSet.NPZ, DataSet.HUGGINGFACE) and not self.data.path
            ),
            "data.arguments is for 'huggingface', 'torchvision:NAME' and 'package.module:function'": (
                bool(self.data.arguments) and self.data.set in _WITHOUT_ARGUMENTS
            ),
            "algorithm.arguments is for an own algorithm, 'package.module:Class'": (
                bool(self.algorithm.arguments) and isinstance(self.algorithm.name, AlgorithmName)
            ),
            "model.input is for model.module: the built-in MLP takes flat samples": (
                self.model.input is not InputShape.FLAT and not self.model.module
            ),
            "local.optimiser is for local.mode = 'sgd': a step of another kind would not be a mean of clipped terms": (
                self.local.mode is LocalMode.RECORD and self.local.optimiser != OptimiserName.SGD
            ),
            "channel.fading = 'file' needs channel.path": self.channel.fading is Fading.FILE and not self.channel.path,
            "jammer.role = 'rotating' needs at least 2 clients": self.jammer.role is JammerRole.ROTATING
            and self.partition.clients < 2,
            "jammer.availability below 1 is for jammer.role = 'external'": (
                self.jammer.availability < 1 and self.jammer.role is not JammerRole.EXTERNAL
            ),
            "jammer.availability below 1 is for uplink.kind = 'symbol': a radio's jammer is there when it is heard": (
                self.jammer.availability < 1 and self.uplink.kind is UplinkKind.RADIO
            ),
            "radio.calibration is for uplink.kind = 'radio'": bool(
                self.radio.calibration and self.uplink.kind is not UplinkKind.RADIO
            ),
            "radio.record is for uplink.kind = 'radio': other uplinks receive no samples": (
                self.radio.record is not Record.NONE and self.uplink.kind is not UplinkKind.RADIO
            ),
            "radio.record_sent needs radio.record = 'last' or 'all'": (
                self.radio.record_sent and self.radio.record is Record.NONE
            ),
            "privacy.accountant must be 'paper' or 'exact': the others are second opinions (airdp ledger)": (
                self.privacy.accountant not in (Accountant.PAPER, Accountant.EXACT)
            ),
            "audit.canaries needs clients that train here: set local.workers to a number": (
                self.audit.canaries > 0 and self.local.cluster is not None
            ),
            "audit.canaries needs local.mode = 'record': canaries stand in for the clipped terms of records": (
                self.audit.canaries > 0 and self.local.mode is not LocalMode.RECORD
            ),
            "uplink.stop_after is larger than uplink.uplinks": self.uplink.stop_after > self.uplink.uplinks,
            **self._baseline_problems(),
        }
        for message, wrong in problems.items():
            if wrong:
                raise ValueError(message)
        return self

    def _baseline_problems(self) -> dict[str, bool]:
        baseline = self.power.control is PowerControl.LIU_SIMEONE
        return {
            "power.control = 'liu-simeone' needs uplink.kind = 'symbol': it takes all uplinks' gains in advance": (
                baseline and self.uplink.kind is not UplinkKind.SYMBOL
            ),
            "power.control = 'liu-simeone' needs jammer.role = 'none': the baseline adds no artificial noise": (
                baseline and self.jammer.role is not JammerRole.NONE
            ),
            "power.control = 'liu-simeone' chooses alpha_u itself: leave power.alpha_u and power.channel_epsilon out": (
                baseline and (self.power.alpha_u != "target" or self.power.channel_epsilon != 0)
            ),
        }


def digest_of(tables: Mapping[str, Any]) -> str:
    """sha256 of a config's tables, without the keys that no result depends on (`NOT_COUNTED`)."""
    return hashlib.sha256(json.dumps(_counted(tables), sort_keys=True).encode()).hexdigest()


def _counted(tables: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: {name: part for name, part in value.items() if f"{key}.{name}" not in NOT_COUNTED}
        if isinstance(value, Mapping)
        else value
        for key, value in tables.items()
        if key not in NOT_COUNTED
    }
