"""The configuration of a run: every key, its meaning, its default, and what values it takes.

A config is a TOML file with the sections below. Unknown keys, wrong types and impossible combinations are refused with
the key's name before anything is done. A resolved config holds every key, so a run folder says all that was chosen.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from fl.errors import ConfigError
from fl.import_path import ImportPath, check_import_path, portable
from fl.learning.settings import InputShape, LocalMode, LocalSettings, OptimiserName
from fl.privacy.accountant import Accountant
from fl.privacy.sensitivity import Label, Neighbours
from fl.ranges import Count, Decibels, Epsilon, NotNegative, Positive, Scale
from fl.tracking.tracker import SHIPPED
from fl.uplink.jammer import FactorOn, JammerRole
from fl.uplink.modes import Backoff, BaselineBudget, PowerControl, Rescale
from hardware.foundation.documents import DocumentError, is_file, parse_toml, read_toml
from hardware.foundation.sections import Section, as_tuple, choice, explain, nearest
from hardware.foundation.tables import differing_keys

NOT_COUNTED = frozenset(
    {"description", "local.workers", "radio.calibration", "radio.record", "radio.record_sent", "tracking"}
)
"""Keys that no result depends on. Of a calibration the content counts (`fl.run.inputs`), wherever its file lies."""


def _tracker(value: str) -> str:
    """A name that ships, or an import path."""
    return value if value in SHIPPED else check_import_path(value)


TORCHVISION = "torchvision:"
"""What names of torchvision's data sets begin with; they are no import paths."""


class DataSet(StrEnum):
    """`digits`: scikit-learn's 8 x 8 handwritten digits; `emnist`: letters a to j; `synthetic`: FedProx's generator;
    `npz`: own arrays, in the file `path`; `huggingface`: a folder `path` that Hugging Face's datasets saved."""

    DIGITS = "digits"
    EMNIST = "emnist"
    SYNTHETIC = "synthetic"
    NPZ = "npz"
    HUGGINGFACE = "huggingface"


class PartitionKind(StrEnum):
    """`iid`: drawn alike; `classes`: each client has some of the classes; `dirichlet`: each class is divided in drawn
    proportions; `natural`: the clients that the data has."""

    IID = "iid"
    CLASSES = "classes"
    DIRICHLET = "dirichlet"
    NATURAL = "natural"


class AlgorithmName(StrEnum):
    """What the server does with the sum; `fedprox` and `upcycled` also hold clients near the global model."""

    FEDAVG = "fedavg"
    FEDPROX = "fedprox"
    UPCYCLED = "upcycled"


class UplinkKind(StrEnum):
    """`ideal`: the exact weighted sum; `symbol`: block fading, noise per coordinate; `radio`: samples over radios."""

    IDEAL = "ideal"
    SYMBOL = "symbol"
    RADIO = "radio"


class Fading(StrEnum):
    """`rayleigh`: drawn anew for every uplink; `static`: always `static_gain`; `file`: read from `path`."""

    RAYLEIGH = "rayleigh"
    STATIC = "static"
    FILE = "file"


class Record(StrEnum):
    """`none`: nothing; `last`: what was received in the newest uplink; `all`: in every uplink."""

    NONE = "none"
    LAST = "last"
    ALL = "all"


_WITHOUT_ARGUMENTS = (DataSet.DIGITS, DataSet.EMNIST, DataSet.SYNTHETIC, DataSet.NPZ)


