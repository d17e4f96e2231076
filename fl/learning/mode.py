"""How a client makes its update."""

from enum import StrEnum


class LocalMode(StrEnum):
    """`sgd`: many steps, the whole update clipped. `record`: one full-batch step on per-sample-clipped gradients."""

    SGD = "sgd"
    RECORD = "record"
