"""How a client makes its update: the section [local] of a config, which goes as it is to whoever trains.

Also what else of a config learning knows. No PyTorch is imported here: whoever reads configs need not wait for it.
"""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from fl.import_path import ImportPath, named_by_path, portable
from fl.ranges import Count, Positive
from hardware.foundation.sections import Section, choice


class LocalMode(StrEnum):
    """`sgd`: many steps, the whole update clipped. `record`: one full-batch step on per-sample-clipped gradients."""

    SGD = "sgd"
    RECORD = "record"


class InputShape(StrEnum):
    """`flat`: (n, features); `as-is`: (n, ...) as the data has it; `channels-first`: an image's last axis first."""

    FLAT = "flat"
    AS_IS = "as-is"
    CHANNELS_FIRST = "channels-first"


class LossName(StrEnum):
    """`cross-entropy`: of labels."""

    CROSS_ENTROPY = "cross-entropy"


class OptimiserName(StrEnum):
    """`sgd`: with momentum."""

    SGD = "sgd"


_LOSSES = {
    "mse": "torch.nn.functional:mse_loss",
    "l1": "torch.nn.functional:l1_loss",
    "huber": "torch.nn.functional:huber_loss",
    "bce": "torch.nn.functional:binary_cross_entropy_with_logits",
}
_OPTIMISERS = {name.lower(): f"torch.optim:{name}" for name in ("Adam", "AdamW", "Adagrad", "RMSprop")}


class LocalSettings(Section):
    """[local] How a client trains and makes its update."""

    mode: Annotated[LocalMode, choice(LocalMode)] = LocalMode.SGD
    epochs: Count = 20
    """Passes over the client's samples in each uplink; the mode `record` takes one full-batch step instead."""
    batch_size: Count = 64
    """Samples of an SGD step."""
    lr: Positive = 0.05
    """Learning rate."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Of SGD; starts from zero in each uplink."""
    loss: Annotated[
        Annotated[LossName, choice(LossName)] | ImportPath,
        named_by_path(_LOSSES, "its arguments in local.loss_arguments"),
    ] = LossName.CROSS_ENTROPY
    """What is minimised: cross-entropy, or `package.module:name` of a function of outputs and targets, for example
    `torch.nn.functional:mse_loss`."""
    loss_arguments: Annotated[dict[str, Any], AfterValidator(portable)] = Field(default_factory=dict)
    """Keyword arguments of the loss."""
    optimiser: Annotated[
        Annotated[OptimiserName, choice(OptimiserName)] | ImportPath, named_by_path(_OPTIMISERS, "its rate in local.lr")
    ] = OptimiserName.SGD
    """`sgd`, with `momentum`, or `package.module:Class` of a torch.optim.Optimizer, which gets `lr`; it starts anew in
    each uplink. For the mode `sgd`."""
    optimiser_arguments: Annotated[dict[str, Any], AfterValidator(portable)] = Field(default_factory=dict)
    """Its other keyword arguments."""
    workers: Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=r"^(tls|tcp)://.+:\d+$")] = 0
    """Who trains clients: so many threads, 0 for one per core; or the Dask cluster with this scheduler, `tls://HOST:PORT`.
    Results do not depend on it."""

    @property
    def threads(self) -> int | None:
        """Threads of this process; None: one per core."""
        return self.workers or None if isinstance(self.workers, int) else None

    @property
    def cluster(self) -> str | None:
        """Address of the scheduler of those who train; None: this process does."""
        return self.workers if isinstance(self.workers, str) else None