class DataConfig(Section):
    """[data] Which data set, where its files are, and how much of it is for training."""

    set: Annotated[DataSet, choice(DataSet)] | ImportPath = DataSet.DIGITS
    """`digits`: scikit-learn's 8 x 8 handwritten digits; `emnist`: letters a to j; `synthetic`: FedProx's generator;
    `npz`: own arrays, from the file `path`; `huggingface`: a folder `path` that Hugging Face's datasets saved;
    `torchvision:NAME`: a data set of torchvision's in the folder `path`; `package.module:function`: what it returns."""
    path: str = ""
    """File or folder of the data; for EMNIST, empty means $AIRDP_DATA, then the download."""
    arguments: Annotated[dict[str, Any], AfterValidator(portable)] = Field(default_factory=dict)
    """Keyword arguments of a function or of torchvision's class; for `huggingface`, names of columns and splits."""
    train_samples: Annotated[int, Field(ge=0)] = 0
    """Training samples to use; 0 means all but the test fraction."""
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the samples that is kept for testing; with `train_samples`, the rest is for testing instead."""
    synthetic_iid: bool = True
    """One generating model for all synthetic clients; otherwise one for each, spread by alpha and beta."""
    synthetic_alpha: NotNegative = 1.0
    """Standard deviation, over the clients, of the mean of their generating weights."""
    synthetic_beta: NotNegative = 1.0
    """Standard deviation, over the clients, of the mean of their inputs."""
    synthetic_max_client_samples: Annotated[int, Field(ge=0)] = 0
    """Cap on a synthetic client's size; 0 means none (FedProx's log-normal reaches tens of thousands)."""


class PartitionConfig(Section):
    """[partition] How the training samples are spread over the clients."""

    kind: Annotated[PartitionKind, choice(PartitionKind)] = PartitionKind.IID
    clients: Count = 10
    """K; with radios, as many as the lab has clients."""
    classes_per_client: Count = 5
    """For `kind = "classes"`."""
    dirichlet_alpha: Positive = 0.5
    """For `kind = "dirichlet"`: the smaller, the more unequal are the clients' shares of each class."""
    size_spread: NotNegative = 0.5
    """For `kind = "classes"`: standard deviation of the log-normal weights that make sizes unequal; 0 splits each class
    evenly."""


class ModelConfig(Section):
    """[model] The multilayer perceptron with one hidden layer, unless `module` names a class."""

    hidden: Count = 196
    """Hidden units of the MLP."""
    module: str = ""
    """Import path `package.module:Class` of an nn.Module that maps n samples to (n, classes) logits, or to as many
    outputs as a sample has targets."""
    input: Annotated[InputShape, choice(InputShape)] = InputShape.FLAT
    """What the model is given: `flat`: (n, features); `as-is`: (n, ...) as the data has it; `channels-first`: images
    with their last axis first, as convolutions take them."""
    arguments: Annotated[dict[str, Any], AfterValidator(portable)] = Field(default_factory=dict)
    """Keyword arguments of `module`."""


class AlgorithmConfig(Section):
    """[algorithm] What the server does with the sum that arrives."""

    name: Annotated[AlgorithmName, choice(AlgorithmName)] | ImportPath = AlgorithmName.UPCYCLED
    """`fedavg`; `fedprox` and `upcycled`, which also hold clients near the global model; or `package.module:Class` of
    one's own. Whatever it does with the sum costs no privacy."""
    arguments: Annotated[dict[str, Any], AfterValidator(portable)] = Field(default_factory=dict)
    """Keyword arguments of an own algorithm."""
    mu: Positive = 0.1
    """Proximal weight of FedProx and Upcycled-FL; FedAvg has none."""
    schedule: list[Annotated[tuple[int, float], BeforeValidator(as_tuple)]] = Field(
        default_factory=lambda: [(25, 0.15), (50, 0.4), (75, 0.9), (80, 1.9)]
    )
    """Upcycled-FL's lambda_m as [last uplink, lambda] pairs; the last one stays."""


class UplinkConfig(Section):
    """[uplink] How many uplinks, and through what."""

    kind: Annotated[UplinkKind, choice(UplinkKind)] = UplinkKind.SYMBOL
    uplinks: Annotated[int, Field(ge=1, le=10_000_000)] = 80
    """M: the number of uplinks, for which noise is sized."""
    stop_after: Annotated[int, Field(ge=0)] = 0
    """End the run after this many uplinks although noise is sized for M; 0 means run all M."""


