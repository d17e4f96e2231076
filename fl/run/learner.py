"""From a config to what learns: data, clients, model, loss, algorithm. Everything that can be wrong shows here."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fl.errors import ConfigError
from fl.learning.autograd import AutogradTrainer, MakeOptimiser, check_training, momentum_sgd
from fl.learning.data.dataset import Dataset, IntArray
from fl.learning.data.digits import load_digits
from fl.learning.data.emnist import load_emnist
from fl.learning.data.own import Arrays, call_function, dataset_of, load_huggingface, load_npz, load_torchvision
from fl.learning.data.partition import (
    Partition,
    partition_by_class,
    partition_dirichlet,
    partition_iid,
    partition_natural,
)
from fl.learning.data.synthetic import make_synthetic
from fl.learning.evaluate import Scores, evaluate
from fl.learning.local import LocalTraining, import_optimiser, trainer_for
from fl.learning.losses import Loss, check_loss, cross_entropy, import_loss
from fl.learning.model import Vector, build_mlp, check_model, flatten, import_module, shaped
from fl.learning.server.algorithms import (
    Algorithm,
    FedAvg,
    FedProx,
    UpcycledFL,
    check_algorithm,
    import_algorithm,
)
from fl.learning.settings import LocalMode, LossName, OptimiserName
from fl.learning.trainer import ClientData
from fl.random_streams import Stream, generator
from fl.run.config import TORCHVISION, AlgorithmName, DataSet, PartitionKind, RunConfig


@dataclass(frozen=True)
class Learner:
    """start: initial model (d,). train, test: all samples, as the model takes them. clients: of the former."""

    dataset: Dataset
    partition: Partition
    train: ClientData
    test: ClientData
    clients: tuple[ClientData, ...]
    model: nn.Module
    start: Vector
    loss: Loss
    algorithm: Algorithm
    local: LocalTraining

    @property
    def statistics(self) -> dict[str, Any]:
        """Who holds what, and what the scores mean, ready for JSON."""
        counted = self.partition.statistics(self.dataset.train_y, self.dataset.classes)
        return {**counted, "score": self.dataset.target.score}

    def scores(self, vector: Vector, data: ClientData) -> Scores:
        """Of parameters `vector` (d,) on `data`."""
        return evaluate(self.model, vector, data.x, data.y, self.loss, self.dataset.target)


def make_learner(config: RunConfig) -> Learner:
    """Load and build everything; raises an `AirdpError` for whatever does not fit."""
    dataset = load_dataset(config)
    partition = make_partition(config, dataset)
    train, test = (
        ClientData(shaped(torch.from_numpy(x), dataset.sample_shape, config.model.input), torch.from_numpy(y))
        for x, y in ((dataset.train_x, dataset.train_y), (dataset.test_x, dataset.test_y))
    )
    model = make_model(config, dataset)
    check_model(model, tuple(train.x.shape[1:]), dataset.classes)
    start, algorithm = flatten(model), make_algorithm(config)
    # Of an instance of its own: one that keeps something must not have seen a step that never was.
    check_algorithm(make_algorithm(config), start)
    loss = _loss(config, dataset, model, train)
    trainer = trainer_for(model, loss, _optimiser(config))
    if isinstance(trainer, AutogradTrainer):
        check_training(trainer, start, ClientData(train.x[:2], train.y[:2]), config.local)
    return Learner(
        dataset=dataset,
        partition=partition,
        train=train,
        test=test,
        clients=tuple(ClientData(train.x[index], train.y[index]) for index in map(torch.from_numpy, partition.clients)),
        model=model,
        start=start,
        loss=loss,
        algorithm=algorithm,
        local=LocalTraining(
            trainer=trainer, settings=config.local, mu=algorithm.proximal_mu, clip_norm=config.privacy.clip_norm
        ),
    )


def load_dataset(config: RunConfig) -> Dataset:
    """The data set that [data] names."""
    data, rng = config.data, generator(config.seed, Stream.DATA)
    train_samples = data.train_samples or None
    if data.set == DataSet.DIGITS:
        return load_digits(train_samples, data.test_fraction, rng)
    if data.set == DataSet.EMNIST:
        return load_emnist(Path(data.path) if data.path else None, train_samples, data.test_fraction, rng)
    if data.set == DataSet.SYNTHETIC:
        return make_synthetic(
            config.partition.clients,
            rng,
            iid=data.synthetic_iid,
            alpha=data.synthetic_alpha,
            beta=data.synthetic_beta,
            test_fraction=data.test_fraction,
            max_client_samples=data.synthetic_max_client_samples or None,
        )
    made = _own_arrays(data.set, data.path, data.arguments)
    if isinstance(made, Dataset):
        return made
    return dataset_of(str(data.set), made, train_samples, data.test_fraction, rng)


def _own_arrays(name: str, path: str, arguments: Mapping[str, Any]) -> Arrays | Dataset:
    if name == DataSet.NPZ:
        return load_npz(Path(path).expanduser())
    if name == DataSet.HUGGINGFACE:
        return load_huggingface(Path(path).expanduser(), arguments)
    if name.startswith(TORCHVISION):
        return load_torchvision(name.removeprefix(TORCHVISION), path, arguments)
    return call_function(name, arguments)


def make_partition(config: RunConfig, dataset: Dataset) -> Partition:
    """The clients that [partition] asks for."""
    settings, rng = config.partition, generator(config.seed, Stream.PARTITION)
    if settings.kind is PartitionKind.NATURAL:
        return partition_natural(dataset.owners, settings.clients)
    if settings.kind is PartitionKind.IID:
        return partition_iid(dataset.train_y, settings.clients, rng)
    labels = _labels(dataset, settings.kind)
    if settings.kind is PartitionKind.DIRICHLET:
        return partition_dirichlet(labels, settings.clients, settings.dirichlet_alpha, rng)
    return partition_by_class(labels, settings.clients, settings.classes_per_client, settings.size_spread, rng)


def _labels(dataset: Dataset, kind: PartitionKind) -> IntArray:
    if dataset.train_y.ndim > 1:
        raise ConfigError(
            f"partition.kind = '{kind}' divides labels, and {dataset.name} has {dataset.target.value} for targets: use "
            "'iid', or 'natural' with client ids"
        )
    return dataset.train_y.astype(np.int64)


def make_model(config: RunConfig, dataset: Dataset) -> nn.Module:
    """The model that [model] names, at its start."""
    seed = int(generator(config.seed, Stream.MODEL).integers(2**63))
    if config.model.module:
        return import_module(config.model.module, config.model.arguments, seed)
    return build_mlp(dataset.features, config.model.hidden, dataset.classes, seed)


def make_algorithm(config: RunConfig) -> Algorithm:
    """The algorithm that [algorithm] names."""
    settings = config.algorithm
    if settings.name == AlgorithmName.FEDAVG:
        return FedAvg()
    if settings.name == AlgorithmName.FEDPROX:
        return FedProx(settings.mu)
    if settings.name == AlgorithmName.UPCYCLED:
        return UpcycledFL(settings.mu, tuple(settings.schedule))
    return import_algorithm(settings.name, settings.arguments)


def _loss(config: RunConfig, dataset: Dataset, model: nn.Module, train: ClientData) -> Loss:
    """The loss that [local] names, tried on two samples."""
    name = config.local.loss
    if name == LossName.CROSS_ENTROPY:
        if dataset.train_y.ndim > 1:
            raise ConfigError(
                f"local.loss is cross-entropy, which is for labels, and {dataset.name} has {dataset.target.value} for "
                "targets: set local.loss to 'torch.nn.functional:mse_loss' (numbers), to "
                "'torch.nn.functional:binary_cross_entropy_with_logits' (bits) or to your own; labels are whole "
                "numbers or names (n,)"
            )
        return cross_entropy
    loss = import_loss(name, config.local.loss_arguments)
    with torch.no_grad():
        outputs = model(train.x[:2])
    check_loss(loss, name, outputs, train.y[:2], by_sample=config.local.mode is LocalMode.RECORD)
    return loss


def _optimiser(config: RunConfig) -> MakeOptimiser:
    if config.local.optimiser == OptimiserName.SGD:
        return momentum_sgd
    return import_optimiser(config.local.optimiser, config.local.optimiser_arguments)
