"""How a client makes its update: the section [local] of a config, which goes as it is to whoever trains."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from fl.ranges import Count, Positive
from hardware.foundation.sections import Section, choice


class LocalMode(StrEnum):
    """`sgd`: many steps, the whole update clipped. `record`: one full-batch step on per-sample-clipped gradients."""

    SGD = "sgd"
    RECORD = "record"


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
    workers: Annotated[int, Field(ge=0)] = 0
    """Threads that train clients; 0 means one per core. Results do not depend on it."""