class RadioConfig(Section):
    """[radio] For `uplink.kind = "radio"`: which lab, and the format on the air."""

    lab: str = "loopback"
    """Shipped name or path of a lab file; it must have as many clients as the partition."""
    backend: str = ""
    """Reach the lab through this backend instead of the one that its file names."""
    fft_size: Count = 256
    """Samples of an OFDM symbol without its cyclic prefix."""
    cp_samples: Count = 64
    """Samples of the cyclic prefix: more than the longest delay and multipath of any link."""
    data_subcarriers: Count = 192
    """Used subcarriers, around DC, which stays empty. Each carries two coordinates."""
    sounding_symbols: Annotated[int, Field(ge=2, le=1000)] = 32
    """Symbols from which a channel is estimated; more of them make its error and the bound on the gain smaller."""
    quiet_samples: Annotated[int, Field(ge=4096, le=10**7)] = 65536
    """Silence before each uplink's soundings, in which the level of the noise is measured."""
    first_quiet_samples: Annotated[int, Field(ge=0, le=10**8)] = 2**21
    """Silence at the start of a run, and again after the noise has changed, from which the shape of its spectrum is
    known. Over real radios all later silences that agree with it add to it."""
    payload_rms: Annotated[float, Field(gt=0, le=0.5)] = 0.2
    """Rms of a client's samples at its power limit, full scale 1."""
    confidence: Literal["auto"] | Annotated[float, Field(gt=0.5, lt=1)] = "auto"
    """Of each measured bound that enters the ledger; `auto`: such that all bounds of all M uplinks together fail with
    at most `privacy.bounds_share` of delta. A number is charged to delta as it is: 0.999 leaves nothing of 1e-5."""
    max_phase_error_rad: Annotated[float, Field(gt=0, le=3)] = 0.1
    """Coherence gate: an uplink with a larger predicted phase error is not sent."""
    calibration: str = ""
    """Record of the lab (`airdp calibrate`) that the run rests on. Radios that it does not fit are refused, and uplinks
    whose noise is not the record's are not sent. Empty: none; linearity and noise are then taken on trust."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Soundings before an uplink is given up."""
    diagnosis: bool = True
    """Compare each sum with the exact one and keep what `airdp inspect` draws; what is sent does not depend on it."""
    record: Annotated[Record, choice(Record)] = Record.NONE
    """Keep what the receivers received as SigMF in the run folder, for `airdp replay` and other tools."""
    record_sent: bool = False
    """Record what clients and jammer sent as well. It is not private: updates without any noise."""


class ChannelConfig(Section):
    """[channel] Gains, noise and power limit of `uplink.kind = "symbol"`; radios measure theirs."""

    fading: Annotated[Fading, choice(Fading)] = Fading.RAYLEIGH
    snr_db: Decibels = 1.0
    """Limit P_i on a client's energy, as SNR_i = P_i / (d sigma_c^2)."""
    noise_std_real: Scale = 1.0
    """sigma_c: standard deviation of the receiver's noise per real coordinate."""
    static_gain: Scale = 1.0
    """|h_i| of every client for `fading = "static"`."""
    path: str = ""
    """File of gains for `fading = "file"`."""


class PowerConfig(Section):
    """[power] How strongly clients send, and what the server divides by."""

    control: Annotated[PowerControl, choice(PowerControl)] = PowerControl.ADAPTIVE
    """`adaptive`: alpha_u below, clients back off; `liu-simeone`: the baseline's offline optimum over all M uplinks,
    with all gains known in advance and no back-off."""
    contraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """mu/L of the baseline, the part of the optimality gap that an uplink closes: above 0, power is saved for late
    uplinks. 0 weighs all alike, the limit of a loss that is not convex and so has no mu."""
    baseline_accountant: Annotated[BaselineBudget, choice(BaselineBudget)] = BaselineBudget.OURS
    """What the baseline spends: `ours`: privacy.epsilon under [privacy]'s label, neighbours and accountant, as every
    run does; `published`: the same epsilon and delta by its own accountant for replaced records."""
    alpha_u: Scale | Literal["target", "largest"] = "target"
    """A number; `target`: channel noise alone meets channel_epsilon; `largest`: the most that keeps every s_i = 1."""
    channel_epsilon: Epsilon | Literal[0] = 0
    """Epsilon that alpha_u = "target" is sized for; 0 means privacy.epsilon."""
    backoff: Annotated[Backoff, choice(Backoff)] = Backoff.WORST_CASE
    aggregate: Annotated[Rescale, choice(Rescale)] = Rescale.RESCALED


