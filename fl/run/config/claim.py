"""Sections about what is claimed, how it is attacked, and who is told: privacy, audit, tracking."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from fl.import_path import check_import_path
from fl.privacy.accountant import Accountant
from fl.privacy.sensitivity import Label, Neighbours
from fl.ranges import Epsilon, NotNegative, Scale
from fl.tracking.tracker import SHIPPED
from hardware.foundation.sections import Section, choice, nearest


def _tracker(value: str) -> str:
    """A name that ships, or an import path."""
    if value in SHIPPED:
        return value
    if ":" in value:
        return check_import_path(value)
    names = sorted(SHIPPED)
    raise ValueError(
        f"'{value}' is not one of {', '.join(names)}, nor an import path such as 'my_package.my_module:name'"
        f"{nearest(value, names)}"
    )


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
