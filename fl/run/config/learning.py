"""Sections about learning: data, partition, model, algorithm. [local] is `fl.learning.settings`."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from fl.import_path import ImportPath, named_by_path, portable
from fl.learning.settings import InputShape
from fl.ranges import Count, NotNegative, Positive
from hardware.foundation.sections import Section, as_tuple, choice

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


_BY_PATH = {name.lower(): f"fl.learning.server.adaptive:{name}" for name in ("FedAdam", "FedYogi", "FedAvgM")}
"""Those that ship as examples of own algorithms have no name of their own."""


_PUBLISHED = {
    name.lower(): f"{TORCHVISION}{name}" for name in ("CIFAR10", "CIFAR100", "MNIST", "FashionMNIST", "KMNIST", "SVHN")
}
"""Sets that a package has and airdp does not."""


class DataConfig(Section):
    """[data] Which data set, where its files are, and how much of it is for training."""

    set: Annotated[
        Annotated[DataSet, choice(DataSet)] | ImportPath, named_by_path(_PUBLISHED, "from the folder data.path")
    ] = DataSet.DIGITS
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

    name: Annotated[
        Annotated[AlgorithmName, choice(AlgorithmName)] | ImportPath,
        named_by_path(_BY_PATH, "its rate in algorithm.arguments"),
    ] = AlgorithmName.UPCYCLED
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