class JammerConfig(Section):
    """[jammer] Who adds noise, and how much above the bound."""

    role: Annotated[JammerRole, choice(JammerRole)] = JammerRole.NONE
    factor: Annotated[float, Field(ge=1, le=1e6, allow_inf_nan=False)] = 1.0
    """By how much the jammer exceeds what the theorem asks for; the paper's experiments use 7."""
    factor_on: Annotated[FactorOn, choice(FactorOn)] = FactorOn.AMPLITUDE
    gain_db: Decibels = 0.0
    """Mean power gain of a dedicated or external jammer's link relative to the clients'."""
    availability: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Probability that an external jammer is there in a sounding; clients do not send without a needed jammer."""
    snr_limit_db: Decibels | Literal["none"] = "none"
    """Limit on a dedicated or external jammer's energy, defined as for clients; a rotating client keeps its own."""


class PrivacyConfig(Section):
    """[privacy] What is wanted, what is claimed, and where a run stops."""

    clip_norm: Scale = 1.0
    """tau: the largest l2 norm of a client's update; in the mode `record`, of each sample's term in it."""
    epsilon: Epsilon = 6.52
    """Target over all M uplinks, for which noise is sized."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """Of (epsilon, delta)-differential privacy, in total: the mechanism's and that of measured bounds that may fail."""
    bounds_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Part of delta for measured bounds that may fail, over all M uplinks; noise is sized for the rest. Radios only."""
    label: Literal["auto"] | Annotated[Label, choice(Label)] = "auto"
    """What is claimed and sized for; `auto`: record in the local mode record, else paper-claim."""
    neighbours: Annotated[Neighbours, choice(Neighbours)] = Neighbours.ZERO_OUT
    accountant: Annotated[Accountant, choice(Accountant)] = Accountant.PAPER
    """Sizes the noise and keeps the budget: paper or exact."""
    budget_epsilon: NotNegative = 0.0
    """The run stops before the uplink that would exceed it; 0 means no budget."""


class AuditConfig(Section):
    """[audit] Attacks on the run's own claim, for `airdp audit`."""

    canaries: Annotated[int, Field(ge=0)] = 0
    """Records whose clipped terms are replaced by known directions, each there with probability 1/2; 0 means none. The
    model then learns without these records. For `local.mode = "record"`."""


class TrackingConfig(Section):
    """[tracking] Experiment trackers that are told about the run as it goes on. No result depends on them."""

    to: list[Annotated[str, AfterValidator(_tracker)]] = Field(default_factory=list)
    """Each `tensorboard`, `mlflow`, `wandb` (offline), or an import path `package.module:Class` of a `Tracker`
    (`fl/tracking/tracker.py`)."""
    metrics: Literal["public", "all"] = "public"
    """Which of an uplink's metrics they get. `public`: what follows from config, ledger, released model and test data;
    `all`: also training loss, norms, counts and the error budget, which are computed from clients' data and which no
    epsilon covers."""


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
        *sections, last = key.split(".")
        place = data
        for name in sections if not isinstance(value, Mapping) else [*sections, last]:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{origin}: '{name}' of '{key}' is a value, not a section")
        if isinstance(value, Mapping):
            _lay_over(place, value, origin)
        else:
            place[last] = value


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
        raise ConfigError(f"{origin}: {explain(error, RunConfig, data)}") from error
